"""A folder of shards brought from elsewhere: each file whole or absent, fetched once however many processes ask.

Owns locks, room, and the step from a download to a file; what a URL delivers is ``fetch``'s. Who reads a file holds it
by a shared lock, and who makes room takes only what nobody holds. A kill -9 leaves at most unfinished files, which the
next fill of the same name or the next search for room removes, and locks that the system has released.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from shardkit import OutputExistsError, atomic_file, exclusive, mask_url, remove_leftovers
from wdsloader.cache_entries import (
    CacheEntry,
    Origin,
    checksum_of,
    damage_of,
    entries_in,
    entry_name,
    own_bytes,
    read_origin,
    shown_origin,
    touch,
    unfinished_in,
)
from wdsloader.config_cache import CacheConfig
from wdsloader.errors import ConfigError, FetchError

__all__ = ["CacheFill", "ShardCache", "WantedFile"]

log = logging.getLogger(__name__)

# The folder's own lock: held while room is made and taken.
_ROOM = "wds-cache-room"
# What a file system says that has no room, or takes no file; where a file lies is told for the latter alone.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_LOCKLESS = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)


class WantedFile:
    """A URL and what its file must be: a length in bytes and a checksum (XXH3, 128 bits, hex), where they are known."""

    def __init__(self, url: str, *, num_bytes: int | None = None, checksum: str | None = None) -> None:
        self.url, self.num_bytes, self.checksum = url, num_bytes, checksum


class ShardCache:
    """The cache in one folder, which is made when first needed. Safe to use from many processes and machines.

    ``ended``: nothing new is to be fetched into it by this process.
    """

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        self.folder = config.folder
        self.ended = False
        self._checked: set[str] = set()

    def path_of(self, url: str) -> Path:
        """Return where a URL's file is kept."""
        return self.folder / entry_name(url, ignore_query=self.config.ignore_query)

    def hold(self, wanted: WantedFile) -> int | None:
        """Return a descriptor of the URL's file, which stays until it is closed; None where it is absent or damaged."""
        path = self.path_of(wanted.url)
        # Somebody may remove the file between our opening and locking it.
        while True:
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                _lock(descriptor, fcntl.LOCK_SH)
                if not self._is_good(descriptor, path, wanted=wanted):
                    os.close(descriptor)
                    return None
                if _has_name(descriptor, path):
                    touch(path)
                    return descriptor
            except BaseException:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
                raise
            os.close(descriptor)

    def get(self, wanted: WantedFile, fill: Callable[[CacheFill], None]) -> int:
        """Return a held descriptor of the URL's file, filled by one process while the others wait.

        Args: fill: writes the whole content to ``CacheFill.file``, or raises; nothing stays in the folder then.
        """
        while True:
            descriptor = self.hold(wanted)
            if descriptor is not None:
                return descriptor
            with self._turn(wanted, wait=True):
                descriptor = self.hold(wanted)
                if descriptor is not None:
                    return descriptor
                with CacheFill(self, wanted) as begun:
                    if wanted.num_bytes is not None:
                        begun.reserve(wanted.num_bytes)
                    fill(begun)
                    if begun.doubt is not None:
                        log.warning("%s: %s; it is used, and not kept", shown_origin(wanted.url), begun.doubt)
                        return begun.detached()
                    begun.publish()

    def begin(self, wanted: WantedFile) -> CacheFill | None:
        """Return the unfinished file of a URL, ours to fill; None where another process is at it."""
        turn = ExitStack()
        try:
            turn.enter_context(self._turn(wanted, wait=False))
        except OutputExistsError:
            return None
        return CacheFill(self, wanted, turn=turn)

    def progressing(self, wanted: WantedFile, *, within_s: float) -> bool:
        """Tell whether another process has written to the URL's unfinished file in the last seconds."""
        now = time.time()
        for unfinished in self.folder.glob(f".unfinished-{self.path_of(wanted.url).name}*"):
            with contextlib.suppress(FileNotFoundError):
                if now - unfinished.stat().st_mtime < within_s:
                    return True
        return False

    def require_room(self, num_bytes: int, *, url: str) -> None:
        """Check that the limit holds at least one file of this length. Raises: ConfigError."""
        limit = self.limit()
        if limit is not None and num_bytes > limit:
            raise ConfigError(
                f"the cache limit of {limit} bytes is below one shard: {mask_url(url)} has {num_bytes} bytes. Raise "
                "the limit, or pack smaller shards"
            )

    def limit(self) -> int | None:
        """Return the limit in bytes, None without one."""
        if self.config.limit_share_of_disk is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        return self.config.limit()

    @contextmanager
    def room(self, num_bytes: int = 0) -> Iterator[bool]:
        """Make room for so many bytes, and keep others from taking it until the block ends; tell whether it is there.

        Files used longest ago go first; none that anybody holds, and none that is not the cache's own.
        """
        limit = self.limit()
        with exclusive(self.folder, name=_ROOM, wait=True):
            yield limit is None or self._make_room(limit - num_bytes)

    def trim(self) -> None:
        """Bring the folder down to the limit, as far as nobody holds the files."""
        if self.config.limit_bytes is None and self.config.limit_share_of_disk is None:
            return
        if self.folder.is_dir():
            try:
                with self.room():
                    pass
            except OSError as error:
                # What nobody may write has grown by nobody's doing here.
                if not self.refuses(error):
                    raise

    def refuses(self, error: OSError) -> bool:
        """Tell whether the error is that the folder is full, or that this process may not write there."""
        ours = error.filename is not None and Path(os.fsdecode(error.filename)).parent == self.folder
        return error.errno in _FULL or (ours and error.errno in _FORBIDDEN)

    def require_writable(self, error: Exception) -> None:
        """Tell a cache that cannot be written from bad data, which may be skipped. Raises: ConfigError."""
        if isinstance(error, OSError) and self.refuses(error):
            raise ConfigError(
                f"{self.folder}: the cache cannot be written: {error.strerror}. Make room or set a limit "
                "(--cache-limit), or name another folder (--cache-dir)"
            ) from error

    def clear(self) -> list[CacheEntry]:
        """Remove every entry that nobody holds, and what killed processes left; return the entries that are gone.

        Raises: ConfigError: the folder cannot be written. OSError.
        """
        try:
            with self.room():
                removed = [entry for entry in entries_in(self.folder) if _remove_unheld(entry)]
                self.remove_unfinished()
        except OSError as error:
            self.require_writable(error)
            raise
        return removed

    def entries(self) -> list[CacheEntry]:
        """Return the cache's whole files, the one used last first. Raises: OSError: no such folder."""
        return sorted(entries_in(self.folder), key=lambda entry: -entry.used_s)

    def damage(self, entry: CacheEntry) -> str | None:
        """Read all of an entry, and return what is wrong with it, in words; None: it is as it was fetched."""
        try:
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            _lock(descriptor, fcntl.LOCK_SH)
            return damage_of(descriptor, entry.origin)
        finally:
            os.close(descriptor)

    def remove(self, entry: CacheEntry) -> bool:
        """Remove an entry unless somebody holds it; tell whether it is gone."""
        return _remove_unheld(entry)

    def remove_unfinished(self) -> list[Path]:
        """Remove what killed processes left, and return it. To be called with the ``room`` held."""
        names = unfinished_in(self.folder)
        return [path for name in names for path in remove_leftovers(self.folder, name_prefix=name)]

    def _make_room(self, limit: int) -> bool:
        total = own_bytes(self.folder)
        if total <= limit:
            return True
        self.remove_unfinished()
        total = own_bytes(self.folder)
        for entry in sorted(entries_in(self.folder), key=lambda entry: entry.used_s):
            if total <= limit:
                break
            if _remove_unheld(entry):
                log.debug("%s: removed to make room in the cache", entry.path)
                total -= entry.num_bytes
        return total <= limit

    @contextmanager
    def _turn(self, wanted: WantedFile, *, wait: bool) -> Iterator[None]:
        """Be the one who fills the URL's file. Raises: OutputExistsError: another is, and we do not wait."""
        if self.ended:
            raise FetchError(mask_url(wanted.url), "the dataset is closed")
        self.folder.mkdir(parents=True, exist_ok=True)
        with exclusive(self.folder, name=self.path_of(wanted.url).name, wait=wait):
            yield

    def _is_good(self, descriptor: int, path: Path, *, wanted: WantedFile) -> bool:
        """Tell whether the file is the one that is wanted, as it was fetched; what is not is said."""
        origin = read_origin(path)
        if origin is None:
            return False
        status = os.fstat(descriptor)
        problem = None
        num_bytes = origin.num_bytes if wanted.num_bytes is None else wanted.num_bytes
        if status.st_size != num_bytes:
            problem = f"has {status.st_size} bytes, not {num_bytes}"
        elif wanted.checksum not in (None, origin.checksum):
            problem = f"has checksum {origin.checksum}, not {wanted.checksum}"
        elif status.st_mtime_ns != origin.written_ns or (
            self.config.check == "checksum" and path.name not in self._checked
        ):
            problem = damage_of(descriptor, origin)
            if problem is None:
                self._checked.add(path.name)
            if problem is None and status.st_mtime_ns != origin.written_ns:
                with contextlib.suppress(OSError):
                    os.utime(path, ns=(status.st_atime_ns, origin.written_ns))
        if problem is not None:
            log.warning("%s: %s: it is fetched again", path, problem)
        return problem is None


class CacheFill:
    """The unfinished file of one URL. ``publish`` gives it its name; what is closed before that never has it.

    ``doubt``: why nobody can tell that it is whole, which keeps it from being kept.
    """

    def __init__(self, cache: ShardCache, wanted: WantedFile, *, turn: ExitStack | None = None) -> None:
        self._cache, self._wanted = cache, wanted
        self._path = cache.path_of(wanted.url)
        self._turn = turn or ExitStack()
        self._written = ExitStack()
        self._reserved = False
        self.doubt: str | None = None
        try:
            remove_leftovers(cache.folder, name_prefix=self._path.name)
            # Who looks for room must not see the file before it is locked, and take it for a leftover.
            with exclusive(cache.folder, name=_ROOM, wait=True):
                self.file: BinaryIO = self._written.enter_context(atomic_file(self._path, replace=True))
        except BaseException:
            self._turn.close()
            raise

    def __enter__(self) -> CacheFill:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def reserve(self, num_bytes: int) -> bool:
        """Take room for the whole file; tell whether the cache stays within its limit.

        Raises: ConfigError: the limit is below this one file.
        """
        self._cache.require_room(num_bytes, url=self._wanted.url)
        self.file.flush()
        # What is written already is counted already.
        with self._cache.room(num_bytes - os.fstat(self.file.fileno()).st_size) as fits:
            # The length counts from now on, also for others who look for room.
            self.file.truncate(num_bytes)
        self._reserved = True
        return fits

    def publish(self) -> None:
        """Check the file, make it durable and give it its name. Raises: FetchError: it is not what was wanted."""
        self.file.flush()
        descriptor, wanted = self.file.fileno(), self._wanted
        found, num_bytes = checksum_of(descriptor), os.fstat(descriptor).st_size
        shown = mask_url(wanted.url)
        if wanted.num_bytes not in (None, num_bytes):
            raise FetchError(shown, f"got {num_bytes} bytes, the manifest says {wanted.num_bytes}: it is stale")
        if wanted.checksum not in (None, found):
            reason = (
                f"got bytes of checksum {found}, the manifest says {wanted.checksum}: it is stale, or they are damaged"
            )
            raise FetchError(shown, reason)
        if not self._reserved:
            self.reserve(num_bytes)
        # Set and read again: a file system may keep times less finely.
        os.utime(descriptor, ns=(time.time_ns(),) * 2)
        written_ns = os.fstat(descriptor).st_mtime_ns
        origin = Origin(url=shown_origin(wanted.url), num_bytes=num_bytes, checksum=found, written_ns=written_ns)
        origin.write(self._path)
        self._written.close()
        self.close()

    def detached(self) -> int:
        """Return a descriptor of the file, which stays without a name until that is closed."""
        self.file.flush()
        descriptor = os.dup(self.file.fileno())
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def close(self) -> None:
        """Give the file up unless it was published, and let others fill it."""
        with contextlib.suppress(_GivenUpError), self._written:
            raise _GivenUpError
        self._turn.close()


class _GivenUpError(Exception):
    """The fill ends without a file."""


def _lock(descriptor: int, operation: int) -> bool:
    """Lock an open file; tell whether its file system has locks. Raises: BlockingIOError."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        if error.errno not in _LOCKLESS:
            raise
        return False
    return True


def _has_name(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove_unheld(entry: CacheEntry) -> bool:
    """Remove an entry that nobody holds; where there are no locks nobody can tell, and it stays."""
    try:
        descriptor = os.open(entry.path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        # Just gone, or not ours to change.
        return False
    try:
        if not _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB) or not _has_name(descriptor, entry.path):
            return False
        entry.remove()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
