"""Build the smallest real shards for tests: a tar of given members, header by header where tarfile is too good."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from shardkit import CheckOptions, ShardReport, check_shards, seeded_words
from shardkit.tar.header import build_headers

__all__ = [
    "END_MARKER",
    "Content",
    "Place",
    "check",
    "jpeg_bytes",
    "layout",
    "raw_member",
    "rules_in",
    "sample_members",
    "tar_bytes",
    "tar_entry",
    "write_samples",
    "write_shard",
]

END_MARKER = bytes(1024)
Content = tuple[str, bytes] | tarfile.TarInfo


@dataclass(frozen=True, slots=True)
class Place:
    """Where a member lies: name, byte offsets of its header and content, and its size in bytes, as tarfile reads it."""

    name: str
    header: int
    content: int
    size: int


def tar_bytes(members: Sequence[Content], *, format: int = tarfile.USTAR_FORMAT) -> bytes:
    """Return an archive as tarfile makes it, of whole records of 20 blocks; a TarInfo is a member without bytes."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            tar.addfile(info, io.BytesIO(member[1]))
    return file.getvalue()


def tar_entry(name: str, *, kind: bytes, linkname: str = "") -> tarfile.TarInfo:
    """Return a link, folder, fifo or device for :func:`tar_bytes`."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, linkname
    return info


def write_shard(path: Path, members: Sequence[Content]) -> Path:
    """Write a ustar archive of the members in the order given, as any packer would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar_bytes(members))
    return path


def write_samples(path: Path, count: int, *, first: int = 0, size: tuple[int, int] = (20, 16)) -> Path:
    """Write a shard of samples ``000000..``, numbered from ``first``: a picture each, the number modulo 10 as label."""
    return write_shard(path, sample_members(count, first=first, size=size))


def sample_members(count: int, *, first: int = 0, size: tuple[int, int] = (20, 16)) -> list[tuple[str, bytes]]:
    """Return the members of samples ``000000..``: jpg and cls of each in turn."""
    members: list[tuple[str, bytes]] = []
    for number in range(first, first + count):
        members.append((f"{number:06d}.jpg", jpeg_bytes(number, size=size)))
        members.append((f"{number:06d}.cls", str(number % 10).encode()))
    return members


def jpeg_bytes(seed: int, *, size: tuple[int, int] = (20, 16)) -> bytes:
    """Return a JPEG of (width, height) pixels: a smooth pattern that differs for every seed."""
    width, height = size
    words = seeded_words(12, key=(seed, "test picture")) & np.uint64(255)
    corners = Image.fromarray(words.astype(np.uint8).reshape(2, 2, 3))
    buffer = io.BytesIO()
    corners.resize((width, height), Image.Resampling.BILINEAR).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def layout(data: bytes) -> list[Place]:
    """Return the members of an archive in order, as Python's tarfile finds them."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        return [Place(info.name, info.offset, info.offset_data, info.size) for info in tar]


def raw_member(name: bytes, content: bytes = b"", *, fields: dict[int, bytes] | None = None) -> bytes:
    """Return a header with these fields (byte offset -> bytes) overwritten and its checksum made right, and content.

    The size is the content's unless a field says another.
    """
    header = bytearray(build_headers("x", num_bytes=len(content)))
    for offset, value in {0: name, **(fields or {})}.items():
        header[offset : offset + len(value)] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + content + bytes(-len(content) % 512)


def check(
    path: Path | str, *, num_classes: int | None = None, decode: bool = True, max_pixels: int = 1_000_000
) -> ShardReport:
    """Check one shard, in this process."""
    options = CheckOptions(num_classes=num_classes, decode=decode, max_pixels=max_pixels)
    return next(check_shards([str(path)], options))


def rules_in(report: ShardReport) -> list[str]:
    """Return the rules broken, each once, sorted."""
    return sorted({finding.rule for finding in report.findings})
