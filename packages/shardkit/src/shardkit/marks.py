"""What is kept of a shard's samples to compare them with those of other shards: 48 bytes a sample, no Python object.

Keys and pictures are known by their XXH3 hash of 128 bits: among a billion, two different ones share a hash with
probability 1e-21. Names are read again from the shard where a finding needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from shardkit.errors import ShardkitError
from shardkit.scan import SampleScan
from shardkit.source import open_source
from shardkit.walk import ShardWalk

__all__ = ["NO_LABEL", "SampleMarks", "key_hash", "mark_samples", "names_at"]

Uint64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]

NO_LABEL = np.iinfo(np.int64).min
_NO_HASH = bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleMarks:
    """The samples of one shard, in order.

    ``keys``, ``pictures``: (n, 2) uint64, a hash each; zeros where there is no picture or it was not read. ``labels``:
    (n,), ``NO_LABEL`` where there is none. ``offsets``: (n,) byte of a sample's first header.
    """

    keys: Uint64s
    pictures: Uint64s
    labels: Int64s
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.offsets)

    def none(self) -> SampleMarks:
        """Return the marks of no samples."""
        return SampleMarks(
            keys=self.keys[:0].copy(),
            pictures=self.pictures[:0].copy(),
            labels=self.labels[:0].copy(),
            offsets=self.offsets[:0].copy(),
        )


def key_hash(key: str) -> bytes:
    """Return the hash of a key, 16 bytes."""
    return xxhash.xxh3_128_digest(key.encode("utf-8", "surrogateescape"))


def mark_samples(samples: Iterable[SampleScan]) -> SampleMarks:
    """Return the marks of the samples of one shard."""
    found = list(samples)
    return SampleMarks(
        keys=_hashes([key_hash(sample.key) for sample in found]),
        pictures=_hashes([sample.picture_hash or _NO_HASH for sample in found]),
        labels=np.array([NO_LABEL if sample.label is None else sample.label for sample in found], np.int64),
        offsets=np.array([sample.parts[0].header_offset for sample in found], np.int64),
    )


def names_at(shard: str, offsets: Sequence[int]) -> list[str | None]:
    """Return the names of the members whose first headers are at these bytes, None where none can be read there.

    The shard is opened once, for all of them; standard input cannot be, and has no names.
    """
    names: dict[int, str] = {}
    if shard != "-":
        try:
            with open_source(shard) as source:
                for offset in sorted(set(offsets)):
                    if source.skip(offset - source.position) < 0 or source.position != offset:
                        break
                    walk = ShardWalk(source, shard=shard, want=lambda _: False)
                    if (found := next(iter(walk), None)) is not None:
                        names[offset] = found[0].name
        except (OSError, ShardkitError):
            pass  # the finding then says the byte alone
    return [names.get(offset) for offset in offsets]


def _hashes(digests: Sequence[bytes]) -> Uint64s:
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
