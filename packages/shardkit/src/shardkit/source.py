"""Bytes of one shard, read forward: a mapped local file, a gzip stream, or any binary stream.

Owns where the bytes come from and how far reading has come; knows nothing of tar. Compression is told by content,
never by name.
"""

from __future__ import annotations

import gzip
import io
import mmap
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

__all__ = ["ByteSource", "MappedSource", "StreamSource", "open_source", "stream_source"]

GZIP_MAGIC = b"\x1f\x8b"
# 1 MiB: larger pieces do not make a stream faster, and memory stays flat.
_PIECE_BYTES = 1 << 20


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


class MappedSource:
    """Bytes at hand, of a mapped local file or in memory: skipping costs nothing, and their end is known.

    Args: first: the position in the shard of the first of them.
    """

    def __init__(self, mapped: mmap.mmap | bytes, *, first: int = 0) -> None:
        self._mapped = mapped
        self._first = first
        self.position = first
        self.broken: str | None = None
        self.compressed = False

    def take(self, count: int) -> bytes:
        start = self.position - self._first
        piece = self._mapped[start : start + count]
        self.position += len(piece)
        return piece

    def skip(self, count: int) -> int:
        count = min(count, self._first + len(self._mapped) - self.position)
        self.position += count
        return count

    def put_back(self, block: bytes) -> None:
        self.position -= len(block)

    def holds(self, count: int) -> bool:
        return self.position + count <= self._first + len(self._mapped)


class StreamSource:
    """The bytes of a stream that cannot seek: a pipe, standard input, or gzip."""

    def __init__(self, stream: BinaryIO, *, compressed: bool = False) -> None:
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


@contextmanager
def open_source(path: Path | str) -> Iterator[ByteSource]:
    """Open a shard's bytes: a local path, or ``-`` for standard input. Gzip is unpacked on the way.

    Raises: OSError: the file cannot be opened.
    """
    if str(path) == "-":
        yield stream_source(sys.stdin.buffer)
        return
    with open(path, "rb") as file:
        head = file.read(2)
        file.seek(0)
        if head == GZIP_MAGIC or not file.seekable():
            yield stream_source(file)
        elif not head:
            yield MappedSource(b"")
        else:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield MappedSource(mapped)


def stream_source(stream: BinaryIO) -> StreamSource:
    """Return the bytes of a binary stream, unpacked where they are gzip."""
    buffered = io.BufferedReader(stream, _PIECE_BYTES)  # type: ignore[type-var]  # any raw or buffered reader will do
    if buffered.peek(2)[:2] == GZIP_MAGIC:
        return StreamSource(gzip.GzipFile(fileobj=buffered), compressed=True)  # type: ignore[arg-type]  # is one
    return StreamSource(buffered)
