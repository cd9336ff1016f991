"""Two small datasets, packed once, and one thread for torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.helpers.picture_sets import PictureSet, make_picture_set


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def train_set(tmp_path_factory: pytest.TempPathFactory) -> PictureSet:
    """101 samples of 4 classes in 3 uneven shards: 6 batches of 16."""
    return make_picture_set(tmp_path_factory.mktemp("train"), counts=(53, 31, 17))


@pytest.fixture(scope="session")
def val_set(tmp_path_factory: pytest.TempPathFactory) -> PictureSet:
    """101 samples of the same classes in 3 uneven shards."""
    return make_picture_set(tmp_path_factory.mktemp("val"), counts=(13, 81, 7), split="val")


@pytest.fixture
def lone_rank(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
