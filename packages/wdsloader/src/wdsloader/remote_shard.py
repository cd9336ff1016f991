"""One remote shard for a reader of samples: from the cache where it is, else from what of it has arrived.

Owns who brings a shard: the first process that asks does, all of it in the end, into the cache; others wait for it as
long as it makes progress. What the cache has no room for is read past it, through a file without a name. A shard
taken from the cache is held there as long as it is open here.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from contextlib import ExitStack

from shardkit import Sample, mask_url, parse_sample
from wdsloader.ahead import AheadThreads
from wdsloader.arriving import CHUNK_BYTES, ArrivingShard, read_all
from wdsloader.cache import CacheFill, WantedFile
from wdsloader.errors import WdsloaderError
from wdsloader.fetch import Fetcher

__all__ = ["RemoteShard"]

log = logging.getLogger(__name__)

_POLL_S = 0.02


class RemoteShard:
    """Samples of one remote shard by their place. Threads may share it; the one that reads is the one that closes.

    Args: wanted: the shard. num_bytes: its length. threads: what brings the rest of it.
    """

    def __init__(self, wanted: WantedFile, *, num_bytes: int, fetcher: Fetcher, threads: AheadThreads) -> None:
        self._wanted, self._num_bytes = wanted, num_bytes
        self._fetcher, self._threads = fetcher, threads
        self._lock = threading.RLock()
        self._published = threading.Condition(self._lock)
        self._publishing = False
        self._descriptor: int | None = None
        self._arriving: ArrivingShard | None = None
        self._fill: CacheFill | None = None
        self._seen_to = False
        self._retired = False
        self._failure: WdsloaderError | None = None

    def read_sample(self, offset: int, size: int) -> Sample:
        """Return the sample in these bytes. Raises: FetchError. ShardReadError: they are no one sample."""
        if self._failure is not None:
            raise self._failure
        self._open(wait=True)
        arriving, descriptor = self._arriving, self._descriptor
        if arriving is not None:
            if not arriving.has(offset, offset + size):
                with self._threads.reader_waits():
                    arriving.bring(offset, offset + size)
            data = arriving.read(offset, size)
            self._follow(arriving, offset + size)
        else:
            data = b"" if descriptor is None else read_all(descriptor, offset=offset, size=size)
        return parse_sample(data, offset=offset, shard=mask_url(self._wanted.url))

    def bring(self, first: int, stop: int) -> None:
        """Bring these bytes here unless they are, or another process is at the shard. Raises: FetchError."""
        if self._open(wait=False) and (arriving := self._arriving) is not None:
            arriving.bring(first, stop)
            self._see_to_rest(arriving)

    def close_file(self) -> None:
        """Close a file that the cache has, to be opened again by the next read."""
        with self._lock:
            if self._fill is None:
                self._close()

    def retire(self) -> None:
        """Close it once all of it has been brought for the cache; nobody reads it any more."""
        with self._lock:
            self._retired = True
            if self._fill is None:
                self._close()

    def close(self) -> None:
        """Close it; what is not in the cache by now is given up, but for a file that is just being given its name."""
        with self._lock:
            self._retired = True
            while self._publishing:
                self._published.wait()
            fill, self._fill = self._fill, None
            if fill is not None:
                fill.close()
            self._close()

    def _close(self) -> None:
        if self._arriving is not None:
            self._arriving.close()
            self._arriving = None
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self, *, wait: bool) -> bool:
        """Have the cache's file, or begin to bring the shard; tell whether it is so (always, if we wait)."""
        patience_s = self._fetcher.pool.limits.read_s
        last_sign_s = time.monotonic()
        while not self._try_open():
            if not wait:
                return False
            if self._fetcher.cache.progressing(self._wanted, within_s=patience_s):
                last_sign_s = time.monotonic()
            elif time.monotonic() - last_sign_s > patience_s:
                log.warning("%s: another process does not go on with it", mask_url(self._wanted.url))
                with self._lock:
                    self._begin_past()
                return True
            time.sleep(_POLL_S)
        return True

    def _try_open(self) -> bool:
        # Without the lock at first: every read comes here.
        if self._is_open():
            return True
        with self._lock:
            if self._retired:
                return False
            return self._is_open() or self._open_held() or self._begin()

    def _is_open(self) -> bool:
        return self._descriptor is not None or self._arriving is not None

    def _open_held(self) -> bool:
        self._descriptor = self._fetcher.cache.hold(self._wanted)
        return self._descriptor is not None

    def _begin(self) -> bool:
        """Begin to bring the shard; false where another process is at it."""
        fill = self._fetcher.cache.begin(self._wanted)
        if fill is None:
            return False
        with ExitStack() as undo:
            undo.callback(fill.close)
            # It may have been published since we looked.
            if self._open_held():
                return True
            if fill.reserve(self._num_bytes):
                self._fill, self._seen_to = fill, False
                self._arriving = self._arriving_in(fill.file.fileno())
                undo.pop_all()
                return True
        self._fetcher.say_past()
        self._begin_past()
        return True

    def _begin_past(self) -> None:
        """Begin to bring the shard into a file without a name, only what is read of it."""
        with tempfile.TemporaryFile(dir=self._fetcher.cache.folder) as file:
            file.truncate(self._num_bytes)
            self._arriving = self._arriving_in(file.fileno())

    def _arriving_in(self, descriptor: int) -> ArrivingShard:
        pool, own = self._fetcher.pool, os.dup(descriptor)
        return ArrivingShard(self._wanted, num_bytes=self._num_bytes, descriptor=own, pool=pool)

    def _follow(self, arriving: ArrivingShard, position: int) -> None:
        """Have the next chunk brought, and then the rest."""
        stop = min(position + CHUNK_BYTES, self._num_bytes)
        if arriving.lacks(position, stop):
            self._threads.soon(lambda: arriving.bring(position, stop), distance=0)
        self._see_to_rest(arriving)

    def _see_to_rest(self, arriving: ArrivingShard) -> None:
        """Have all of a shard brought that is meant for the cache."""
        if not arriving.serves_parts:
            self._fetcher.say_no_parts(self._wanted.url)
        if self._seen_to:
            return
        with self._lock:
            fill, seen_to = self._fill, self._seen_to
            self._seen_to = True
        if fill is not None and not seen_to:
            self._threads.later(lambda: self._bring_rest(arriving, fill))

    def _bring_rest(self, arriving: ArrivingShard, fill: CacheFill) -> None:
        """Bring one more part of the rest; with the last one, the file gets its name."""
        try:
            more = arriving.bring_more()
        except BaseException:
            # To be begun again with the next read.
            self._seen_to = False
            raise
        if arriving.complete:
            self._publish(arriving, fill)
        elif more and self._fill is fill:
            self._threads.later(lambda: self._bring_rest(arriving, fill))

    def _publish(self, arriving: ArrivingShard, fill: CacheFill) -> None:
        with self._lock:
            if self._fill is not fill:
                return
            self._fill, self._publishing = None, True
        # Not under the lock: a reader goes on meanwhile, and may even close the shard.
        try:
            fill.publish()
            arriving.hold()
        except WdsloaderError as error:
            # What was read of it was wrong, and perhaps nobody reads it again.
            log.error("%s. Samples of it that were delivered may be damaged", error)  # no traceback
            self._failure = error
            self._threads.failure = self._threads.failure or error
        except OSError as error:
            log.warning("%s: cannot be kept in the cache: %s", mask_url(self._wanted.url), error)
        finally:
            fill.close()
            with self._lock:
                self._publishing = False
                self._published.notify_all()
                if self._retired:
                    self._close()
