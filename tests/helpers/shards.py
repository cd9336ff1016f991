"""Build the smallest real shards for tests: a tar of given members, a small JPEG from a seed."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from shardkit import seeded_words

__all__ = ["jpeg_bytes", "write_samples", "write_shard"]


def write_shard(path: Path, members: Sequence[tuple[str, bytes]]) -> Path:
    """Write a ustar archive of the members in the order given, as any packer would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def write_samples(path: Path, count: int, *, first: int = 0, size: tuple[int, int] = (20, 16)) -> Path:
    """Write a shard of samples ``000000..``, numbered from ``first``: a picture each, the number modulo 10 as label."""
    members: list[tuple[str, bytes]] = []
    for number in range(first, first + count):
        members.append((f"{number:06d}.jpg", jpeg_bytes(number, size=size)))
        members.append((f"{number:06d}.cls", str(number % 10).encode()))
    return write_shard(path, members)


def jpeg_bytes(seed: int, *, size: tuple[int, int] = (20, 16)) -> bytes:
    """Return a JPEG of (width, height) pixels: a smooth pattern that differs for every seed."""
    width, height = size
    words = seeded_words(12, key=(seed, "test picture")) & np.uint64(255)
    corners = Image.fromarray(words.astype(np.uint8).reshape(2, 2, 3))
    buffer = io.BytesIO()
    corners.resize((width, height), Image.Resampling.BILINEAR).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()
