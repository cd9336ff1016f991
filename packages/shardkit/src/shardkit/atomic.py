"""Files that appear whole or not at all: temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import fcntl
import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from shardkit.errors import OutputExistsError

__all__ = ["atomic_file", "remove_leftovers", "sync_folder", "write_atomically"]

# Hidden, so that no glob for shards finds an unfinished one.
_TEMPORARY_PREFIX = ".unfinished-"


@contextmanager
def atomic_file(path: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its name only when the block ends without an error.

    Raises: OutputExistsError: the name is taken and ``replace`` is false, also when it was taken meanwhile. OSError.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f"{_TEMPORARY_PREFIX}{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            # Held while the file is being written, so that nobody takes it for a leftover; a killed process lets go.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield file
            file.flush()
            os.fchmod(descriptor, 0o666 & ~_umask())
            os.fsync(descriptor)
        if replace:
            os.replace(temporary, path)
        else:
            _publish_new(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def write_atomically(path: Path, data: bytes, *, replace: bool) -> None:
    """Write a whole file at once. Raises: as :func:`atomic_file`."""
    with atomic_file(path, replace=replace) as file:
        file.write(data)


def remove_leftovers(folder: Path, *, name_prefix: str) -> list[Path]:
    """Remove unfinished files of killed processes whose final names begin so, and return them; live ones stay."""
    removed = []
    for path in folder.glob(f"{_TEMPORARY_PREFIX}{glob.escape(name_prefix)}*"):
        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable, where the system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _publish_new(temporary: str, path: Path) -> None:
    """Give the file its name unless another process has taken it: a hard link fails where a rename would replace."""
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise OutputExistsError(f"{path} exists and is not overwritten unless told") from error
    except OSError:
        # A file system without hard links: the check and the rename are two steps there.
        if path.exists():
            raise OutputExistsError(f"{path} exists and is not overwritten unless told") from None
        os.replace(temporary, path)
        return
    os.unlink(temporary)


def _umask() -> int:
    """Return the process's umask; mkstemp makes private files, a shard is as public as any other file."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
