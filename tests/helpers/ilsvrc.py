"""Archives as ILSVRC2012 has them, with few small pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.helpers.shards import jpeg_bytes, write_shard

__all__ = ["class_tar", "train_archive", "val_archive", "wnid_of"]


def wnid_of(short: str) -> str:
    """Return a WordNet id of eight digits that sorts as the short one does: ``n02`` -> ``n02000000``."""
    return short.ljust(9, "0")


def class_tar(path: Path, wnid: str, count: int) -> bytes:
    """Return the tar of one class; the file at ``path`` is used to make it, and gone afterwards."""
    first = 100 * int(wnid[1:3])
    data = write_shard(path, [(f"{wnid}_{n}.JPEG", jpeg_bytes(first + n)) for n in range(count)]).read_bytes()
    path.unlink()
    return data


def train_archive(path: Path, counts: Mapping[str, int]) -> Path:
    """Write a train archive of class tars in the order given, so many pictures in each."""
    members = [
        (f"{wnid_of(short)}.tar", class_tar(path.with_name("class.tar"), wnid_of(short), count))
        for short, count in counts.items()
    ]
    return write_shard(path, members)


def val_archive(path: Path, count: int) -> Path:
    """Write a val archive of so many pictures, numbered from 1, the last first."""
    numbers = range(count, 0, -1)
    return write_shard(path, [(f"ILSVRC2012_val_{number:08d}.JPEG", jpeg_bytes(number)) for number in numbers])
