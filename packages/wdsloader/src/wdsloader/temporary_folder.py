"""A folder for as long as this process runs; one that a killed process left is removed by the next that needs one.

Who uses it holds it by a shared lock, which the system releases in whatever way the process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

__all__ = ["TemporaryFolder"]

_PREFIX = "wdsloader-cache-"


class TemporaryFolder:
    """A new folder in the system's place for temporary files, removed by ``remove`` or with the end of the process."""

    def __init__(self) -> None:
        _remove_left()
        while True:
            self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
            self.path = Path(self._folder.name)
            descriptor = _hold(self.path)
            if descriptor is not None:
                self._let_go = weakref.finalize(self, os.close, descriptor)
                return
            self._folder.cleanup()

    def remove(self) -> None:
        """Remove it with all that is in it. A second call does nothing."""
        self._let_go()
        self._folder.cleanup()


def _hold(path: Path) -> int | None:
    """Return what holds a new folder as long as it is open; None: somebody took it for one that was left meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            is_there = os.path.samestat(os.fstat(descriptor), path.stat())
        except (BlockingIOError, FileNotFoundError):
            is_there = False
        except OSError:
            is_there = True  # no locks here: nobody can remove what was left
        if is_there:
            return descriptor
        os.close(descriptor)
    return None


def _remove_left() -> None:
    """Remove the folders of processes that are no more; what is not ours to remove stays."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            descriptor = os.open(left, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        os.close(descriptor)
