"""The recipe `seed` at the source's own sizes, over local shards in place of its bucket."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import torch

from resnettrain import recipe
from tests.helpers.cli import invoke
from tests.helpers.shards import write_samples
from wdsloader import SourceConfig, source_loader

pytestmark = pytest.mark.e2e

BUCKET = "https://storage.googleapis.com/webdataset/fake-imagenet"


def test_the_command_trains_from_the_bucket_of_the_source_unless_told_otherwise() -> None:
    settings = tomllib.loads(invoke("train", "--recipe", "seed", "--dry-run").stdout)
    assert settings["data"]["urls"] == [BUCKET + "/imagenet-train-{000000..001281}.tar"]
    assert (settings["data"]["batch_size"], settings["data"]["num_workers"]) == (64, 4)


@pytest.mark.filterwarnings("ignore::UserWarning")  # webdataset's, on what the source passes and it ignores
def test_batches_are_64_normalized_float_pictures_of_224_by_224(tmp_path: Path) -> None:
    for number in range(2):
        write_samples(tmp_path / f"imagenet-train-{number:06d}.tar", 50, first=50 * number)
    data = recipe("seed").data
    config = SourceConfig(
        urls=(str(tmp_path / "imagenet-train-{000000..000001}.tar"),),
        batch_size=data.batch_size,
        num_workers=0,  # the source's four only add processes here
        cache_dir=tmp_path / "cache",
    )
    images, labels = next(iter(source_loader(config)))
    assert (images.dtype, tuple(images.shape)) == (torch.float32, (64, 3, 224, 224))
    assert (labels.dtype, tuple(labels.shape)) == (torch.int64, (64,))
    assert set(labels.tolist()) <= set(range(10))
    assert images.min() < 0 < images.max()
