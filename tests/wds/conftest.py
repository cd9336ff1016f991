"""Two small datasets of learnable pictures, and one finished run on them that several tests look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.cli import TINY, Ended, invoke, loggers_kept
from tests.helpers.picture_sets import PictureSet, make_picture_set
from wds.console import setup_logging


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run of two epochs with validation: its folder and how the command ended."""

    folder: Path
    ended: Ended


@pytest.fixture(scope="session")
def train_set(tmp_path_factory: pytest.TempPathFactory) -> PictureSet:
    """64 samples of 4 classes in 3 shards: 4 batches of 16."""
    return make_picture_set(tmp_path_factory.mktemp("train"), counts=(24, 24, 16))


@pytest.fixture(scope="session")
def val_set(tmp_path_factory: pytest.TempPathFactory) -> PictureSet:
    """37 samples of the same classes: no whole number of batches."""
    return make_picture_set(tmp_path_factory.mktemp("val"), counts=(20, 17), split="val")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, train_set: PictureSet, val_set: PictureSet) -> FinishedRun:
    """Train for two epochs through the command line; angle brackets name the shards."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    urls = train_set.manifest.parent / "tiny-train-<000000..000002>.tar"
    args = ("--urls", urls, "--val-urls", val_set.manifest, "--run-dir", folder, "--epochs", 2)
    return FinishedRun(folder, invoke("train", *args, *TINY))


@pytest.fixture
def verbose() -> Iterator[None]:
    """Have notes and progress shown, as the command does unless told otherwise."""
    with loggers_kept():
        setup_logging("INFO")
        yield
