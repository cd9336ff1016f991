"""A shard's location -> a local file: a path as it is, an http(s) URL through the cache, whole or not at all.

Owns retries, time-outs and what a server may answer: a short body is fetched again, 403 and 404 are final, a page of
HTML is no shard. Secrets in a URL (user, password, query values) are masked in every message.
"""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit, urlunsplit

import urllib3
from urllib3.exceptions import HTTPError, LocationValueError, MaxRetryError, ResponseError
from urllib3.util import Retry, Timeout, make_headers

from shardkit import mask_url
from wdsloader.cache import ShardCache
from wdsloader.errors import FetchError

__all__ = ["FetchLimits", "Fetcher", "is_remote", "mask_url"]

log = logging.getLogger(__name__)

# Whether the first bytes of a body can begin what was asked for.
Check = Callable[[bytes], bool]

_PIECE_BYTES = 1 << 20
# A tar header; a body that breaks off before that is short, not of the wrong kind.
_HEAD_BYTES = 512
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})
_REASONS = {
    401: "the server wants credentials",
    403: "access denied; a signed link may have expired",
    404: "no such file",
    410: "the file is gone",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How long to wait and how often to try: seconds, and retries after the first try."""

    connect_s: float = 10.0
    read_s: float = 60.0
    retries: int = 5
    backoff_s: float = 0.5
    longest_wait_s: float = 60.0


class Fetcher:
    """Brings shards to a folder. It can be pickled; every process opens its own connections.

    Raises, in every method: FetchError.
    """

    def __init__(self, folder: Path, *, limits: FetchLimits | None = None) -> None:
        self.cache = ShardCache(folder)
        self.limits = limits or FetchLimits()
        self._pool: urllib3.PoolManager | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"cache": self.cache, "limits": self.limits, "_pool": None}

    def local_path(self, url: str, *, num_bytes: int | None = None) -> Path:
        """Return the local file of a shard, fetched first where it is remote.

        Args: num_bytes: the length the shard must have, where that is known.
        """
        if not is_remote(url):
            return Path(url)

        def fill(file: BinaryIO) -> None:
            self._transfer(url, file, check=_check_shard)
            if num_bytes is not None and file.tell() != num_bytes:
                raise FetchError(mask_url(url), f"got {file.tell()} bytes, the manifest says {num_bytes}: it is stale")

        return self.cache.get(url, fill, num_bytes=num_bytes)

    def document(self, url: str, *, anew: bool = False) -> Path:
        """Return the local file of a small remote document (an index), fetched once, or anew."""
        if anew:
            self.cache.path_of(url).unlink(missing_ok=True)
        return self.cache.get(url, lambda file: self._transfer(url, file, check=_check_document))

    def read(self, url: str) -> bytes:
        """Return a small remote document (a manifest), fetched anew each time."""
        buffer = io.BytesIO()
        self._transfer(url, buffer, check=_check_document)
        return buffer.getvalue()

    def _transfer(self, url: str, file: BinaryIO, *, check: Check) -> None:
        """Try until a whole body is written; back off between tries, and say each retry in one log line."""
        retry = Retry(
            total=self.limits.retries,
            backoff_factor=self.limits.backoff_s,
            backoff_jitter=self.limits.backoff_s / 2,
        )
        while True:
            file.seek(0)
            file.truncate()
            response: urllib3.BaseHTTPResponse | None = None
            try:
                response = self._open(url)
                if response.status not in _RETRIED:
                    _receive(response, file, url=url, check=check)
                    return
                reason = f"status {response.status}"
            except HTTPError as error:
                reason = _reason_of(error, url)
            finally:
                if response is not None:
                    response.close()  # a body read to its end has gone back to the pool already
            try:
                retry = retry.increment("GET", "/", error=HTTPError(reason))
            except MaxRetryError:
                status = None if response is None else response.status
                tries = self.limits.retries + 1
                raise FetchError(mask_url(url), f"{reason} (gave up after {tries} tries)", status=status) from None
            log.warning("%s: %s; trying again (%d tries left)", mask_url(url), reason, int(retry.total or 0) + 1)
            asked_s = None if response is None else retry.get_retry_after(response)
            time.sleep(min(asked_s or retry.get_backoff_time(), self.limits.longest_wait_s))

    def _open(self, url: str) -> urllib3.BaseHTTPResponse:
        if self._pool is None:
            self._pool = urllib3.PoolManager(
                timeout=Timeout(connect=self.limits.connect_s, read=self.limits.read_s), maxsize=4
            )
        plain, headers = _without_user(url)
        # One try at a time (_transfer repeats, and urllib3 would log whole URLs); redirects are followed, and lose the
        # Authorization header where they leave the host.
        once = Retry(total=None, connect=0, read=0, status=0, other=0, redirect=5)
        try:
            return self._pool.request(
                "GET", plain, headers=headers, preload_content=False, decode_content=False, retries=once
            )
        except MaxRetryError as error:
            if isinstance(error.reason, ResponseError):
                raise FetchError(mask_url(url), f"redirected in a circle, or too often ({error.reason})") from None
            raise
        except LocationValueError as error:
            raise FetchError(mask_url(url), f"no usable URL: {type(error).__name__}") from None


def _receive(response: urllib3.BaseHTTPResponse, file: BinaryIO, *, url: str, check: Check) -> None:
    """Write the body of a reply. Raises: FetchError: final; HTTPError: worth another try."""
    if response.status != 200:
        reason = _REASONS.get(response.status, "not what a file is answered with")
        raise FetchError(mask_url(url), f"status {response.status}: {reason}", status=response.status)
    promised = response.headers.get("Content-Length", "")
    head = b""
    try:
        while piece := response.read(_PIECE_BYTES):
            if len(head) < _HEAD_BYTES:
                head += piece[:_HEAD_BYTES]
                if len(head) >= _HEAD_BYTES:
                    _require_kind(head, response, url=url, check=check)
            file.write(piece)
    except HTTPError as error:
        cut = f"{file.tell()} of {promised} bytes, then " if promised else ""
        raise HTTPError(f"{cut}{_reason_of(error, url)}") from None
    if promised.isdigit() and file.tell() != int(promised):
        raise HTTPError(f"{file.tell()} of {promised} bytes")
    if len(head) < _HEAD_BYTES:
        _require_kind(head, response, url=url, check=check)


def _require_kind(head: bytes, response: urllib3.BaseHTTPResponse, *, url: str, check: Check) -> None:
    """Refuse a body that begins as what was asked for never does."""
    if not check(head):
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip() or "no content type"
        wanted = "a tar" if check is _check_shard else "JSON"
        shown = " ".join(head[:100].decode("utf-8", "replace").split())
        reason = f"got {kind}, not {wanted}; it begins with {shown!r}"
        raise FetchError(mask_url(url), reason, status=response.status)


def is_remote(url: str) -> bool:
    """Tell whether a shard is named by an http(s) URL rather than by a path."""
    return url.startswith(("http://", "https://"))


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
    text = str(cause.args[0]) if cause.args else ""
    for secret in filter(None, (urlsplit(url).query, urlsplit(url).netloc.rpartition("@")[0])):
        text = text.replace(secret, "***")
    text = re.sub(r"^<?[\w.]*Connection[\w.]*\(.*?\)>?: ", "", text)
    if type(cause) is HTTPError:
        return text  # our own words
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__


def _check_document(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{"


def _check_shard(head: bytes) -> bool:
    """Tell whether the bytes begin with a tar header whose checksum is right, or with an end marker, or are gzip."""
    block = head[:_HEAD_BYTES]
    if block[:2] == b"\x1f\x8b" or (len(block) == _HEAD_BYTES and not block.strip(b"\0")):
        return True
    try:
        stored = int(block[148:156].strip(b" \0"), 8)
    except ValueError:
        return False
    return len(block) == _HEAD_BYTES and stored == sum(block[:148]) + 256 + sum(block[156:])
