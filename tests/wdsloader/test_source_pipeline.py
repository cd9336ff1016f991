from __future__ import annotations

import itertools
import pickle
import sys
from pathlib import Path

import pytest
import torch

from tests.helpers.shards import write_samples
from wdsloader.errors import ConfigError
from wdsloader.source_pipeline import SOURCE_URLS, SourceConfig, default_cache_dir, shard_argument, source_loader

# webdataset's own words on the arguments the source passes; they are part of the recipe.
pytestmark = [
    pytest.mark.filterwarnings("ignore:WebDataset.shardshuffle=.* is ignored for resampled datasets"),
    pytest.mark.filterwarnings("ignore:set WebDataset.shardshuffle=.* to a positive integer"),
]


def test_the_defaults_are_the_sources() -> None:
    config = SourceConfig()
    assert config.urls == (
        "https://storage.googleapis.com/webdataset/fake-imagenet/imagenet-train-{000000..001281}.tar",
    )
    assert (config.batch_size, config.num_workers, config.epoch_batches) == (64, 4, 1282 * 100 // 64)
    assert config.cache_dir == Path("_cache")


def test_on_colab_nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.colab", sys)
    assert default_cache_dir() is None


def test_the_loader_delivers_normalized_float_batches_of_the_epoch_length(tmp_path: Path) -> None:
    for number in range(3):
        write_samples(tmp_path / f"t-{number:06d}.tar", 20, first=20 * number)
    config = SourceConfig(
        urls=(str(tmp_path / "t-<000000..000002>.tar"),),
        batch_size=8,
        num_workers=0,
        cache_dir=tmp_path / "cache",
        epoch_batches=5,
        image_size=16,
    )
    batches = list(source_loader(config))
    assert len(batches) == 5
    for images, labels in batches:
        assert (images.dtype, tuple(images.shape)) == (torch.float32, (8, 3, 16, 16))
        assert (labels.dtype, tuple(labels.shape)) == (torch.int64, (8,))
    assert images.min() < 0 < images.max()
    assert (tmp_path / "cache").is_dir()


def test_the_loader_works_with_workers_and_can_be_sent_to_them(tmp_path: Path) -> None:
    write_samples(tmp_path / "t.tar", 20)
    config = SourceConfig(
        urls=(str(tmp_path / "t.tar"),), batch_size=4, num_workers=1, cache_dir=None, epoch_batches=3, image_size=16
    )
    loader = source_loader(config)
    pickle.dumps(loader)
    assert sum(len(labels) for _, labels in itertools.islice(loader, 3)) == 12


def test_brace_patterns_reach_webdataset_as_one_string() -> None:
    assert shard_argument((SOURCE_URLS,)) == SOURCE_URLS
    assert shard_argument(("a-<00..03>.tar", "b-{0..1}.tar")) == "a-{00..03}.tar::b-{0..1}.tar"


def test_patterns_that_webdataset_does_not_know_reach_it_expanded(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        write_samples(tmp_path / name, 1)
    (tmp_path / "list.txt").write_text(str(tmp_path / "b.tar"))
    assert shard_argument((str(tmp_path / "*.tar"),)) == [str(tmp_path / "a.tar"), str(tmp_path / "b.tar")]
    assert shard_argument((f"@{tmp_path / 'list.txt'}",)) == [str(tmp_path / "b.tar")]


def test_a_loader_of_no_shards_or_no_batches_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one shard"):
        SourceConfig(urls=())
    with pytest.raises(ConfigError, match="epoch_batches=0"):
        SourceConfig(epoch_batches=0)
