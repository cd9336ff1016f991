"""A folder of shards brought from elsewhere: each file whole or absent, fetched once however many processes ask.

Owns names, locks and the step from a download to a file; what a URL delivers is ``fetch``'s. A kill -9 leaves at most
an unfinished file that the next fill of the same name removes, and a lock that the system has released.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from filelock import FileLock

from shardkit import atomic_file, remove_leftovers

__all__ = ["ShardCache"]

log = logging.getLogger(__name__)

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_BYTES = 100


class ShardCache:
    """The cache in one folder, which is made when first needed. Safe to use from many processes and machines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path_of(self, url: str) -> Path:
        """Return where a URL's file is kept: a hash of the whole URL, then its base name to be read by people."""
        digest = hashlib.blake2b(url.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
        base = _UNSAFE.sub("_", unquote(urlsplit(url).path).rpartition("/")[2])
        return self.folder / f"{digest}-{base[-_NAME_BYTES:]}"

    def get(self, url: str, fill: Callable[[BinaryIO], None], *, num_bytes: int | None = None) -> Path:
        """Return the path of the URL's file, filled by one process while the others wait.

        Args:
            fill: writes the whole content, or raises; nothing stays in the folder then.
            num_bytes: the length the file must have; a file of another length is fetched again.
        """
        path = self.path_of(url)
        if _is_whole(path, num_bytes):
            return path
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(path.name + ".lock")):
            if not _is_whole(path, num_bytes):
                _fill(path, fill)
        return path


def _is_whole(path: Path, num_bytes: int | None) -> bool:
    """Tell whether the file is there; one of the wrong length is none, and is said."""
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        return False
    if num_bytes is not None and found != num_bytes:
        log.warning("%s has %d bytes, not %d: it is fetched again", path, found, num_bytes)
        return False
    return True


def _fill(path: Path, fill: Callable[[BinaryIO], None]) -> None:
    """Write the file whole or not at all; the caller holds its lock."""
    remove_leftovers(path.parent, name_prefix=path.name)
    with atomic_file(path, replace=True) as file:
        fill(file)
