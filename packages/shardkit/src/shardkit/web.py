"""The body of an http(s) URL as a stream of bytes that mends itself: read forward, whole or with its failure told.

Owns retries, time-outs, and going on after a break. What was handed out is never handed out again: a body goes on at
its next byte (Range, with If-Range where the server names a version), or is read again from the start and must begin
with the same bytes (XXH3). Needs urllib3.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import urllib3
import xxhash
from urllib3.exceptions import (
    HTTPError,
    IncompleteRead,
    LocationValueError,
    MaxRetryError,
    ProtocolError,
    ResponseError,
)
from urllib3.util import Retry, Timeout, make_headers

from shardkit.errors import RemoteError, printable
from shardkit.header import BLOCK_BYTES, HeaderError, parse_header
from shardkit.locations import mask_url

__all__ = ["WebLimits", "WebStream"]

log = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 20
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})
_REASONS = {
    401: "the server wants credentials",
    403: "access denied; a signed link may have expired",
    404: "no such file",
    410: "the file is gone",
}
# What servers send in place of a file they do not give.
_PAGES = ("text/html", "application/xhtml+xml", "application/json", "application/xml", "text/xml")
_MAX_REDIRECTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """How long to wait, in seconds, and how often to try again before a body must have gone on."""

    connect_s: float = 10.0
    read_s: float = 60.0
    retries: int = 5
    backoff_s: float = 0.5
    longest_wait_s: float = 60.0


class _PassingError(Exception):
    """Something that may be gone at the next try, in words; ``wait_s``: the pause that the server asks for."""

    def __init__(self, reason: str, *, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class WebStream:
    """The body of a URL. ``num_bytes`` is what the server promised; ``failure`` says why the body ended early.

    Raises: RemoteError: the server refuses, sends a page in place of the file, or cannot be reached.
    """

    def __init__(self, url: str, *, limits: WebLimits | None = None) -> None:
        self._url = url
        self._limits = limits or WebLimits()
        self._pool = urllib3.PoolManager(
            timeout=Timeout(connect=self._limits.connect_s, read=self._limits.read_s), maxsize=1
        )
        self._response: urllib3.BaseHTTPResponse | None = None
        self._head = b""
        self._digest = xxhash.xxh3_128()
        self._version: str | None = None
        self._position = 0
        self._tries_left = self._limits.retries
        self.num_bytes: int | None = None
        self.failure: str | None = None
        try:
            self._head = self._first_bytes()
        except BaseException:
            self.close()
            raise

    def read(self, size: int, /) -> bytes:
        if self._head:
            piece, self._head = self._head[:size], self._head[size:]
            return piece
        if self.failure is not None or not size:
            return b""
        try:
            return self._next(min(size, _PIECE_BYTES))
        except RemoteError as error:
            self.failure = error.reason
            return b""

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._pool.clear()

    def _first_bytes(self) -> bytes:
        """Return as many of the first bytes as tell an archive from a page."""
        head = b""
        while len(head) < BLOCK_BYTES and (piece := self._next(BLOCK_BYTES - len(head))):
            head += piece
        kind = "" if self._response is None else self._response.headers.get("Content-Type", "")
        kind = kind.partition(";")[0].strip().lower()
        if kind in _PAGES and head and not _begins_archive(head):
            shown = printable(" ".join(head[:100].decode("utf-8", "replace").split()))
            raise RemoteError(self._url, f"got {kind}, not a tar; it begins with '{shown}'")
        return head

    def _next(self, size: int) -> bytes:
        """Return the next bytes, none at the end. Raises: RemoteError: it does not go on."""
        while True:
            try:
                if self._response is None:
                    self._response = self._open()
                piece = self._response.read1(size) or b""
                if not piece and self.num_bytes is not None and self._position < self.num_bytes:
                    raise _PassingError("the connection broke")
            except HTTPError as error:
                self._prepare_again(_PassingError(_reason_of(error, self._url)))
            except _PassingError as trouble:
                self._prepare_again(trouble)
            else:
                self._digest.update(piece)
                self._position += len(piece)
                return piece

    def _prepare_again(self, trouble: _PassingError) -> None:
        """Wait before the next try, each time longer. Raises: RemoteError: that was the last one."""
        got = "" if not self._position else f"{self._position} of {self._promised()} bytes, then "
        if not self._tries_left:
            tries = self._limits.retries + 1
            raise RemoteError(self._url, f"{got}{trouble} (gave up after {tries} tries)")
        log.warning("%s: %s%s; trying again (%d tries left)", mask_url(self._url), got, trouble, self._tries_left)
        if self._response is not None:
            self._response.close()
            self._response = None
        wait_s = self._limits.backoff_s * 2.0 ** (self._limits.retries - self._tries_left)
        self._tries_left -= 1
        time.sleep(min(wait_s if trouble.wait_s is None else trouble.wait_s, self._limits.longest_wait_s))

    def _open(self) -> urllib3.BaseHTTPResponse:
        """Ask for the body from the next byte on, or from the start where no version is known to go on with."""
        plain, headers = _without_user(self._url)
        if self._position and self._version is not None:
            headers |= {"Range": f"bytes={self._position}-", "If-Range": self._version}
        response = self._request(plain, headers)
        try:
            self._accept(response)
        except BaseException:
            response.close()
            raise
        return response

    def _request(self, plain: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        # One try at a time (urllib3 would log whole URLs); redirects are followed, and lose the Authorization header
        # where they leave the host.
        once = Retry(total=None, connect=0, read=0, status=0, other=0, redirect=_MAX_REDIRECTS)
        try:
            return self._pool.request(
                "GET", plain, headers=headers, preload_content=False, decode_content=False, retries=once
            )
        except MaxRetryError as error:
            if isinstance(error.reason, ResponseError):
                reason = f"redirected in a circle, or more than {_MAX_REDIRECTS} times"
                raise RemoteError(self._url, reason) from None
            raise
        except (LocationValueError, UnicodeError) as error:
            raise RemoteError(self._url, f"no usable URL ({type(error).__name__})") from None

    def _accept(self, response: urllib3.BaseHTTPResponse) -> None:
        """Make sure that the reply is the body we want, at the byte we are at."""
        if response.status in _RETRIED:
            raise _PassingError(f"status {response.status}", wait_s=_asked_pause_s(response))
        if response.status == 416 and self._position:
            raise RemoteError(self._url, f"the file has changed: it has no byte {self._position} any more")
        if response.status == 206 and self._position and self._version is not None:
            self._require_same(_content_range(response), start=self._position)
            # The server goes on where it broke off: however often it does so, that is progress.
            self._tries_left = self._limits.retries
            return
        if response.status != 200:
            reason = _REASONS.get(response.status, "not what a file is answered with")
            raise RemoteError(self._url, f"status {response.status}: {reason}")
        promised = response.headers.get("Content-Length", "")
        num_bytes = int(promised) if promised.isdecimal() and promised.isascii() else None
        if self._position:
            self._require_same((0, num_bytes), start=0)
            self._read_again(response)
            return
        self.num_bytes = num_bytes
        self._version = _version_of(response)

    def _require_same(self, found: tuple[int | None, int | None], *, start: int) -> None:
        first, num_bytes = found
        if first != start or (num_bytes is not None and self.num_bytes is not None and num_bytes != self.num_bytes):
            length = "?" if num_bytes is None else num_bytes
            reason = f"the file has changed while it was read: {self._promised()} bytes at first, now {length}"
            raise RemoteError(self._url, f"{reason}. Read it again")

    def _read_again(self, response: urllib3.BaseHTTPResponse) -> None:
        """Pass over what was handed out already. Raises: RemoteError: these are other bytes."""
        digest = xxhash.xxh3_128()
        passed = 0
        while passed < self._position:
            piece = response.read1(min(_PIECE_BYTES, self._position - passed)) or b""
            if not piece:
                raise _PassingError(f"the connection was closed at byte {passed} of a second try")
            digest.update(piece)
            passed += len(piece)
        if digest.digest() != self._digest.digest():
            reason = f"the file has changed while it was read: its first {passed} bytes are others now. Read it again"
            raise RemoteError(self._url, reason)

    def _promised(self) -> str:
        return "?" if self.num_bytes is None else str(self.num_bytes)


def _begins_archive(head: bytes) -> bool:
    """Tell whether the bytes begin like a tar (or its end marker), or like gzip."""
    if head.startswith(b"\x1f\x8b"):
        return True
    if len(head) < BLOCK_BYTES:
        return False
    try:
        parse_header(head[:BLOCK_BYTES])
    except HeaderError:
        return not head.strip(b"\0")
    return True


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


def _reason_of(error: HTTPError, url: str) -> str:
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
