"""Two small datasets, packed once, and one thread for torch."""

from __future__ import annotations

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
