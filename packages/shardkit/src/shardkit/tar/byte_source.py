"""Bytes of one shard, read forward: a local file, a gzip stream, any binary stream, or what lies elsewhere.

Owns where the bytes come from and how far reading has come; knows nothing of tar. Compression is told by content,
never by name. What is no local file comes through ``remote``.
"""

from __future__ import annotations

import functools
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from shardkit.locations import local_path
from shardkit.remote.stream import RemoteStream, open_remote
from shardkit.tar.gunzip import GZIP_MAGIC, MAX_UNPACK_RATIO, GunzipStream

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

__all__ = ["ByteSource", "FileSource", "MemorySource", "StreamSource", "open_source", "stream_source"]

# 1 MiB: larger pieces do not make a stream faster, and memory stays flat.
_PIECE_BYTES = 1 << 20
# Five blocks: the headers of a label, another small part and the next picture, with the contents of the first two.
# Python's own buffer has up to 128 KiB, which every header of a picture would fill anew.
_WINDOW_BYTES = 5 * 512


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


class ByteSource(Protocol):
    """Bytes read forward.

    ``position`` counts bytes handed out or skipped; ``broken`` says why they ended early; ``num_bytes``: of the file as
    stored, where that is known (of a stream: once its end was met); ``gunzip``: what unpacks it, if any.
    """

    position: int
    broken: str | None
    num_bytes: int | None
    gunzip: GunzipStream | None

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
        self.num_bytes: int | None = len(data)
        self.position = first
        self.broken: str | None = None
        self.gunzip: GunzipStream | None = None

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
    """The bytes of a local file of known length. Not mapped: a file that shrinks meanwhile would end the process.

    Reads at places of its own: where the file stands by itself does not matter, and is not kept.
    """

    def __init__(self, file: BinaryIO, *, num_bytes: int) -> None:
        self._read_at = _reader_at(file)
        self._end = num_bytes
        # What was read ahead, where in the file it begins, and what is behind it.
        self._window = b""
        self._first = self._behind = 0
        self.num_bytes: int | None = num_bytes
        self.position = 0
        self.broken: str | None = None
        self.gunzip: GunzipStream | None = None

    def take(self, count: int) -> bytes:
        position = self.position
        behind = position + count
        if behind <= self._behind:
            self.position = behind
            return self._window[position - self._first : behind - self._first]
        piece = self._read(count, position)
        self.position = position + len(piece)
        return piece

    def skip(self, count: int) -> int:
        left = self._end - self.position
        skipped = count if count < left else left  # min() takes as long as all the rest
        self.position += skipped
        return skipped

    def put_back(self, block: bytes) -> None:
        self.position -= len(block)
        if self.position < self._first:
            self._window, self._first, self._behind = b"", self.position, self.position

    def holds(self, count: int) -> bool:
        return self.position + count <= self._end

    def _read(self, count: int, position: int) -> bytes:
        """Read at the position: what is small with what follows it, what is large alone."""
        left = self._end - position
        wanted = min(max(count, _WINDOW_BYTES), left)
        data = self._read_at(wanted, position)
        # One call may return less than asked, also before the end of the file.
        while len(data) < wanted and (piece := self._read_at(wanted - len(data), position + len(data))):
            data += piece
        if count >= _WINDOW_BYTES:
            return data
        self._window, self._first, self._behind = data, position, position + len(data)
        return data[:count]


def _reader_at(file: BinaryIO) -> Callable[[int, int], bytes]:
    """Return what reads (count, offset), at once where the system can do so and the file is none in memory."""

    def read_at(count: int, offset: int) -> bytes:
        file.seek(offset)
        return file.read(count)

    try:
        return functools.partial(os.pread, file.fileno()) if hasattr(os, "pread") else read_at
    except io.UnsupportedOperation:
        return read_at


class StreamSource:
    """The bytes of a stream that cannot seek: a pipe, standard input, gzip, or what comes from elsewhere.

    Args: gunzip: what the stream comes out of, where it is gzip. remote: where the stream's bytes come from, if it can
        tell why they ended early.
    """

    def __init__(
        self,
        stream: _Readable,
        *,
        gunzip: GunzipStream | None = None,
        num_bytes: int | None = None,
        remote: RemoteStream | None = None,
    ) -> None:
        self._stream = stream
        self._remote = remote
        self._returned = b""
        self.num_bytes = num_bytes
        self.position = 0
        self.broken: str | None = None
        self.gunzip = gunzip
        self._received = 0

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

    def holds(self, count: int) -> bool:
        # Nobody knows how much a stream unpacks to.
        return self.gunzip is not None or self.num_bytes is None or self.position + count <= self.num_bytes

    def _read(self, count: int) -> bytes:
        try:
            piece = self._stream.read(count) or b""
        except EOFError:
            self.broken, piece = "the gzip stream ends early", b""
        except (gzip.BadGzipFile, zlib.error) as error:
            self.broken, piece = f"the gzip stream is damaged ({error})", b""
        self._received += len(piece)
        if not piece:
            self._end()
        return piece

    def _end(self) -> None:
        """Note how long the stream was, and why it did not go on."""
        gunzip = self.gunzip
        if gunzip is not None and gunzip.over_limit:
            self.broken = gunzip.excess
        elif self._remote is not None and self._remote.failure is not None:
            # It says more than what gzip makes of it.
            self.broken = self._remote.failure
        elif self.num_bytes is None and (gunzip is None or gunzip.at_end):
            self.num_bytes = self._received if gunzip is None else gunzip.packed_bytes


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
def open_source(
    location: Path | str, *, allow_commands: bool = False, max_unpack_ratio: int = MAX_UNPACK_RATIO
) -> Iterator[ByteSource]:
    """Open a shard's bytes: a local path, ``-`` for standard input, a URL, or a command (``pipe:cat a.tar``).

    Gzip is unpacked on the way.
    Args: allow_commands: run a command; the caller was told to. max_unpack_ratio: gzip that unpacks to more than that
        many times its size, and to more than 256 MiB, is read no further.
    Raises: OSError: the file cannot be opened. RemoteError: nothing can be read from the URL, or commands are not
        allowed.
    """
    place = str(location)
    if place == "-":
        yield stream_source(sys.stdin.buffer, max_unpack_ratio=max_unpack_ratio)
    elif (path := local_path(place)) is None:
        with open_remote(place, allow_commands=allow_commands) as remote:
            yield _unpacked(remote, num_bytes=remote.num_bytes, remote=remote, max_ratio=max_unpack_ratio)
    else:
        with _open_file(path, max_ratio=max_unpack_ratio) as source:
            yield source


@contextmanager
def _open_file(path: Path | str, *, max_ratio: int) -> Iterator[ByteSource]:
    with open(path, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        # Only these have a length: no pipe, no device, no file that the system makes up on reading.
        num_bytes = status.st_size if stat.S_ISREG(status.st_mode) and status.st_size else None
        if num_bytes is not None:
            source = FileSource(file, num_bytes=num_bytes)
            head = source.take(len(GZIP_MAGIC))
            source.put_back(head)
            if head and not head.startswith(GZIP_MAGIC):
                yield source
                return
            file.seek(0)
        yield _unpacked(file, num_bytes=num_bytes, remote=None, max_ratio=max_ratio)


def stream_source(stream: BinaryIO, *, max_unpack_ratio: int = MAX_UNPACK_RATIO) -> StreamSource:
    """Return the bytes of a binary stream, unpacked where they are gzip. The stream is read, never closed."""
    return _unpacked(stream, num_bytes=None, remote=None, max_ratio=max_unpack_ratio)


def _unpacked(stream: _Readable, *, num_bytes: int | None, remote: RemoteStream | None, max_ratio: int) -> StreamSource:
    ahead = b""
    # A pipe may hand out a single byte at a time.
    while len(ahead) < len(GZIP_MAGIC) and (piece := stream.read(len(GZIP_MAGIC) - len(ahead))):
        ahead += piece
    borrowed = _Borrowed(stream, ahead=ahead)
    gunzip = GunzipStream(borrowed, max_ratio=max_ratio) if ahead == GZIP_MAGIC else None
    buffered = io.BufferedReader(borrowed if gunzip is None else gunzip, _PIECE_BYTES)
    return StreamSource(buffered, gunzip=gunzip, num_bytes=num_bytes, remote=remote)
