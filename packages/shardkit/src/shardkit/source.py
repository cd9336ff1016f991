"""Bytes of one shard, read forward: a local file, a gzip stream, or any binary stream.

Owns where the bytes come from and how far reading has come; knows nothing of tar. Compression is told by content,
never by name.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

__all__ = ["ByteSource", "FileSource", "MemorySource", "StreamSource", "open_source", "stream_source"]

GZIP_MAGIC = b"\x1f\x8b"
# 1 MiB: larger pieces do not make a stream faster, and memory stays flat.
_PIECE_BYTES = 1 << 20


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


class ByteSource(Protocol):
    """Bytes read forward. ``position`` counts bytes handed out or skipped; ``broken`` says why they ended early."""

    position: int
    broken: str | None
    compressed: bool

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes, fewer only at the end."""

    def skip(self, count: int) -> int:
        """Pass over ``count`` bytes and return how many there were."""

    def put_back(self, block: bytes) -> None:
        """Make the bytes taken last the next ones again."""

    def holds(self, count: int) -> bool:
        """Tell whether ``count`` more bytes can be there; a stream cannot know and says yes."""


class MemorySource:
    """Bytes at hand: skipping costs nothing, and their end is known.

    Args: first: the position in the shard of the first of them.
    """

    def __init__(self, data: bytes, *, first: int = 0) -> None:
        self._data = data
        self._first = first
        self.position = first
        self.broken: str | None = None
        self.compressed = False

    def take(self, count: int) -> bytes:
        start = self.position - self._first
        piece = self._data[start : start + count]
        self.position += len(piece)
        return piece

    def skip(self, count: int) -> int:
        count = min(count, self._first + len(self._data) - self.position)
        self.position += count
        return count

    def put_back(self, block: bytes) -> None:
        self.position -= len(block)

    def holds(self, count: int) -> bool:
        return self.position + count <= self._first + len(self._data)


class FileSource:
    """The bytes of a local file of known length. Not mapped: a file that shrinks meanwhile would end the process."""

    def __init__(self, file: BinaryIO, *, num_bytes: int) -> None:
        self._file = file
        self._num_bytes = num_bytes
        self.position = 0
        self.broken: str | None = None
        self.compressed = False

    def take(self, count: int) -> bytes:
        piece = self._file.read(min(count, self._num_bytes - self.position))
        self.position += len(piece)
        return piece

    def skip(self, count: int) -> int:
        count = min(count, self._num_bytes - self.position)
        self.position = self._file.seek(self.position + count)
        return count

    def put_back(self, block: bytes) -> None:
        self.position = self._file.seek(self.position - len(block))

    def holds(self, count: int) -> bool:
        return self.position + count <= self._num_bytes


class StreamSource:
    """The bytes of a stream that cannot seek: a pipe, standard input, or gzip."""

    def __init__(self, stream: _Readable, *, compressed: bool = False) -> None:
        self._stream = stream
        self._returned = b""
        self.position = 0
        self.broken: str | None = None
        self.compressed = compressed

    def take(self, count: int) -> bytes:
        pieces, self._returned = [self._returned[:count]], self._returned[count:]
        missing = count - len(pieces[0])
        while missing:
            piece = self._read(min(missing, _PIECE_BYTES))
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        self.position += count - missing
        return b"".join(pieces) if len(pieces) > 1 else pieces[0]

    def skip(self, count: int) -> int:
        skipped = 0
        while skipped < count:
            piece = self.take(min(count - skipped, _PIECE_BYTES))
            if not piece:
                break
            skipped += len(piece)
        return skipped

    def put_back(self, block: bytes) -> None:
        self._returned = block + self._returned
        self.position -= len(block)

    def holds(self, count: int) -> bool:  # noqa: ARG002  # nobody knows how long a stream is
        return True

    def _read(self, count: int) -> bytes:
        try:
            return self._stream.read(count) or b""
        except EOFError:
            self.broken = "the gzip stream ends early"
        except (gzip.BadGzipFile, zlib.error) as error:
            self.broken = f"the gzip stream is damaged ({error})"
        return b""


class _Borrowed(io.RawIOBase):
    """A stream of somebody else's: what was read ahead comes first, and closing this leaves the stream open."""

    def __init__(self, stream: _Readable, *, ahead: bytes) -> None:
        self._stream = stream
        self._ahead = ahead

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer).cast("B")
        piece = self._ahead[: len(view)] or self._stream.read(len(view)) or b""
        self._ahead = self._ahead[len(view) :]
        view[: len(piece)] = piece
        return len(piece)


@contextmanager
def open_source(path: Path | str) -> Iterator[ByteSource]:
    """Open a shard's bytes: a local path, or ``-`` for standard input. Gzip is unpacked on the way.

    Raises: OSError: the file cannot be opened.
    """
    if str(path) == "-":
        yield stream_source(sys.stdin.buffer)
        return
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        # Only these have a length: no pipe, no device, no file that the system makes up on reading.
        head = file.peek(len(GZIP_MAGIC)) if stat.S_ISREG(status.st_mode) and status.st_size else b""
        if not head or head.startswith(GZIP_MAGIC):
            yield stream_source(file)
        else:
            yield FileSource(file, num_bytes=status.st_size)


def stream_source(stream: BinaryIO) -> StreamSource:
    """Return the bytes of a binary stream, unpacked where they are gzip. The stream is read, never closed."""
    ahead = b""
    # A pipe may hand out a single byte at a time.
    while len(ahead) < len(GZIP_MAGIC) and (piece := stream.read(len(GZIP_MAGIC) - len(ahead))):
        ahead += piece
    buffered = io.BufferedReader(_Borrowed(stream, ahead=ahead), _PIECE_BYTES)
    if ahead == GZIP_MAGIC:
        return StreamSource(gzip.GzipFile(fileobj=buffered, mode="rb"), compressed=True)
    return StreamSource(buffered)
