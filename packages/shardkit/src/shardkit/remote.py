"""Shards that are not local files -> a stream of bytes read forward: stores by fsspec, the web and commands by theirs.

Owns the choice of the reader and the stores; ``web`` and ``commands`` own http(s) and ``pipe:``. A stream never raises
once it is open: it ends, and says in ``failure`` why it ended early. Secrets are masked in every message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, BinaryIO, Protocol

from shardkit.errors import RemoteError, printable
from shardkit.locations import is_command, is_web, mask_urls, scheme_of

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = ["RemoteStream", "open_remote"]

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


class RemoteStream(Protocol):
    """Bytes from elsewhere. ``num_bytes``: of the whole, where known; ``failure``: why it ended early."""

    num_bytes: int | None
    failure: str | None

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""

    def close(self) -> None:
        """Let go of it; what was not read is given up."""


@contextmanager
def open_remote(location: str, *, allow_commands: bool = False) -> Iterator[RemoteStream]:
    """Open a URL, or a command (``pipe:cat a.tar``) where commands are allowed.

    Raises: RemoteError: nothing can be read from there, or a package that reads it is not installed.
    """
    with closing(_open(location, allow_commands=allow_commands)) as stream:
        yield stream


def _open(location: str, *, allow_commands: bool) -> RemoteStream:
    if is_command(location):
        if not allow_commands:
            raise RemoteError(location, "commands are run only where that is allowed")
        from shardkit.commands import CommandStream

        return CommandStream(location)
    if is_web(location):
        try:
            from shardkit.web import WebStream
        except ImportError as error:
            reason = f"reading it needs {error.name}. Install it: pip install 'shardkit[remote]'"
            raise RemoteError(location, reason) from error
        return WebStream(location)
    return _StoreStream(location)


class _StoreStream:
    """A file of any store that fsspec knows."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.failure: str | None = None
        store, path = _store_of(url)
        try:
            size = store.size(path)
            # Each piece is read once and in order; a cache would keep what nobody asks for again.
            self._file: BinaryIO = store.open(path, "rb", cache_type="readahead", block_size=4 << 20)
        except Exception as error:  # every store has errors of its own
            raise RemoteError(url, _in_words(error)) from error
        self.num_bytes: int | None = size if isinstance(size, int) else None
        self._position = 0

    def read(self, size: int, /) -> bytes:
        if self.failure is not None:
            return b""
        try:
            piece = self._file.read(size)
        except Exception as error:  # noqa: BLE001  # every store has errors of its own; it is told in `failure`
            self.failure = f"reading broke off after {self._position} bytes ({_in_words(error)})"
            return b""
        self._position += len(piece)
        if not piece and size and self.num_bytes is not None and self._position < self.num_bytes:
            self.failure = f"got {self._position} of {self.num_bytes} bytes"
        return piece

    def close(self) -> None:
        self._file.close()


def _store_of(url: str) -> tuple[AbstractFileSystem, str]:
    """Return the store a URL names, and the path in it."""
    try:
        import fsspec
    except ImportError as error:
        reason = "reading it needs fsspec. Install it: pip install 'shardkit[remote]'"
        raise RemoteError(url, reason) from error
    scheme = scheme_of(url)
    try:
        store, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        advice = _PACKAGES.get(scheme, printable(str(error)))
        raise RemoteError(url, f"reading {scheme}:// needs one more package. Install it: {advice}") from error
    except Exception as error:  # settings of a store that are wrong
        if scheme not in fsspec.available_protocols():
            raise RemoteError(url, f"nothing here reads {scheme}:// URLs. Is the scheme spelled right?") from error
        raise RemoteError(url, _in_words(error)) from error
    return store, str(path)


def _in_words(error: Exception) -> str:
    """Return what a store says, on one line and without secrets."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return f"access denied ({mask_urls(_line(error))})"
    return mask_urls(f"{type(error).__name__}: {_line(error)}")


def _line(error: Exception) -> str:
    return printable(" ".join(str(error).split()))[:300]
