"""Files that appear whole or not at all: temporary name, fsync, rename, fsync of the folder; and who may write them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from shardkit.errors import OutputExistsError

__all__ = [
    "atomic_file",
    "exclusive",
    "remove_leftovers",
    "remove_leftovers_of",
    "shared",
    "sync_folder",
    "unfinished_file",
    "write_atomically",
]

# Hidden, so that no glob for shards finds an unfinished one.
_TEMPORARY_PREFIX = ".unfinished-"
# What file systems answer that have no locks, or no fsync for folders.
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)


@contextmanager
def atomic_file(path: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its name only when the block ends without an error.

    One that replaces another is as public as that one was, and its owner's where the system lets us; else the umask
    decides, as for any file.
    Raises: OutputExistsError: the name is taken and ``replace`` is false, also when it was taken meanwhile. OSError:
        naming the file, also where the system does not (a full disk).
    """
    try:
        with unfinished_file(path, mode=0o666) as (temporary, file):
            if replace:
                _keep_access(file, path)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if replace:
                os.replace(temporary, path)
            else:
                _publish_new(temporary, path)
    except OSError as error:
        # An OSError without a number is no system's: its message is its own, and a file name would replace it.
        if error.errno is not None and _is_ours(error.filename):
            error.filename = str(path)
        raise
    sync_folder(path.parent)


@contextmanager
def unfinished_file(path: Path, *, mode: int) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a new hidden file beside ``path`` and hand it out with its name, under which nothing is left afterwards.

    It is locked as long as it is open, so that nobody takes it for a leftover; a killed process lets go.
    Args: mode: who may read and write it, before the umask.
    Raises: OSError.
    """
    temporary, file = _new_locked(path, mode=mode)
    try:
        with file:
            yield temporary, file
    finally:
        temporary.unlink(missing_ok=True)


def _new_locked(path: Path, *, mode: int) -> tuple[Path, BinaryIO]:
    """Create a hidden file beside ``path`` and lock it; return where it lies too."""
    while True:
        temporary = path.with_name(f"{_TEMPORARY_PREFIX}{path.name}-{secrets.token_hex(8)}")
        file = os.fdopen(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, mode), "w+b")
        try:
            _lock(file)
        except BlockingIOError:
            # Between opening and locking it looks like a leftover: somebody is about to remove it.
            file.close()
            temporary.unlink(missing_ok=True)
        except BaseException:
            file.close()
            temporary.unlink(missing_ok=True)
            raise
        else:
            # Or somebody has.
            if _has_name(file, temporary):
                return temporary, file


def write_atomically(path: Path, data: bytes, *, replace: bool) -> None:
    """Write a whole file at once. Raises: as :func:`atomic_file`."""
    with atomic_file(path, replace=replace) as file:
        file.write(data)


@contextmanager
def exclusive(folder: Path, *, name: str, wait: bool = False) -> Iterator[None]:
    """Keep all others out of files of this name in the folder until the block ends; a killed process lets go.

    Args: wait: until nobody else is in such a block.
    Raises: OutputExistsError: another process is in such a block now, or in a ``shared`` one, and we do not wait.
    """
    path = _lock_path(folder, name)
    with _entered(path, name=name, operation=fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB)):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def shared(folder: Path, *, name: str) -> Iterator[None]:
    """Work on files of this name together with others in such a block; keep those out who want to be alone.

    Raises: OutputExistsError: another process is alone with them now (``exclusive``).
    """
    path = _lock_path(folder, name)
    with _entered(path, name=name, operation=fcntl.LOCK_SH | fcntl.LOCK_NB) as file:
        try:
            yield
        finally:
            # The last one out removes the file; two at once would each see the other.
            with exclusive(folder, name=f"{name}+end", wait=True), contextlib.suppress(BlockingIOError):
                _lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)


def remove_leftovers(folder: Path, *, name_prefix: str) -> list[Path]:
    """Remove unfinished files of killed processes whose final names begin so, and return them; live ones stay."""
    removed = []
    for path in folder.glob(f"{_TEMPORARY_PREFIX}{glob.escape(name_prefix)}*"):
        try:
            with open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
        except OSError:
            # Alive, just gone, or somebody else's.
            continue
        removed.append(path)
    return removed


def remove_leftovers_of(paths: Iterable[Path]) -> None:
    """Remove what killed processes left of these very files. Their folders need not be there."""
    by_folder: dict[Path, set[str]] = {}
    for path in paths:
        by_folder.setdefault(path.parent, set()).add(path.name)
    for folder, names in by_folder.items():
        # What follows the last hyphen is random. One look into a folder, which may hold a million files, is enough.
        there = folder.glob(f"{_TEMPORARY_PREFIX}*")
        left = {path.name.rpartition("-")[0].removeprefix(_TEMPORARY_PREFIX) for path in there}
        for name in sorted(left & names):
            remove_leftovers(folder, name_prefix=name + "-")


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable, where the system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def _is_ours(filename: object) -> bool:
    """Tell whether the system names no file, or one of ours that nobody else knows."""
    return filename is None or os.path.basename(os.fsdecode(str(filename))).startswith(_TEMPORARY_PREFIX)


def _keep_access(file: BinaryIO, path: Path) -> None:
    """Give the file the permissions of the one that it will replace, and its owner if we may."""
    with contextlib.suppress(OSError):
        old, new = path.stat(), os.fstat(file.fileno())
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            # First, as it takes some permissions away.
            with contextlib.suppress(PermissionError):
                os.fchown(file.fileno(), old.st_uid, old.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))


def _lock_path(folder: Path, name: str) -> Path:
    return folder / f"{_TEMPORARY_PREFIX}{name}.lock"


def _entered(path: Path, *, name: str, operation: int) -> BinaryIO:
    """Return the lock file, locked. Raises: OutputExistsError: somebody else has locked it."""
    file = None
    # Whoever held the lock before may remove the file between our opening and locking it: then it locks nothing.
    while file is None or not _has_name(file, path):
        file = open(path, "ab")  # noqa: SIM115  # the caller closes it
        try:
            _lock(file, operation)
        except BlockingIOError as error:
            file.close()
            reason = f"{path.parent}: another process is writing '{name}' there. Wait for it, or choose another name"
            raise OutputExistsError(reason) from error
        except BaseException:
            file.close()
            raise
    return file


def _lock(file: BinaryIO, operation: int = fcntl.LOCK_EX | fcntl.LOCK_NB) -> None:
    """Lock the file until it is closed, where the file system has locks. Raises: BlockingIOError: another has it."""
    try:
        fcntl.flock(file, operation)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def _has_name(file: BinaryIO, path: Path) -> bool:
    """Tell whether the open file is the one of that name; close it if not."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return True
    file.close()
    return False


def _publish_new(temporary: Path, path: Path) -> None:
    """Give the file its name unless another process has taken it: a hard link fails where a rename would replace."""
    taken = OutputExistsError(f"{path} exists and is not overwritten unless told. Choose another name, or remove it")
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise taken from error
    except OSError:
        # A file system without hard links: the check and the rename are two steps there.
        if path.exists():
            raise taken from None
        os.replace(temporary, path)
        return
    os.unlink(temporary)
