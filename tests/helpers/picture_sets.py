"""Small packed datasets of learnable pictures, and a training configuration that runs on them in a second or two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from resnettrain import TrainConfig, resolve_config
from shardkit.fake_imagenet import FakeImageNet
from shardkit.packing.config import PackConfig
from shardkit.packing.layout import ShardPlan
from shardkit.packing.pack import pack
from shardkit.sources import FakeSource

__all__ = ["PictureSet", "make_picture_set", "tiny_config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureSet:
    """A packed dataset: its manifest and its shards."""

    manifest: Path
    shards: tuple[Path, ...]


def make_picture_set(
    folder: Path,
    *,
    counts: Sequence[int],
    split: Literal["train", "val"] = "train",
    num_classes: int = 4,
    labels: Literal["signal", "shuffled"] = "signal",
) -> PictureSet:
    """Pack pictures of 40 x 40 pixels into shards of the given sample counts."""
    pictures = FakeImageNet(
        num_samples=sum(counts), num_classes=num_classes, split=split, size=(40, 40), sizes="fixed", labels=labels
    )
    ends = list(accumulate(counts))
    plan = [
        ShardPlan(f"tiny-{split}-{number:06d}.tar", range(end - count, end))
        for number, (end, count) in enumerate(zip(ends, counts, strict=True))
    ]
    config = PackConfig(folder=folder, prefix=f"tiny-{split}")
    pack(FakeSource(pictures), plan, config=config, on_shard=lambda _: None)
    return PictureSet(manifest=config.manifest_path, shards=tuple(folder / shard.name for shard in plan))


def tiny_config(train: PictureSet, run_dir: Path, *, val: PictureSet | None = None, **flags: Any) -> TrainConfig:
    """Return settings for the tiny model at 32 pixels, batch 16, no workers; flags use __ for the dot of a key."""
    return resolve_config(
        flags={
            "data.urls": [str(train.manifest)],
            "data.val_urls": [str(val.manifest)] if val is not None else None,
            "data.batch_size": 16,
            "data.num_workers": 0,
            "model.name": "tiny",
            "model.image_size": 32,
            "optim.lr": 0.05,
            "schedule.epochs": 2,
            "runtime.device": "cpu",
            "runtime.threads": 1,
            "log.every_s": 0.0,
            "run_dir": run_dir,
            **{key.replace("__", "."): value for key, value in flags.items()},
        }
    )
