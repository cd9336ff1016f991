"""The body of an http(s) URL as a stream of bytes that mends itself: read forward, whole or with its failure told.

Owns going on after a break. What was handed out is never handed out again: a body goes on at its next byte (Range, with
If-Range where the server names a version), or is read again from the start and must begin with the same bytes (XXH3).
Needs urllib3.
"""

from __future__ import annotations

import xxhash
from urllib3.exceptions import HTTPError

from shardkit.errors import RemoteChangedError, RemoteError, printable
from shardkit.remote.patience import PassingError, Patience, RemoteLimits
from shardkit.remote.web_request import Reply, WebPool, reason_of
from shardkit.tar.header import BLOCK_BYTES, begins_archive

__all__ = ["WebStream"]

_PIECE_BYTES = 1 << 20
# What servers send in place of a file they do not give.
_PAGES = ("text/html", "application/xhtml+xml", "application/json", "application/xml", "text/xml")


class WebStream:
    """The body of a URL, or the part from byte ``first`` to byte ``stop``; all of it where the server serves no parts.

    ``first``, ``stop``: where the bytes handed out begin and end (None: at the end of the whole). ``num_bytes``: of
    the whole, as the server promised. ``version``: its state, to ask for other parts of the same; None where that is
    not served. ``error``: why the body ended early.

    Args: pool: None: a connection of its own. version: the state the file must have. shard: a page is an error.
    Raises: RemoteError: the server refuses, sends a page in place of the file, or cannot be reached.
        RemoteChangedError: the file has another state.
    """

    def __init__(
        self,
        url: str,
        *,
        pool: WebPool | None = None,
        first: int = 0,
        stop: int | None = None,
        version: str | None = None,
        shard: bool = True,
    ) -> None:
        self._url = url
        self._pool = pool or WebPool(RemoteLimits())
        self._closes_pool = pool is None
        self._shard = shard
        self._patience = Patience(url, self._pool.limits, ended=self._pool.ended)
        self._reply: Reply | None = None
        self._head = b""
        self._digest = xxhash.xxh3_128()
        self._asked = version
        self.stop = stop
        self.first = self._position = first
        self.version: str | None = None
        self.num_bytes: int | None = None
        self.kind = ""
        self.error: RemoteError | None = None
        try:
            self._head = self._next(BLOCK_BYTES) if self.first else self._first_bytes()
        except BaseException:
            self.close()
            raise

    @property
    def failure(self) -> str | None:
        """Why the body ended early, in words."""
        return None if self.error is None else self.error.reason

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end, and none once ``error`` is set."""
        if self._head:
            piece, self._head = self._head[:size], self._head[size:]
            return piece
        if self.error is not None or not size:
            return b""
        try:
            return self._next(min(size, _PIECE_BYTES))
        except RemoteError as error:
            self.error = error
            return b""

    def close(self) -> None:
        """Let go of the body; its connection is kept if all of it was read."""
        if self._reply is not None:
            self._reply.response.close()
        if self._closes_pool:
            self._pool.close()

    def _first_bytes(self) -> bytes:
        """Return as many of the first bytes as tell an archive from a page."""
        head = b""
        while len(head) < BLOCK_BYTES and (piece := self._next(BLOCK_BYTES - len(head))):
            head += piece
        if self._shard and self.kind in _PAGES and head and not begins_archive(head):
            shown = printable(" ".join(head[:100].decode("utf-8", "replace").split()))
            raise RemoteError(self._url, f"got {self.kind}, not a tar; it begins with '{shown}'", status=200)
        return head

    def _next(self, size: int) -> bytes:
        """Return the next bytes, none at the end. Raises: RemoteError: it does not go on."""
        while True:
            try:
                reply = self._reply = self._reply or self._open()
                try:
                    piece = reply.response.read1(size) or b""
                except HTTPError as error:
                    raise PassingError(reason_of(error, self._url)) from None
                if not piece and self._end is not None and self._position < self._end:
                    raise PassingError("the connection broke")
            except PassingError as trouble:
                self._prepare_again(trouble)
            else:
                if piece:
                    # The server goes on where it broke off: however often it does so, that is progress.
                    self._patience.renew()
                self._digest.update(piece)
                self._position += len(piece)
                return piece

    @property
    def _end(self) -> int | None:
        """The byte behind the last one that is wanted, where that is known."""
        if self.stop is None or self.num_bytes is None:
            return self.num_bytes if self.stop is None else self.stop
        return min(self.stop, self.num_bytes)

    def _prepare_again(self, trouble: PassingError) -> None:
        """Wait before the next try, each time longer. Raises: RemoteError: that was the last one."""
        if self._reply is not None:
            self._reply.response.close()
            self._reply = None
        got = "" if self._position == self.first else f"{self._position} of {self._promised()} bytes, then "
        self._patience.wait(trouble, got=got)

    def _open(self) -> Reply:
        """Ask for the body from the next byte on, or from the start where no version is known to go on with."""
        begun = self._position > self.first
        resumable = not begun or self.version is not None
        reply = self._pool.ask(
            self._url,
            first=self._position if resumable else self.first,
            stop=self.stop,
            version=self.version if begun else self._asked,
        )
        try:
            if not begun:
                self._begin(reply)
            elif reply.first == self._position and resumable:
                self._require_same(reply)
            else:
                self._require_same(reply)
                self._read_again(reply)
        except HTTPError as error:
            reply.response.close()
            raise PassingError(reason_of(error, self._url)) from None
        except BaseException:
            reply.response.close()
            raise
        return reply

    def _begin(self, reply: Reply) -> None:
        if reply.first != self.first or (self.stop is not None and reply.response.status == 200):
            # The server serves no parts: here is all of it.
            self.first, self.stop = reply.first, None
            self._position = self.first
        self.num_bytes, self.version, self.kind = reply.num_bytes, reply.version, reply.kind

    def _require_same(self, reply: Reply) -> None:
        if reply.num_bytes is not None and self.num_bytes is not None and reply.num_bytes != self.num_bytes:
            was = f"{self._promised()} bytes at first, now {reply.num_bytes}"
            raise RemoteChangedError(self._url, f"the file has changed while it was read: {was}. Read it again")

    def _read_again(self, reply: Reply) -> None:
        """Pass over what was handed out already. Raises: RemoteChangedError: these are other bytes."""
        digest = xxhash.xxh3_128()
        passed = reply.first
        while passed < self._position:
            # Bytes before the part we want are of no interest; those of it must be the same.
            limit = self.first if passed < self.first else self._position
            piece = reply.response.read1(min(_PIECE_BYTES, limit - passed)) or b""
            if not piece:
                raise PassingError(f"the connection was closed at byte {passed} of a second try")
            if passed >= self.first:
                digest.update(piece)
            passed += len(piece)
        if digest.digest() != self._digest.digest():
            reason = f"the file has changed while it was read: its first {passed} bytes are others now. Read it again"
            raise RemoteChangedError(self._url, reason)

    def _promised(self) -> str:
        return "?" if self.num_bytes is None else str(self.num_bytes)
