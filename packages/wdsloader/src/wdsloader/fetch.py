"""A shard's URL -> a file here, whole or not at all, or a part of it; small documents -> their bytes.

Owns what a download must be - a shard, or JSON - and how often a file that changed meanwhile is begun anew. How bytes
come from elsewhere (retries, ranges, stores, commands) is ``shardkit.remote``'s; where they are kept, ``cache``'s.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import BinaryIO, Protocol
from weakref import WeakSet

from shardkit import (
    RemoteChangedError,
    RemoteError,
    RemoteLimits,
    RemotePool,
    RemoteStream,
    begins_archive,
    is_command,
    is_url,
    mask_url,
    printable,
)
from wdsloader.cache import CacheFill, ShardCache, WantedFile
from wdsloader.config_cache import CacheConfig
from wdsloader.errors import FetchError

__all__ = ["FetchUser", "Fetcher", "as_fetch_error", "is_remote", "mask_url"]

_PIECE_BYTES = 1 << 20
# A tar header: as much as tells a shard from a page.
_HEAD_BYTES = 512
# A file that is replaced again and again while it is fetched is no file to train from.
_TRIES_OF_CHANGED = 3
# What waits for a server is woken at the end. Only a store's own package may go on for a while.
_END_S = 5.0

log = logging.getLogger(__name__)

Kind = Callable[[bytes], bool]


class FetchUser(Protocol):
    """Who has things fetched in the background."""

    def close(self) -> None:
        """Begin nothing any more."""

    def join(self, *, within_s: float) -> None:
        """Wait until what was begun has ended."""


class Fetcher:
    """Brings shards to a folder. It can be pickled; every process opens its own connections.

    Raises, in every method: FetchError.
    """

    def __init__(
        self, config: CacheConfig, *, limits: RemoteLimits | None = None, allow_commands: bool = False
    ) -> None:
        self.cache = ShardCache(config)
        self.pool = RemotePool(limits, allow_commands=allow_commands)
        self._said: set[str] = set()
        self._users: WeakSet[FetchUser] = WeakSet()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_users"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _users=WeakSet())

    def serve(self, user: FetchUser) -> None:
        """Remember who has things fetched in the background, to be closed at the end."""
        self._users.add(user)

    def open(self, wanted: WantedFile) -> BinaryIO:
        """Return the shard's file, fetched first where the cache has none; it stays until it is closed.

        Raises: ConfigError: the cache's limit is below this one shard.
        """
        return os.fdopen(self.cache.get(wanted, lambda fill: self._fill(wanted.url, fill, is_kind=_is_shard)), "rb")

    def document(self, url: str, *, anew: bool = False) -> bytes:
        """Return a small document (an index), fetched once, or anew."""
        wanted = WantedFile(url)
        if anew:
            self.cache.path_of(url).unlink(missing_ok=True)
        with os.fdopen(self.cache.get(wanted, lambda fill: self._fill(url, fill, is_kind=_is_document)), "rb") as file:
            return file.read()

    def read(self, url: str) -> bytes:
        """Return a small document (a manifest), fetched anew each time."""
        with self._opened(url, shard=False) as stream:
            pieces = list(_pieces(stream, url=url, is_kind=_is_document))
        return b"".join(pieces)

    def say_past(self) -> None:
        """Say once that the cache has no room for all that is read at once."""
        self._say(
            "cache",
            f"{self.cache.folder}: the cache's limit of {self.cache.limit()} bytes is less than the shards "
            "that are open at once need: some are read past it, and fetched again each time. Raise the limit, or lower "
            "lanes or spans_per_lane",
        )

    def say_no_parts(self, url: str) -> None:
        """Say once that a server serves no parts of a file."""
        host = mask_url(url).partition("://")[2].partition("/")[0]
        self._say(
            host,
            f"{host}: the server serves no parts of files (no range requests): shards come whole, and the "
            "first batches wait for them",
        )

    def _say(self, about: str, text: str) -> None:
        if about not in self._said:
            self._said.add(about)
            log.warning("%s", text)

    def close(self) -> None:
        """Bring the cache down to its limit, and close the connections that nobody uses."""
        self.cache.trim()
        self.pool.close()

    def stop(self) -> None:
        """Fetch nothing any more; what is under way, in whatever thread, ends with an error."""
        self.cache.ended = True
        self.pool.end()

    def end(self) -> None:
        """Close it for good, and what has things fetched by it: no thread and no unfinished file is left."""
        self.stop()
        for user in list(self._users):
            user.close()
            user.join(within_s=_END_S)
        self.close()

    def _fill(self, url: str, fill: CacheFill, *, is_kind: Kind) -> None:
        """Write all of a URL, from the start again where it changed on the way."""
        for tries_left in reversed(range(_TRIES_OF_CHANGED)):
            try:
                with self._opened(url, shard=is_kind is _is_shard) as stream:
                    if stream.num_bytes is not None:
                        fill.reserve(stream.num_bytes)
                    _write(stream, fill.file, url=url, is_kind=is_kind)
                    if stream.num_bytes is None and is_kind is _is_shard:
                        fill.doubt = _doubt_of(fill.file)
                    return
            except FetchError as error:
                if not isinstance(error.__cause__, RemoteChangedError) or not tries_left:
                    raise

    @contextmanager
    def _opened(self, url: str, *, shard: bool) -> Iterator[RemoteStream]:
        try:
            stream = self.pool.open(url, shard=shard)
        except RemoteError as error:
            raise as_fetch_error(error) from error
        with closing(stream):
            yield stream


def is_remote(url: str) -> bool:
    """Tell whether a shard is named by a URL or a command rather than by a path."""
    return is_url(url) or is_command(url)


def as_fetch_error(error: RemoteError) -> FetchError:
    """Return the error as one of this package."""
    return FetchError(mask_url(error.location), error.reason, status=error.status)


def _write(stream: RemoteStream, file: BinaryIO, *, url: str, is_kind: Kind) -> None:
    file.seek(0)
    for piece in _pieces(stream, url=url, is_kind=is_kind):
        file.write(piece)
    # What was reserved may be more than what came, which is then found to be short.
    file.truncate(file.tell())


def _pieces(stream: RemoteStream, *, url: str, is_kind: Kind) -> Iterator[bytes]:
    """Yield all of a body, once its beginning is of the right kind. Raises: FetchError: it is not, or breaks off."""
    head = b""
    while len(head) < _HEAD_BYTES and (piece := stream.read(_HEAD_BYTES - len(head))):
        head += piece
    if stream.error is None and not is_kind(head):
        wanted = "a tar" if is_kind is _is_shard else "JSON"
        shown = printable(" ".join(head[:100].decode("utf-8", "replace").split()))
        kind = stream.kind or "no content type"
        raise FetchError(mask_url(url), f"got {kind}, not {wanted}; it begins with '{shown}'", status=200)
    yield head
    while piece := stream.read(_PIECE_BYTES):
        yield piece
    if stream.error is not None:
        raise as_fetch_error(stream.error) from stream.error


def _doubt_of(file: BinaryIO) -> str | None:
    """Return why a shard whose length nobody promised may be cut; None where its end can be seen."""
    file.flush()
    descriptor, num_bytes = file.fileno(), file.tell()
    packed = os.pread(descriptor, 2, 0) == b"\x1f\x8b"
    if packed or not os.pread(descriptor, _HEAD_BYTES, max(0, num_bytes - _HEAD_BYTES)).strip(b"\0"):
        return None
    return f"{num_bytes} bytes of unknown length without the end-of-archive marker: it may be cut (WDS005)"


def _is_document(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{"


def _is_shard(head: bytes) -> bool:
    return begins_archive(head)
