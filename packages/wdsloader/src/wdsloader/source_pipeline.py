"""The source's own pipeline on webdataset, argument for argument: the baseline that ours is measured against.

What webdataset 1.0.2 does with these arguments, read in its source and tried:

* ``resampled=True`` draws shards with replacement, for ever, seeded by time, process id and ``os.urandom``: no epoch
  sees every shard once, and no run can be repeated. Every worker draws from all shards.
* ``shardshuffle=True`` is announced as ignored for resampled datasets (a warning, then a second one that asks for a
  number), yet a shuffle stage of 100 URLs stays in the pipeline; on a random sequence it changes nothing but the order.
* ``shuffle(1000)`` mixes in a buffer of 1,000 samples per worker that serves from the 100th on; ``shuffle(10)`` behind
  ``unbatched()`` mixes single pictures of the batches as they arrive in the main process.
* ``cache_dir`` names files by the last part of the URL alone, so two shards of one name share a file.
* ``with_epoch(n)`` counts what leaves the loader, so batches here: 1282 * 100 // 64 batches of 64.
* A training process group needs a ``nodesplitter``; the source has none, so this pipeline is for one process.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardkit import MANIFEST_SUFFIX, expand_patterns, is_url
from wdsloader.errors import ConfigError

__all__ = ["SOURCE_URLS", "MakeSample", "SourceConfig", "default_cache_dir", "source_loader"]

_BUCKET = "https://storage.googleapis.com/webdataset/fake-imagenet"
SOURCE_URLS = _BUCKET + "/imagenet-train-{000000..001281}.tar"
_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def default_cache_dir() -> Path | None:
    """Return the source's cache folder: ``./_cache``, none on Colab."""
    return None if "google.colab" in sys.modules else Path("_cache")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """The source's settings. ``epoch_batches``: batches of one pass over the loader."""

    urls: tuple[str, ...] = (SOURCE_URLS,)
    batch_size: int = 64
    num_workers: int = 4
    cache_dir: Path | None = field(default_factory=default_cache_dir)
    epoch_batches: int = 1282 * 100 // 64
    image_size: int = 224

    def __post_init__(self) -> None:
        if not self.urls:
            raise ConfigError("urls=(): name at least one shard")
        for name in ("batch_size", "epoch_batches", "image_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: must be at least 1")


class MakeSample:
    """The source's ``make_sample``: (transformed picture, label) of a decoded sample. A class, so that it pickles."""

    def __init__(self, image_size: int) -> None:
        from torchvision import transforms

        self._transform: Callable[[Any], Any] = transforms.Compose(
            [
                transforms.RandomResizedCrop(image_size),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(mean=_MEAN, std=_STD),
            ]
        )

    def __call__(self, sample: Mapping[str, Any]) -> tuple[Any, Any]:
        return self._transform(sample["jpg"]), sample["cls"]


def source_loader(config: SourceConfig) -> Iterable[tuple[Any, Any]]:
    """Return the source's loader: float32 (b, 3, size, size), normalized, and int64 (b,) labels.

    Makes the cache folder, as the source does. Needs torchvision and webdataset.
    """
    import webdataset as wds

    cache_dir = None if config.cache_dir is None else str(config.cache_dir)
    if config.cache_dir is not None:
        config.cache_dir.mkdir(parents=True, exist_ok=True)
    trainset = wds.WebDataset(shard_argument(config.urls), resampled=True, cache_dir=cache_dir, shardshuffle=True)
    trainset = trainset.shuffle(1000).decode("pil").map(MakeSample(config.image_size))
    trainset = trainset.batched(config.batch_size)
    trainloader = wds.WebLoader(trainset, batch_size=None, num_workers=config.num_workers)
    trainloader = trainloader.unbatched().shuffle(10).batched(config.batch_size)
    loader: Iterable[tuple[Any, Any]] = trainloader.with_epoch(config.epoch_batches)
    return loader


def shard_argument(patterns: tuple[str, ...]) -> str | list[str]:
    """Return the shards as webdataset takes them: brace patterns as one string, anything else as a list of files.

    ``<a..b>`` becomes ``{a..b}``. Globs, lists and manifests, which webdataset does not know, are expanded here.
    """
    if any(_needs_expansion(pattern) for pattern in patterns):
        return expand_patterns(patterns)
    return "::".join(re.sub(r"<([^<>]*\.\.[^<>]*)>", r"{\1}", pattern) for pattern in patterns)


def _needs_expansion(pattern: str) -> bool:
    if pattern == "-" or pattern.startswith("@") or pattern.endswith(MANIFEST_SUFFIX):
        return True
    return not is_url(pattern) and (any(sign in pattern for sign in "*?[") or Path(pattern).is_dir())
