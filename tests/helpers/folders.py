"""Image folders to pack, and packing them in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from shardkit import Manifest, PackConfig, Source, open_folder, pack, plan_shards
from tests.helpers.shards import jpeg_bytes

__all__ = ["image_folder", "pack_folder"]


def image_folder(folder: Path, *, classes: tuple[str, ...] = ("n01", "n02", "n03"), per_class: int = 5) -> Path:
    """Make a folder with subfolders of small JPEGs named CLASS_NUMBER.JPEG, all different, and return it."""
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            (folder / name / f"{name}_{number}.JPEG").write_bytes(jpeg_bytes(1000 * label + number))
    return folder


def pack_folder(
    source: Source | Path,
    out: Path,
    *,
    num_shards: int = 3,
    jobs: int = 1,
    on_exists: Literal["fail", "resume", "overwrite"] = "fail",
    on_error: Literal["stop", "skip"] = "stop",
) -> Manifest:
    """Pack an image folder, or another source, into shards of prefix ``t``."""
    opened = open_folder(source) if isinstance(source, Path) else source
    config = PackConfig(folder=out, prefix="t", jobs=jobs, on_exists=on_exists, on_error=on_error)
    plan = plan_shards(opened, prefix="t", num_shards=num_shards)
    return pack(opened, plan, config=config, on_shard=lambda _: None)
