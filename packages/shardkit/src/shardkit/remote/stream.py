"""Shards that are not local files -> a stream of bytes read forward: the web, stores, and commands where allowed.

Owns the choice of the reader; ``web``, ``stores`` and ``commands`` own theirs. A stream never raises once it is open:
it ends, and says in ``failure`` why it ended early. Secrets are masked in every message.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Protocol

from shardkit.errors import RemoteError
from shardkit.locations import is_command, is_web
from shardkit.remote.patience import RemoteLimits

if TYPE_CHECKING:
    from shardkit.remote.web_request import WebPool

__all__ = ["RemotePool", "RemoteStream", "open_remote"]


class RemoteStream(Protocol):
    """Bytes from elsewhere.

    ``first``, ``stop``: where they begin and end (None: at the end of the whole). ``num_bytes``: of the whole, where
    known. ``version``: the state of the whole, with which other parts of the same can be asked for; None where parts
    are not served. ``kind``: the content type, where one is given. ``error``, ``failure``: why they ended early.
    """

    first: int
    stop: int | None
    num_bytes: int | None
    version: str | None
    kind: str
    error: RemoteError | None

    @property
    def failure(self) -> str | None:
        """Why the bytes ended early, in words."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""

    def close(self) -> None:
        """Let go of it; what was not read is given up."""


class RemotePool:
    """What opens shards elsewhere, over connections that are kept open. Threads may share it; it pickles without them.

    Args: allow_commands: run a command (``pipe:cat a.tar``); the caller was told to.
    """

    def __init__(self, limits: RemoteLimits | None = None, *, allow_commands: bool = False) -> None:
        self.limits = limits or RemoteLimits()
        self.allow_commands = allow_commands
        self._ended = threading.Event()
        self._web: WebPool | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return _pool, (self.limits, self.allow_commands)

    def open(self, location: str, *, shard: bool = True) -> RemoteStream:
        """Open a URL or a command. Args: shard: a page of HTML or JSON is an error.

        Raises: RemoteError: nothing can be read from there, or a package that reads it is not installed.
        """
        if is_command(location):
            if not self.allow_commands:
                raise RemoteError(location, "commands are run only where that is allowed")
            from shardkit.remote.commands import CommandStream

            return CommandStream(location)
        return self._opened(location, shard=shard)

    def open_part(self, location: str, *, first: int, stop: int, version: str | None = None) -> RemoteStream:
        """Open the bytes from ``first`` up to ``stop`` of a URL; all of it where the server serves no parts.

        Args: version: the state the whole must have (``RemoteStream.version`` of another part).
        Raises: RemoteChangedError: it has another. RemoteError.
        """
        return self._opened(location, first=first, stop=stop, version=version)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        if self._web is not None:
            self._web.close()

    def end(self) -> None:
        """Close it for good: what other threads are reading by it ends with an error, soon."""
        self._ended.set()
        if self._web is not None:
            self._web.end()

    def _opened(
        self, location: str, *, first: int = 0, stop: int | None = None, version: str | None = None, shard: bool = True
    ) -> RemoteStream:
        if not is_web(location):
            from shardkit.remote.stores import StoreStream

            return StoreStream(location, limits=self.limits, first=first, stop=stop, version=version, ended=self._ended)
        try:
            from shardkit.remote.web import WebStream
            from shardkit.remote.web_request import WebPool
        except ImportError as error:
            package = str(error.name).partition(".")[0]
            reason = f"reading it needs {package}. Install it: pip install 'shardkit[remote]'"
            raise RemoteError(location, reason) from error
        with self._lock:
            self._web = self._web or WebPool(self.limits, ended=self._ended)
        return WebStream(location, pool=self._web, first=first, stop=stop, version=version, shard=shard)


def _pool(limits: RemoteLimits, allow_commands: bool) -> RemotePool:
    return RemotePool(limits, allow_commands=allow_commands)


@contextmanager
def open_remote(
    location: str, *, allow_commands: bool = False, limits: RemoteLimits | None = None
) -> Iterator[RemoteStream]:
    """Open a URL, or a command (``pipe:cat a.tar``) where commands are allowed.

    Raises: RemoteError: nothing can be read from there, or a package that reads it is not installed.
    """
    with closing(RemotePool(limits, allow_commands=allow_commands)) as pool, closing(pool.open(location)) as stream:
        yield stream
