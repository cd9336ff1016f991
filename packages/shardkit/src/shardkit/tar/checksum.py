"""Checksums of whole shards: of a file at hand, or of bytes while something else reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import xxhash

from shardkit.tar.byte_source import ByteSource

__all__ = ["Hasher", "HashingSource", "file_checksum"]

_PIECE_BYTES = 1 << 20


class Hasher(Protocol):
    """What xxhash and hashlib make: bytes go in, one digest comes out."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class HashingSource:
    """A source that hashes each of its bytes once while it is read; what is skipped is read for that."""

    def __init__(self, source: ByteSource, *, hashers: tuple[Hasher, ...]) -> None:
        self._source = source
        self._hashers = hashers
        self._hashed = source.position
        self.position = source.position
        self.broken = source.broken
        self.gunzip = source.gunzip
        self.num_bytes = source.num_bytes

    def take(self, count: int) -> bytes:
        piece = self._source.take(count)
        self.position, self.broken = self._source.position, self._source.broken
        # What was put back and taken again is hashed already.
        new = self.position - self._hashed
        if new > 0:
            for hasher in self._hashers:
                hasher.update(piece[-new:] if new < len(piece) else piece)
            self._hashed = self.position
        return piece

    def skip(self, count: int) -> int:
        skipped = 0
        while skipped < count and (piece := self.take(min(count - skipped, _PIECE_BYTES))):
            skipped += len(piece)
        return skipped

    def put_back(self, block: bytes) -> None:
        self._source.put_back(block)
        self.position = self._source.position

    def holds(self, count: int) -> bool:
        return self._source.holds(count)


def file_checksum(path: Path) -> str:
    """Return the XXH3 checksum of a file (128 bits, hex), read in pieces."""
    state = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            state.update(piece)
    return state.hexdigest()
