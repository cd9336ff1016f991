"""One request of an http(s) URL -> a reply whose body can be read: connections, credentials, redirects, statuses.

Owns what an answer means: a body or a part of one, a passing trouble, a final refusal, another file than before. Needs
urllib3. Secrets of the URL appear in no message.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit
from weakref import WeakSet

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    HTTPError,
    IncompleteRead,
    LocationValueError,
    MaxRetryError,
    ProtocolError,
    ResponseError,
)
from urllib3.util import Retry, Timeout, make_headers

from shardkit.errors import RemoteChangedError, RemoteError, printable
from shardkit.remote.patience import PassingError, RemoteLimits

__all__ = ["Reply", "WebPool", "reason_of"]

_RETRIED = frozenset({408, 429, 500, 502, 503, 504})
_REASONS = {
    401: "the server wants credentials",
    403: "access denied; a signed link may have expired",
    404: "no such file",
    410: "the file is gone",
}
_MAX_REDIRECTS = 5
# Kept open for each host; a thread that finds none free opens one more for itself.
_CONNECTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A body, or a part of one.

    ``first``: the byte it begins at. ``num_bytes``: of the whole file, where the server says. ``version``: what names
    the file's state in ``If-Range``; None where parts of the same state cannot be asked for. ``kind``: content type.
    """

    response: urllib3.BaseHTTPResponse
    first: int
    num_bytes: int | None
    version: str | None
    kind: str


class WebPool:
    """Connections that are kept open between requests. Threads may share it.

    Args: ended: see ``Patience``.
    """

    def __init__(self, limits: RemoteLimits, *, ended: threading.Event | None = None) -> None:
        self.limits, self.ended = limits, ended or threading.Event()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        timeout = Timeout(connect=limits.connect_s, read=limits.read_s)
        self._manager = urllib3.PoolManager(timeout=timeout, maxsize=_CONNECTIONS)
        self._manager.pool_classes_by_scheme = _pools_of(self._known)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        self._manager.clear()

    def _known(self, connected: socket.socket) -> None:
        self._sockets.add(connected)
        if self.ended.is_set():
            # It was connecting while the others were shut down.
            connected.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """End what is under way too: who waits for a server, in whatever thread, waits no more."""
        self.ended.set()
        for connected in list(self._sockets):
            # It may have been closed a moment ago.
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
        self.close()

    def ask(self, url: str, *, first: int = 0, stop: int | None = None, version: str | None = None) -> Reply:
        """Ask for a body from byte ``first`` on, up to byte ``stop`` where given; a server may answer with all of it.

        Args: version: the state the file must have.
        Raises: PassingError: worth another try. RemoteChangedError: the file has another state. RemoteError: final.
        """
        try:
            plain, headers = _without_user(url)
        except ValueError as error:
            raise RemoteError(url, f"no usable URL ({error})") from None
        if first or stop is not None:
            headers["Range"] = f"bytes={first}-{'' if stop is None else stop - 1}"
            if version is not None:
                headers["If-Range"] = version
        response = self._sent(url, plain, headers=headers)
        try:
            reply = _reply(response, url=url, first=first)
            if version is not None and reply.version not in (None, version):
                raise RemoteChangedError(url, "the file has changed while it was read. Read it again")
        except BaseException:
            response.close()
            raise
        return reply

    def _sent(self, url: str, plain: str, *, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        # One try at a time (urllib3 would log whole URLs); redirects are followed, and lose the Authorization header
        # where they leave the host.
        once = Retry(total=None, connect=0, read=0, status=0, other=0, redirect=_MAX_REDIRECTS)
        try:
            return self._manager.request(
                "GET", plain, headers=headers, preload_content=False, decode_content=False, retries=once
            )
        except MaxRetryError as error:
            if isinstance(error.reason, ResponseError):
                reason = f"redirected in a circle, or more than {_MAX_REDIRECTS} times"
                raise RemoteError(url, reason) from None
            raise PassingError(reason_of(error, url)) from None
        except (LocationValueError, UnicodeError) as error:
            raise RemoteError(url, f"no usable URL ({type(error).__name__})") from None
        except HTTPError as error:
            raise PassingError(reason_of(error, url)) from None


def _pools_of(known: Callable[[socket.socket], None]) -> dict[str, type[HTTPConnectionPool]]:
    """Return the kinds of pools whose connections make their sockets known: urllib3 gives out none that is in use."""

    class Plain(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            known(self.sock)

    class Secure(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            known(self.sock)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def reason_of(error: HTTPError, url: str) -> str:
    """Return what went wrong, in words without the URL, which urllib3 repeats in its messages."""
    cause: Any = error.reason if isinstance(error, MaxRetryError) and error.reason is not None else error
    if isinstance(cause, ProtocolError) and isinstance(cause.args[-1], IncompleteRead | OSError | HTTPException):
        # What it says of bytes and what we say would be the same.
        broken = cause.args[-1]
        return f"the connection broke ({broken.strerror})" if isinstance(broken, OSError) else "the connection broke"
    text = str(cause.args[0]) if cause.args else ""
    for secret in filter(None, (urlsplit(url).query, urlsplit(url).netloc.rpartition("@")[0])):
        text = text.replace(secret, "***")
    text = printable(re.sub(r"^<?[\w.]*Connection[\w.]*\(.*?\)>?: ", "", text))
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__


def _reply(response: urllib3.BaseHTTPResponse, *, url: str, first: int) -> Reply:
    """Tell what the status means. Raises: PassingError, RemoteChangedError, RemoteError."""
    headers, status = response.headers, response.status
    if status in _RETRIED:
        raise PassingError(f"status {status}", wait_s=_asked_pause_s(response))
    if status == 416:
        raise RemoteChangedError(url, f"the file has changed: it has no byte {first} any more", status=status)
    if status not in (200, 206):
        reason = _REASONS.get(status, "not what a file is answered with")
        raise RemoteError(url, f"status {status}: {reason}", status=status)
    promised = headers.get("Content-Length", "")
    begins, num_bytes = 0, int(promised) if promised.isdecimal() and promised.isascii() else None
    if status == 206:
        found, num_bytes = _content_range(response)
        if found != first:
            raise RemoteError(url, f"answered with bytes from {found} on, not from {first} on", status=status)
        begins = found
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return Reply(response=response, first=begins, num_bytes=num_bytes, version=_version_of(response), kind=kind)


def _version_of(response: urllib3.BaseHTTPResponse) -> str | None:
    """Return what If-Range takes: a strong ETag, or the date of the last change; None where ranges are not served."""
    if response.headers.get("Accept-Ranges", "").lower() == "none":
        return None
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified") or None


def _content_range(response: urllib3.BaseHTTPResponse) -> tuple[int | None, int | None]:
    """Return the first byte and the whole length that a partial reply names, None for what it leaves out."""
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""), re.ASCII)
    return (None, None) if match is None else (int(match[1]), None if match[2] == "*" else int(match[2]))


def _asked_pause_s(response: urllib3.BaseHTTPResponse) -> float | None:
    """Return the seconds that Retry-After asks for, as a number or as a date."""
    try:
        asked_s = Retry().get_retry_after(response)
    except HTTPError:
        return None
    return asked_s if asked_s else None


def _without_user(url: str) -> tuple[str, dict[str, str]]:
    """Return the URL without user and password, and the headers that carry them instead."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    headers = {"Accept-Encoding": "identity"}
    if at:
        headers |= make_headers(basic_auth=unquote(user))
    return urlunsplit((parts.scheme, host, parts.path, parts.query, "")), headers
