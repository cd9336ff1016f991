"""The layout of a packing: how large a shard is, and which samples go into which. Pure; reads no sample.

A size in bytes is that of the finished tar, computed from the members' names and sizes before anything is packed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from shardkit.errors import PackError, counted
from shardkit.sources.source import Source
from shardkit.tar.header import BLOCK_BYTES, HeaderError, build_headers, padded

__all__ = ["ShardPlan", "ShardSize", "parse_shard_size", "plan_shards", "planned_bytes"]

_END_MARKER_BYTES = 2 * BLOCK_BYTES
# Longest name in bytes that is one header block whatever it holds.
_SHORT_NAME = 100
# Six digits: with seven, names would no longer sort by number, and readers take shards by name.
_MAX_SHARDS = 10**6
_UNITS = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_EXAMPLES = "Write 10000 for samples, or 1GiB or 500MB for bytes"


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One shard to write: its file name, and its samples, numbered as the source does."""

    name: str
    samples: range


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSize:
    """How large a shard may be: so many samples, or so many bytes of the finished tar. Exactly one is given."""

    samples: int | None = None
    num_bytes: int | None = None

    def __post_init__(self) -> None:
        if (self.samples is None) == (self.num_bytes is None):
            raise PackError("a shard's size is either a number of samples or a number of bytes")
        if self.samples is not None and self.samples < 1:
            raise PackError(f"{self.samples} samples a shard: at least 1 is needed")
        if self.num_bytes is not None and self.num_bytes < 1:
            raise PackError(f"{self.num_bytes} bytes a shard: at least 1 is needed")


def parse_shard_size(text: str) -> ShardSize:
    """Return the size that ``10000`` (samples) or ``1GiB``, ``500MB`` (bytes) stands for.

    Raises: PackError: neither, or nothing at all.
    """
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?) ?([A-Za-z]*)", text.strip())
    if match is None or (match[2] and match[2] not in _UNITS):
        raise PackError(f"shard size {text!r}: {_EXAMPLES}")
    if match[2]:
        # In whole numbers: 0.1 has no exact float.
        whole, _, fraction = match[1].partition(".")
        return ShardSize(num_bytes=int(whole + fraction) * _UNITS[match[2]] // 10 ** len(fraction))
    if "." in match[1]:
        raise PackError(f"shard size {text!r}: samples are whole. {_EXAMPLES}")
    return ShardSize(samples=int(match[1]))


def plan_shards(
    source: Source, *, prefix: str, num_shards: int | None = None, size: ShardSize | None = None
) -> list[ShardPlan]:
    """Cut the samples into shards: so many even ones (sizes differ by at most one), or full ones and a rest.

    A size in bytes is never exceeded: a shard ends before the sample that would not fit. Where pictures are re-encoded,
    or sources skipped, it is the size from the source's bytes, as nobody knows the others before.
    Raises: PackError: not exactly one of the two given, more shards than samples or than a million, a size in bytes
        where the source does not know its samples' sizes, or a sample that alone is larger.
    """
    if (num_shards is None) == (size is None):
        raise PackError("give either a number of shards or the size of a shard")
    num_samples = len(source)
    if num_samples < 1:
        raise PackError("no pictures to pack")
    if size is None:
        cuts = _even_cuts(num_samples, num_shards=num_shards or 0)
    elif size.samples is not None:
        _require_few(-(-num_samples // size.samples))
        cuts = [*range(0, num_samples, size.samples), num_samples]
    else:
        cuts = [0, *_cuts_by_bytes(source, limit=size.num_bytes or 0), num_samples]
    _require_few(len(cuts) - 1)
    return [
        ShardPlan(f"{prefix}-{number:06d}.tar", range(first, end))
        for number, (first, end) in enumerate(itertools.pairwise(cuts))
    ]


def planned_bytes(source: Source, samples: range) -> int | None:
    """Return the size in bytes of the tar that these samples give; None where the source does not know theirs."""
    total = _END_MARKER_BYTES
    for number in samples:
        num_bytes = _sample_bytes(source, number)
        if num_bytes is None:
            return None
        total += num_bytes
    return total


def _require_few(num_shards: int) -> None:
    if num_shards > _MAX_SHARDS:
        raise PackError(f"{num_shards} shards: at most {_MAX_SHARDS}, numbered with six digits. Make them larger")


def _even_cuts(num_samples: int, *, num_shards: int) -> list[int]:
    if num_shards < 1:
        raise PackError(f"{num_shards} shards: at least 1 is needed")
    if num_samples < num_shards:
        raise PackError(f"{counted(num_samples, 'picture')} cannot fill {num_shards} shards. Ask for fewer shards")
    _require_few(num_shards)
    return [shard * num_samples // num_shards for shard in range(num_shards + 1)]


def _cuts_by_bytes(source: Source, *, limit: int) -> Iterator[int]:
    """Yield the numbers of the samples that begin a further shard."""
    filled = _END_MARKER_BYTES
    for number in range(len(source)):
        num_bytes = _sample_bytes(source, number)
        if num_bytes is None:
            raise PackError(
                "nobody knows the size of these samples before they are made: give the shard size as a number of "
                "samples, such as 1000"
            )
        if _END_MARKER_BYTES + num_bytes > limit:
            raise PackError(
                f"sample {number} alone makes a shard of {_END_MARKER_BYTES + num_bytes} bytes, more than the {limit} "
                "of a shard. Give a larger shard size"
            )
        if filled + num_bytes > limit:
            yield number
            filled = _END_MARKER_BYTES
        filled += num_bytes


def _sample_bytes(source: Source, number: int) -> int | None:
    """Return what a sample takes up in a tar: headers, contents, padding."""
    sizes = source.content_sizes(number)
    if sizes is None:
        return None
    names = source.member_names(number)
    return sum(_headers_bytes(name) + padded(size) for name, size in zip(names, sizes, strict=True))


def _headers_bytes(name: str) -> int:
    if len(name) <= _SHORT_NAME and name.isascii():
        return BLOCK_BYTES
    try:
        return len(build_headers(name, num_bytes=0))
    except HeaderError as error:
        raise PackError(str(error)) from error
