"""A file of a store (s3, gs, az, hf: what fsspec reads) as a stream of bytes that mends itself, read by ranges.

Owns what a store's answers mean: a refusal is final, anything else is tried again at the byte where it broke. A store's
package brings time-outs and credentials of its own. Needs fsspec.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shardkit.errors import RemoteChangedError, RemoteError, printable
from shardkit.locations import mask_urls, scheme_of
from shardkit.remote.patience import PassingError, Patience, RemoteLimits

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = ["StoreStream"]

# One request each: a store answers in some 50 ms, in which a fast one sends as much.
_PIECE_BYTES = 4 << 20
# What to install for the stores whose package fsspec does not bring along.
_PACKAGES = {
    "s3": "pip install 'wds[s3]'",
    "s3a": "pip install 'wds[s3]'",
    "gs": "pip install 'wds[gs]'",
    "gcs": "pip install 'wds[gs]'",
    "hf": "pip install 'wds[hf]'",
    "az": "pip install adlfs",
    "abfs": "pip install adlfs",
    "abfss": "pip install adlfs",
}
# By its own choice the hub's library lists the folder of each file that is looked at, names no state of it, and reads
# 5 MiB ahead of each piece: three times what is asked for.
_HUB = "hf"
_HUB_SETTINGS: dict[str, Any] = {"expand_info": True, "skip_instance_cache": True}
# What tells one state of a file from another, by the names that stores have for it.
_VERSION_FIELDS = ("ETag", "etag", "generation", "md5Hash", "content_md5", "blob_id", "xet_hash", "mtime", "created")
# Refusals; 408, 425 and 429 ask for patience.
_FINAL_STATUSES = frozenset({400, 401, 402, 403, 404, 405, 406, 410, 411, 412, 413, 414, 415, 451})
# Settings that are wrong stay so; these are no OSErrors, and their packages may not be there.
_FINAL = frozenset({"NoCredentialsError", "PartialCredentialsError", "ParamValidationError", "DefaultCredentialsError"})


class StoreStream:
    """The bytes of a file from ``first`` on, up to ``stop`` where given. See :class:`shardkit.remote.RemoteStream`.

    Args: ended: see ``Patience``.
    Raises: RemoteError: there is no such file, no right to read it, or no package that can.
    """

    kind = ""

    def __init__(
        self,
        url: str,
        *,
        limits: RemoteLimits | None = None,
        first: int = 0,
        stop: int | None = None,
        version: str | None = None,
        ended: threading.Event | None = None,
    ) -> None:
        self._url = url
        self._patience = Patience(url, limits or RemoteLimits(), ended=ended)
        self._store, self._path = _store_of(url)
        self.error: RemoteError | None = None
        self.first = self._position = first
        self.num_bytes: int | None = None
        self.version = version
        # A part of a state that is known costs no second request; whoever has all parts looks at the whole.
        if version is None or stop is None or scheme_of(url) == _HUB:
            self.num_bytes, self.version = self._look(version)
        self.stop = stop
        self._rest = b""

    @property
    def failure(self) -> str | None:
        """Why the bytes ended early, in words."""
        return None if self.error is None else self.error.reason

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end, and none once ``error`` is set."""
        if not self._rest and self.error is None and size:
            try:
                self._rest = self._next(max(size, _PIECE_BYTES))
            except RemoteError as error:
                self.error = error
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece

    def close(self) -> None:
        """Let go of it; nothing is open between two requests."""
        self._rest = b""

    def _next(self, size: int) -> bytes:
        """Return the next bytes, none at the end. Raises: RemoteError: it does not go on."""
        end = min((e for e in (self.stop, self.num_bytes) if e is not None), default=None)
        while end is None or self._position < end:
            start, stop = self._position, min(self._position + size, self._position + size if end is None else end)
            got = "" if start == self.first else f"{start} of {'?' if end is None else end} bytes, then "
            piece: bytes = self._tried(functools.partial(self._part, start, stop), got)
            if piece:
                self._patience.renew()
                self._position += len(piece)
                return piece
            if end is None:
                break
            self._look(self.version)
            self._patience.wait(PassingError("nothing came"), got=got)
        if self.stop is None:
            # The pieces came one by one: they are one file only if it is still the same.
            self._look(self.version)
        return b""

    def _look(self, version: str | None) -> tuple[int | None, str]:
        """Return the file's length and its state. Raises: RemoteChangedError: that is another one."""
        found = self._tried(self._ask_anew)
        size = found.get("size")
        state = " ".join(str(found[name]) for name in ("size", *_VERSION_FIELDS) if found.get(name) is not None)
        if version is not None and state != version:
            raise RemoteChangedError(self._url, "the file has changed while it was read. Read it again")
        return size if isinstance(size, int) else None, state

    def _ask_anew(self) -> dict[str, Any]:
        self._store.invalidate_cache(self._path.rpartition("/")[0])
        found: dict[str, Any] = self._store.info(self._path)
        if scheme_of(self._url) == _HUB:
            # This store is this stream's alone. It asks before each piece what the path is: here it finds it.
            self._store.dircache[found["name"].rpartition("/")[0]] = [found]
        return found

    def _part(self, start: int, stop: int) -> bytes:
        # With its size given, nobody looks at the file again; as much of it as is read is enough.
        more = {"cache_type": "none", "size": stop} if scheme_of(self._url) == _HUB else {}
        piece: bytes = self._store.cat_file(self._path, start=start, end=stop, **more)
        return piece

    def _tried(self, ask: Callable[[], Any], got: str = "") -> Any:
        """Return what the store answers. Raises: RemoteError: it refuses, or fails too often."""
        while True:
            try:
                return ask()
            except Exception as error:  # every store has errors of its own
                final = _refusal(self._url, error)
                if final is not None:
                    raise final from error
                self._patience.wait(PassingError(_in_words(error)), got=got)


def _store_of(url: str) -> tuple[AbstractFileSystem, str]:
    """Return the store a URL names, and the path in it."""
    try:
        import fsspec
    except ImportError as error:
        reason = "reading it needs fsspec. Install it: pip install 'shardkit[remote]'"
        raise RemoteError(url, reason) from error
    scheme = scheme_of(url)
    try:
        store, path = fsspec.core.url_to_fs(url, **(_HUB_SETTINGS if scheme == _HUB else {}))
    except ImportError as error:
        advice = _PACKAGES.get(scheme, printable(str(error)))
        raise RemoteError(url, f"reading {scheme}:// needs one more package. Install it: {advice}") from error
    except Exception as error:  # settings of a store that are wrong
        if scheme not in fsspec.available_protocols():
            raise RemoteError(url, f"nothing here reads {scheme}:// URLs. Is the scheme spelled right?") from error
        raise RemoteError(url, _in_words(error)) from error
    return store, str(path)


def _refusal(url: str, error: Exception) -> RemoteError | None:
    """Return the final error that a store's answer is; None where it may answer otherwise next time."""
    if isinstance(error, FileNotFoundError) or _status_of(error) in (404, 410):
        return RemoteError(url, "no such file", status=404)
    # gcsfs has a plain OSError for a right that is lacking.
    if isinstance(error, PermissionError) or _status_of(error) in (401, 403) or str(error).startswith("Forbidden: "):
        return RemoteError(url, f"access denied ({mask_urls(_line(error))})", status=403)
    # What fsspec's stores raise where asking again mends nothing; NotImplementedError: the store has no such request.
    if isinstance(error, IsADirectoryError | NotImplementedError | ValueError | TypeError) or _is_final(error):
        return RemoteError(url, _in_words(error))
    return None


def _is_final(error: Exception) -> bool:
    return _status_of(error) in _FINAL_STATUSES or any(kind.__name__ in _FINAL for kind in type(error).__mro__)


def _status_of(error: Exception) -> int | None:
    """Return the status of HTTP that a store's own error carries: the hub's in its response, others' by themselves."""
    for holder in (getattr(error, "response", None), error):
        for name in ("status_code", "code", "status"):
            if isinstance(status := getattr(holder, name, None), int):
                return status
    return None


def _in_words(error: Exception) -> str:
    """Return what a store says, on one line and without secrets."""
    return mask_urls(f"{type(error).__name__}: {_line(error)}")


def _line(error: Exception) -> str:
    return printable(" ".join(str(error).split()))[:300]
