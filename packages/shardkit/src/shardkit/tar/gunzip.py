"""Unpack a gzip file forward, count its members, and stop where it unpacks to far more than it is worth.

Owns gzip beyond one member; knows nothing of tar. Spec: RFC 1952.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

__all__ = ["GZIP_MAGIC", "MAX_UNPACK_RATIO", "GunzipStream", "unpack_up_to_damage", "unpacks_too_far"]

GZIP_MAGIC = b"\x1f\x8b"

# Pictures do not pack: shards have a ratio of 1.0 to 1.1, raw pixels of 2 to 20. Deflate ends at 1032.
MAX_UNPACK_RATIO = 100
# Below this a ratio says nothing: shards of blank test pictures are small.
_MIN_SUSPECT_BYTES = 1 << 28
_PIECE_BYTES = 1 << 18


def unpacks_too_far(unpacked_bytes: int, *, packed_bytes: int, max_ratio: int = MAX_UNPACK_RATIO) -> bool:
    """Tell whether gzip is a bomb: more than 256 MiB, and more than ``max_ratio`` times the packed bytes."""
    return unpacked_bytes > max(_MIN_SUSPECT_BYTES, max_ratio * packed_bytes)


def unpack_up_to_damage(unpacker: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Unpack byte by byte what lies in front of the damage: of a piece with damage in it, zlib hands out nothing."""
    for value in data:
        try:
            yield unpacker.decompress(bytes((value,)))
        except zlib.error:
            return


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


class GunzipStream(io.RawIOBase):
    """The unpacked bytes of a gzip file or stream, which is read, never closed.

    ``num_members``: begun so far. ``packed_bytes``, ``unpacked_bytes``: so far. ``at_end``: the file had no more bytes.
    ``over_limit``: reading ended, since more than 256 MiB and more than ``max_ratio`` times the packed bytes came out.
    Raises: EOFError: the file ends early. zlib.error, gzip.BadGzipFile: it is damaged. All before that was handed out.
    """

    def __init__(self, file: _Readable, *, max_ratio: int = MAX_UNPACK_RATIO) -> None:
        self._file = file
        self._max_ratio = max_ratio
        self._packed = b""
        self._member: zlib._Decompress | None = None
        # Where damage was met: what is still to be handed out, and the error behind it.
        self._rest = b""
        self._damage: zlib.error | None = None
        self.num_members = 0
        self.packed_bytes = 0
        self.unpacked_bytes = 0
        self.at_end = False
        self.over_limit = False

    @property
    def excess(self) -> str:
        """What is over the limit, in words."""
        ratio = self.unpacked_bytes // max(self.packed_bytes, 1)
        return (
            f"{self.packed_bytes} bytes unpack to {self.unpacked_bytes} and more, {ratio} times as many: reading "
            "stopped there"
        )

    def readable(self) -> bool:
        """Tell that this can be read."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Fill the buffer as far as one step of unpacking goes, and return the number of bytes; 0 at the end."""
        view = memoryview(buffer).cast("B")
        while not self.over_limit and (piece := self._rest[: len(view)] or self._unpack(len(view))) is not None:
            self._rest = self._rest[len(piece) :]
            if piece:
                self._count(len(piece))
                view[: len(piece)] = piece
                return len(piece)
        return 0

    def _unpack(self, count: int) -> bytes | None:
        """Unpack on, to no more than so many bytes; None at the end of the file."""
        if self._damage is not None:
            raise self._damage
        if (member := self._current()) is None:
            return None
        if not self._packed and not self._refill():
            raise EOFError("the file ends within a gzip member")
        before = member.copy()
        try:
            piece = member.decompress(self._packed, count)
        except zlib.error as error:
            self._damage, self._rest = error, b"".join(unpack_up_to_damage(before, self._packed))
            return b""
        self._packed = member.unused_data if member.eof else member.unconsumed_tail
        if member.eof:
            self._member = None
        return piece

    def _current(self) -> zlib._Decompress | None:
        """Return the member that is being unpacked, or the next; None at the end of the file."""
        if self._member is None:
            # Zeros may fill up the last block of a tape.
            while self.num_members and self._packed and not self._packed.strip(b"\0"):
                self._packed = self._more()
            if self.num_members:
                self._packed = self._packed.lstrip(b"\0")
            if not self._packed and not self._refill():
                return None
            if len(self._packed) < len(GZIP_MAGIC):
                self._packed += self._more()
            if not self._packed.startswith(GZIP_MAGIC):
                raise gzip.BadGzipFile(f"other bytes follow it, beginning with {self._packed[:8]!r}")
            self._member = zlib.decompressobj(wbits=31)
            self.num_members += 1
        return self._member

    def _refill(self) -> bool:
        self._packed = self._more()
        return bool(self._packed)

    def _more(self) -> bytes:
        packed = self._file.read(_PIECE_BYTES) or b""
        self.packed_bytes += len(packed)
        self.at_end = not packed
        return packed

    def _count(self, num_bytes: int) -> None:
        self.unpacked_bytes += num_bytes
        used = self.packed_bytes - len(self._packed)
        self.over_limit = unpacks_too_far(self.unpacked_bytes, packed_bytes=used, max_ratio=self._max_ratio)
