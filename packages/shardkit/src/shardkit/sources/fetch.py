"""One picture from http or https: bounded in time and size, tried again where that may help. No other scheme."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from shardkit.errors import PackError
from shardkit.pictures import MAX_PICTURE_BYTES

if TYPE_CHECKING:
    import urllib3

__all__ = ["FetchError", "fetch", "require_fetching"]

_CONNECT_S, _READ_S, _TOTAL_S = 10.0, 30.0, 300.0
_ATTEMPTS = 4
_PIECE_BYTES = 1 << 18
# Busy, or broken for the moment.
_TRY_AGAIN = (429, 500, 502, 503, 504)


class FetchError(OSError):
    """A picture that could not be fetched; says why, without the URL."""


def require_fetching() -> None:
    """Raise PackError where the library for it is not installed."""
    try:
        import urllib3  # noqa: F401  # whether it is there
    except ImportError as error:
        raise PackError("a table with URLs needs urllib3. Install it: pip install 'shardkit[remote]'") from error


def fetch(url: str) -> bytes:
    """Return the bytes behind an http(s) URL, at most 256 MiB.

    Raises: FetchError: not there, cut, too large or too slow, after four tries where that may help.
    """
    import urllib3

    deadline = time.monotonic() + _TOTAL_S
    reason = ""
    for attempt in range(_ATTEMPTS):
        try:
            with _pool().request("GET", url, preload_content=False) as response:
                if response.status == 200:
                    return _body(response, deadline=deadline)
                reason = f"the server answers {response.status} {response.reason or ''}".rstrip()
                if response.status not in _TRY_AGAIN:
                    raise FetchError(reason)
        except urllib3.exceptions.HTTPError as error:
            reason = _in_words(error)
        if attempt + 1 < _ATTEMPTS:
            time.sleep(0.25 * 2**attempt)
    raise FetchError(f"{reason} ({_ATTEMPTS} tries)")


@functools.cache
def _pool() -> urllib3.PoolManager:
    """Return this process's connections."""
    import urllib3

    retries = urllib3.Retry(total=2, connect=2, read=2, redirect=5, status=0, other=0, backoff_factor=0.25)
    return urllib3.PoolManager(timeout=urllib3.Timeout(connect=_CONNECT_S, read=_READ_S), retries=retries)


def _body(response: urllib3.BaseHTTPResponse, *, deadline: float) -> bytes:
    data = bytearray()
    while piece := response.read(_PIECE_BYTES):
        data += piece
        if len(data) > MAX_PICTURE_BYTES:
            raise FetchError(f"more than {MAX_PICTURE_BYTES} bytes")
        if time.monotonic() > deadline:
            raise FetchError(f"not there after {_TOTAL_S:.0f} s")
    return bytes(data)


def _in_words(error: Exception) -> str:
    """Say what went wrong without the URL, which may hold a signature."""
    cause = getattr(error, "reason", None)
    return type(cause if isinstance(cause, Exception) else error).__name__
