"""Whether pieces found in a shard make up a sample that validation has nothing against: by the same rules.

Owns the way from pieces to the facts that rules look at. Reads contents at their offsets, one sample's at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import xxhash

from shardkit.check.rules import check_scan
from shardkit.check.scan import Expectation, Gatherer, ScanOptions, ShardScan
from shardkit.keys import LABEL_EXTENSION, picture_extension
from shardkit.pictures import MAX_PIXELS
from shardkit.tar.walk import Ending, Member

__all__ = ["Flaw", "Judge", "Piece", "has_all"]

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """A member that can be part of a sample; its content may lie elsewhere than behind its header (links)."""

    name: str
    extension: str
    header_offset: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why pieces are no sample that can be kept: the rule, its words, and the header of the piece that it is about."""

    rule: str
    reason: str
    header_offset: int | None


def has_all(extensions: Iterable[str]) -> bool:
    """Tell whether there is a picture and a label among the extensions."""
    found = set(extensions)
    return LABEL_EXTENSION in found and picture_extension(found) is not None


class Judge:
    """Judges the samples of one open file.

    Args: num_classes: labels must be below it. decode: unpack every picture, else look at its header alone.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        shard: str,
        num_classes: int | None = None,
        max_pixels: int = MAX_PIXELS,
        decode: bool = True,
    ) -> None:
        self._descriptor = file.fileno()
        self._shard = shard
        self._expected = Expectation(num_classes=num_classes)
        self._options = ScanOptions(decode=decode, max_pixels=max_pixels)
        # The last hash: a piece may have thousands of doubles.
        self._hashed: tuple[tuple[int, int], bytes] = ((-1, -1), b"")

    def flaws(self, pieces: Sequence[Piece]) -> list[Flaw]:
        """Return what makes validation warn of these as one sample, or call it broken; nothing where it is good."""
        scan = ShardScan(
            shard=self._shard, expected=self._expected, options=self._options, ending=Ending(zero_blocks=2)
        )
        gatherer = Gatherer(scan)
        for piece in pieces:
            member = Member(piece.name, "file", piece.header_offset, piece.offset, piece.size)
            gatherer.add(member, self._read(piece) if gatherer.want(member) else None)
        gatherer.end_sample()
        if not scan.samples:
            return [Flaw("WDS025", "belongs to no sample", None)]
        return [Flaw(f.rule, f.message, f.offset) for f in check_scan(scan) if f.severity != "note"]

    def are_equal(self, one: Piece, other: Piece) -> bool:
        """Tell whether two pieces have the same bytes; quick for many against the same ``other``."""
        return one.size == other.size and (one.offset == other.offset or self._computed_hash(one) == self._hash(other))

    def _read(self, piece: Piece) -> bytes:
        data = b""
        while len(data) < piece.size and (
            more := os.pread(self._descriptor, piece.size - len(data), piece.offset + len(data))
        ):
            data += more
        return data

    def _hash(self, piece: Piece) -> bytes:
        place = piece.offset, piece.size
        if place != self._hashed[0]:
            self._hashed = place, self._computed_hash(piece)
        return self._hashed[1]

    def _computed_hash(self, piece: Piece) -> bytes:
        state = xxhash.xxh3_128()
        for start in range(piece.offset, piece.offset + piece.size, _PIECE_BYTES):
            count = min(_PIECE_BYTES, piece.offset + piece.size - start)
            state.update(os.pread(self._descriptor, count, start))
        return state.digest()
