"""Whether pieces found in a shard make up a sample that validation has nothing against: by the same rules.

Owns the way from pieces to the facts that rules look at. Reads contents at their offsets, one sample's at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import xxhash

from shardkit.errors import PictureError
from shardkit.keys import LABEL_EXTENSION, SampleKey, is_part_of_sample, picture_extension
from shardkit.labels import parse_label
from shardkit.pictures import MAX_PIXELS, PictureFacts, picture_facts
from shardkit.rules import Finding, check_scan
from shardkit.scan import Expectation, Part, SampleScan, ShardScan
from shardkit.walk import Ending

__all__ = ["Flaw", "Judge", "Piece", "has_all"]

# As in scan: 256 MiB; a header may promise anything.
_MAX_CONTENT_BYTES = 1 << 28
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
        self._max_pixels = max_pixels
        self._decode = decode

    def facts(self, key: str, pieces: Sequence[Piece]) -> SampleScan:
        """Return what the rules look at, of one sample."""
        scan = SampleScan(SampleKey(key), num_places=1)
        pictured = picture_extension({piece.extension for piece in pieces})
        for piece in pieces:
            scan.parts.append(Part(piece.name, piece.extension, piece.header_offset, piece.size))
            if piece.extension == LABEL_EXTENSION:
                content = self._read(piece)
                scan.label_content = b"(%d bytes)" % piece.size if content is None else content[:64]
                scan.label = None if content is None else parse_label(content)
            elif piece.extension == pictured:
                scan.picture = self._picture(piece)
        return scan

    def flaws(self, facts: SampleScan) -> list[Flaw]:
        """Return what makes validation warn of the sample, or call it broken; nothing where it is good."""
        if not any(is_part_of_sample(extension) for extension in facts.extensions):
            return [Flaw("WDS025", "belongs to no sample", None)]
        return [Flaw(f.rule, f.message, f.offset) for f in self._findings([facts])]

    def flaws_together(self, samples: Sequence[SampleScan]) -> dict[int, Flaw]:
        """Return what validation has against good samples in one shard, by the header that it names."""
        return {f.offset: Flaw(f.rule, f.message, f.offset) for f in self._findings(samples) if f.offset is not None}

    def are_equal(self, one: Piece, other: Piece) -> bool:
        """Tell whether two pieces have the same bytes."""
        return one.size == other.size and (one.offset == other.offset or self._hash(one) == self._hash(other))

    def _findings(self, samples: Sequence[SampleScan]) -> list[Finding]:
        scan = ShardScan(shard=self._shard, expected=self._expected, decoded=self._decode, ending=Ending(zero_blocks=2))
        scan.samples.update((sample.key, sample) for sample in samples)
        return [finding for finding in check_scan(scan) if finding.severity != "note"]

    def _picture(self, piece: Piece) -> PictureFacts | PictureError:
        content = self._read(piece)
        if content is None:
            return PictureError(f"{piece.size} bytes, more than a picture may have ({_MAX_CONTENT_BYTES})", "WDS042")
        try:
            return picture_facts(content, max_pixels=self._max_pixels, decode=self._decode)
        except PictureError as error:
            # A new one, without the traceback that would hold on to every broken picture's bytes.
            return PictureError(error.reason, error.rule)

    def _read(self, piece: Piece) -> bytes | None:
        """Return the content, None where it would fill the memory."""
        if piece.size > _MAX_CONTENT_BYTES:
            return None
        data = b""
        while len(data) < piece.size and (
            more := os.pread(self._descriptor, piece.size - len(data), piece.offset + len(data))
        ):
            data += more
        return data

    def _hash(self, piece: Piece) -> bytes:
        state = xxhash.xxh3_128()
        for start in range(piece.offset, piece.offset + piece.size, _PIECE_BYTES):
            count = min(_PIECE_BYTES, piece.offset + piece.size - start)
            state.update(os.pread(self._descriptor, count, start))
        return state.digest()
