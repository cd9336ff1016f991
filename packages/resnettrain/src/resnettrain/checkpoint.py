"""Checkpoint files: written whole or not at all and beside the loop, read without running code, rotated, found again.

A file is torch's zip. Its CRCs are checked before it is read, since torch's own reader does not check them.
What is in one: `state.py`.
"""

from __future__ import annotations

import io
import logging
import os
import pickle
import queue
import shutil
import threading
import time
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch

from resnettrain.errors import CheckpointError, UnsafeCheckpointError
from shardkit import atomic_file, counted, remove_leftovers, sync_folder

__all__ = [
    "BEST",
    "CheckpointWriter",
    "SaveClock",
    "checkpoint_path",
    "find_checkpoint",
    "latest",
    "list_checkpoints",
    "load_checkpoint",
    "read_checkpoint",
    "remove_unfinished",
    "rotate",
    "write_checkpoint",
]

log = logging.getLogger(__name__)

_PREFIX, _SUFFIX = "samples-", ".pt"
# The name of the checkpoint with the highest validation accuracy, which no rotation takes away.
BEST = "best.pt"
# Ours are zips; a file that opens with this byte is a bare pickle, which is a program.
_PICKLE_MARK = b"\x80"
_UNSAFE = "not a safe checkpoint: it asks for code to be run on loading, and nothing in it was run."


def checkpoint_path(folder: Path, *, samples: int) -> Path:
    """Return the name of the checkpoint after `samples` consumed samples; names sort as samples do."""
    return folder / f"{_PREFIX}{samples:014d}{_SUFFIX}"


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write a checkpoint whole or not at all; an earlier file of that name stays until the new one is complete.

    Raises: CheckpointError: it cannot be written (disk full, no right); nothing half-made is left.
    """
    # By way of memory: torch hides why a file could not be written.
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, replace=True) as file:
            file.write(buffer.getbuffer())
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(f"{path}: could not be written ({reason}). Earlier checkpoints are untouched.") from error


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of one file, on the CPU.

    Raises: UnsafeCheckpointError: it asks for code to be run. CheckpointError: missing, damaged, no checkpoint.
    """
    if not path.exists():
        raise CheckpointError(f"{path}: there is no such checkpoint.")
    try:
        file = path.open("rb")
    except OSError as error:  # a folder, or no right to read it
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error}).") from error
    with file:
        return load_checkpoint(file, path=path)


def load_checkpoint(file: BinaryIO, *, path: Path) -> dict[str, Any]:
    """Return the content of an open file, on the CPU; `path` is its name in errors. Raises: as `read_checkpoint`."""
    _check_kind(file, path=path)
    try:
        _check_sums(file)
        file.seek(0)
        content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UnsafeCheckpointError(f"{path}: {_UNSAFE}") from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{path}: damaged, or not a checkpoint ({reason}).") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: not a checkpoint of this program.")
    return content


def list_checkpoints(run_dir: Path) -> list[Path]:
    """Return a run's checkpoint files, oldest first."""
    return sorted((run_dir / "checkpoints").glob(f"{_PREFIX}*{_SUFFIX}"))


def latest(run_dir: Path) -> tuple[Path, dict[str, Any]]:
    """Return a run's newest checkpoint that can be read; a damaged newer one is passed over with a warning.

    Raises: CheckpointError: the run has none. UnsafeCheckpointError: the newest asks for code to be run.
    """
    paths = list_checkpoints(run_dir)
    for path in reversed(paths):
        try:
            return path, read_checkpoint(path)
        except UnsafeCheckpointError:
            raise
        except CheckpointError as error:
            log.warning("%s Trying the one before.", error)
    found = f"none of its {counted(len(paths), 'checkpoint')} can be read" if paths else "there is no checkpoint in it"
    raise CheckpointError(f"{run_dir}: {found}. Name another run folder or checkpoint, or start a new run.")


def find_checkpoint(path: Path) -> tuple[Path, dict[str, Any]]:
    """Return a checkpoint by its file, or the newest good one of a run folder.

    Raises: CheckpointError: nothing there, damaged, or unsafe.
    """
    if not path.exists():
        raise CheckpointError(f"{path}: there is no such checkpoint or run folder.")
    return latest(path) if path.is_dir() else (path, read_checkpoint(path))


def rotate(run_dir: Path, *, newest: Path, keep: int) -> None:
    """Delete all checkpoints of a run but `newest` and the `keep` - 1 before it.

    Later ones are of a run that was resumed from before them: it has taken another way, and they would be found first.
    """
    paths = list_checkpoints(run_dir)
    kept = [path for path in paths if path.name <= newest.name][-keep:]
    for path in set(paths).difference(kept):
        path.unlink(missing_ok=True)


def remove_unfinished(run_dir: Path) -> None:
    """Delete what a run that was killed while saving left behind."""
    for path in remove_leftovers(run_dir / "checkpoints", name_prefix=_PREFIX):
        log.info("%s: removed, left over by a run that was killed while saving", path)


class CheckpointWriter:
    """Writes the checkpoints of a run, one at a time, in a thread of its own: the loop goes on meanwhile.

    What goes wrong there is raised by the next call of any method. A process that is killed in the middle leaves the
    checkpoint before.
    """

    def __init__(self, run_dir: Path, *, keep: int, background: bool) -> None:
        self._run_dir, self._keep, self._background = run_dir, keep, background
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._written: queue.SimpleQueue[tuple[Path, int]] = queue.SimpleQueue()

    def write(self, content: Mapping[str, Any], *, samples: int, is_best: bool = False) -> Path:
        """Begin to write a checkpoint and return its path; an earlier one is waited for.

        Args: content: copied, so that it may change afterwards.  is_best: it is kept as `best.pt` as well.
        Raises: CheckpointError: this one, or the one before, could not be written.
        """
        self.wait()
        path = checkpoint_path(self._run_dir / "checkpoints", samples=samples)
        write = partial(self._write, path, _on_host(content), samples=samples, is_best=is_best)
        if self._background:
            self._thread = threading.Thread(target=write, name="checkpoint", daemon=True)
            self._thread.start()
        else:
            write()
            self._raise()
        return path

    def written(self) -> list[tuple[Path, int]]:
        """Return path and samples of the checkpoints that became complete since the last call.

        Raises: CheckpointError: one could not be written.
        """
        self._raise()
        return [self._written.get_nowait() for _ in range(self._written.qsize())]

    def wait(self) -> None:
        """Wait for the one that is being written. Raises: CheckpointError: it could not be."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._raise()

    def _write(self, path: Path, content: Mapping[str, Any], *, samples: int, is_best: bool) -> None:
        try:
            write_checkpoint(path, content)
            if is_best:
                _keep_as_best(path)
            rotate(self._run_dir, newest=path, keep=self._keep)
            self._written.put((path, samples))
        except Exception as error:  # noqa: BLE001  # the boundary of the thread: the loop raises it
            self._error = error

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


class SaveClock:
    """Tells when the last checkpoint is so many minutes old that another one is due; with 0 minutes none ever is."""

    def __init__(self, *, every_minutes: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_minutes * 60
        self._clock = clock
        self._last = clock()

    def is_due(self) -> bool:
        """Return whether the time has come."""
        return self._every_s > 0 and self._clock() - self._last >= self._every_s

    def restart(self) -> None:
        """Count from now on: a checkpoint was made."""
        self._last = self._clock()


def _on_host(value: Any) -> Any:
    """Return nested values with every tensor copied to host memory."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: _on_host(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_on_host(item) for item in value)
    return value


def _keep_as_best(path: Path) -> None:
    """Give a complete checkpoint its second name. Raises: CheckpointError."""
    best = path.with_name(BEST)
    temporary = path.with_name(f".{BEST}")
    try:
        try:
            temporary.unlink(missing_ok=True)
            os.link(path, temporary)
        except OSError:
            # A file system without hard links.
            with path.open("rb") as source, atomic_file(best, replace=True) as copy:
                shutil.copyfileobj(source, copy)
        else:
            temporary.replace(best)
            sync_folder(path.parent)
    except OSError as error:
        raise CheckpointError(f"{best}: could not be written ({error.strerror or error}).") from error


def _check_kind(file: BinaryIO, *, path: Path) -> None:
    if zipfile.is_zipfile(file):
        return
    file.seek(0)
    head = file.read(2)
    if head[:1] == _PICKLE_MARK:
        raise UnsafeCheckpointError(f"{path}: {_UNSAFE}")
    reason = "it is cut short" if head == b"PK" else "no torch zip file"
    raise CheckpointError(f"{path}: damaged, or not a checkpoint ({reason}).")


def _check_sums(file: BinaryIO) -> None:
    with zipfile.ZipFile(file) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise CheckpointError(f"wrong checksum of '{damaged}'")
