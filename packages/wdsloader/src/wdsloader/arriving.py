"""A remote shard on its way here: a reader waits for the chunks it needs, and for no others.

Owns which bytes are here. Threads bring chunks side by side by range requests, each chunk once, into a file that has
all of the shard's length from the start and holes where nothing has come yet. A server that serves no parts sends the
whole instead; one thread takes it then, and the others wait as it passes by.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
from contextlib import closing

from shardkit import RemoteError, RemotePool, RemoteStream, mask_url
from wdsloader.cache import WantedFile
from wdsloader.errors import FetchError
from wdsloader.fetch import as_fetch_error

__all__ = ["CHUNK_BYTES", "ArrivingShard", "read_all"]

log = logging.getLogger(__name__)

# 1 MiB: some ten pictures, and what a store sends in the time it takes to answer.
CHUNK_BYTES = 1 << 20
# The rest of a shard is asked for in longer parts, which others can still come between.
_RUN_CHUNKS = 4
_PIECE_BYTES = 1 << 18
_LOOK_AGAIN_S = 0.2
_MISSING, _COMING, _HERE = 0, 1, 2


class ArrivingShard:
    """The chunks of one shard in an open file.

    Args: descriptor: of the file, open for reading and writing; ours to close. num_bytes: the shard's length.
    """

    def __init__(self, wanted: WantedFile, *, num_bytes: int, descriptor: int, pool: RemotePool) -> None:
        self._url, self._num_bytes = wanted.url, num_bytes
        self._descriptor, self._pool = descriptor, pool
        self._states = bytearray(-(-num_bytes // CHUNK_BYTES))
        self._changed = threading.Condition()
        self._version: str | None = None
        self._passing = False
        self._active = 0
        self._closed = False
        self._refusals: list[FetchError] = []
        self.serves_parts = True

    @property
    def complete(self) -> bool:
        """Whether all of it is here."""
        return self._states.count(_HERE) == len(self._states)

    def has(self, first: int, stop: int) -> bool:
        """Tell whether these bytes are here."""
        return self._all_here(*self._chunks(first, stop))

    def lacks(self, first: int, stop: int) -> bool:
        """Tell whether any of these bytes is neither here nor on its way."""
        return self._states.find(_MISSING, *self._chunks(first, stop)) >= 0

    def read(self, offset: int, size: int) -> bytes:
        """Return these bytes, brought first if need be. Raises: FetchError."""
        self.bring(offset, offset + size)
        return read_all(self._descriptor, offset=offset, size=size)

    def bring(self, first: int, stop: int) -> None:
        """Wait until these bytes are here; bring those that nobody else is bringing. Raises: FetchError."""
        start, end = self._chunks(first, stop)
        refusals = len(self._refusals)
        while True:
            with self._changed:
                if len(self._refusals) > refusals:
                    # Another thread asked while we waited: the answer would be the same.
                    raise self._refusals[-1]
                while self._passing and not self._all_here(start, end):
                    self._changed.wait()
                if self._all_here(start, end):
                    return
                run = self._take_run(start, end)
                if run is None:
                    self._changed.wait()
                    continue
            self._bring_run(*run)

    def bring_more(self) -> bool:
        """Bring a run of chunks that are still missing; tell whether there is more to do. Raises: FetchError."""
        with self._changed:
            run = None if self._passing or self._closed else self._take_run(0, len(self._states))
            if run is None and not self._closed and not self.complete:
                # Others are bringing what is left.
                self._changed.wait(_LOOK_AGAIN_S)
        if run is not None:
            self._bring_run(*run)
        return not self._closed and not self.complete

    def hold(self) -> None:
        """Turn the lock of an unfinished file into that of a reader, once the file has its name."""
        with self._changed, contextlib.suppress(OSError):
            if not self._closed:
                fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def close(self) -> None:
        """Bring nothing any more; the last thread that is at it closes the file. A second call does nothing."""
        with self._changed:
            if not self._closed:
                self._closed = True
                self._leave()

    def _chunks(self, first: int, stop: int) -> tuple[int, int]:
        return first // CHUNK_BYTES, -(-min(stop, self._num_bytes) // CHUNK_BYTES)

    def _all_here(self, start: int, end: int) -> bool:
        return self._states.count(_HERE, start, end) == end - start

    def _take_run(self, start: int, end: int) -> tuple[int, int] | None:
        """Mark the first run of missing chunks as coming, and return it. Raises: FetchError: it is closed."""
        first = self._states.find(_MISSING, start, end)
        if first < 0:
            return None
        if self._closed:
            raise FetchError(mask_url(self._url), "is read no more")
        last = first
        while last < min(end, first + _RUN_CHUNKS) and self._states[last] == _MISSING:
            self._states[last] = _COMING
            last += 1
        self._active += 1
        return first, last

    def _bring_run(self, start: int, end: int) -> None:
        first, stop = start * CHUNK_BYTES, min(end * CHUNK_BYTES, self._num_bytes)
        try:
            stream = self._pool.open_part(self._url, first=first, stop=stop, version=self._version)
            with closing(stream):
                self._require_length(stream)
                self._version = self._version or stream.version
                if stream.stop is not None:
                    self._take(stream, first=first, stop=stop)
                elif self._begin_passing():
                    self._take(stream, first=0, stop=self._num_bytes)
        except RemoteError as error:
            failure = as_fetch_error(error)
            if failure.status is not None:
                self._refusals.append(failure)
            raise failure from error
        finally:
            self._end_run(start, end)

    def _begin_passing(self) -> bool:
        """Take the whole shard as it comes, unless another thread does. Whether parts are served is found out here."""
        with self._changed:
            self.serves_parts = False
            if self._passing:
                return False
            self._passing = True
            return True

    def _end_run(self, start: int, end: int) -> None:
        with self._changed:
            for chunk in range(start, end):
                if self._states[chunk] == _COMING:
                    self._states[chunk] = _MISSING
            self._active -= 1
            self._leave()
            self._changed.notify_all()

    def _leave(self) -> None:
        if self._closed and not self._active:
            os.close(self._descriptor)

    def _take(self, stream: RemoteStream, *, first: int, stop: int) -> None:
        """Write what comes, and mark each chunk that is whole. Raises: FetchError."""
        try:
            position = first
            while position < stop and not self._closed and (piece := stream.read(_PIECE_BYTES)):
                # More than was promised is nobody's.
                piece = piece[: stop - position]
                _write_all(self._descriptor, piece, offset=position)
                self._mark(position, position + len(piece))
                position += len(piece)
            if stream.error is not None:
                raise as_fetch_error(stream.error) from stream.error
            if position < stop and not self._closed:
                raise FetchError(mask_url(self._url), f"got {position} of {stop} bytes")
            # The end of the body is read too, or its connection could not be used again.
            stream.read(1)
        finally:
            with self._changed:
                self._passing = False
                self._changed.notify_all()

    def _mark(self, first: int, stop: int) -> None:
        done = len(self._states) if stop == self._num_bytes else stop // CHUNK_BYTES
        if done > first // CHUNK_BYTES:
            with self._changed:
                for chunk in range(first // CHUNK_BYTES, done):
                    self._states[chunk] = _HERE
                self._changed.notify_all()

    def _require_length(self, stream: RemoteStream) -> None:
        if stream.num_bytes not in (None, self._num_bytes):
            reason = f"has {stream.num_bytes} bytes, the manifest says {self._num_bytes}: it is stale"
            raise FetchError(mask_url(self._url), reason)


def read_all(descriptor: int, *, offset: int, size: int) -> bytes:
    """Return ``size`` bytes of an open file, fewer only at its end (one call of the system may return less)."""
    data = os.pread(descriptor, size, offset)
    while len(data) < size and (piece := os.pread(descriptor, size - len(data), offset + len(data))):
        data += piece
    return data


def _write_all(descriptor: int, data: bytes, *, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
