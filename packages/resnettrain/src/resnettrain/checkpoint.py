"""Checkpoint files: written whole or not at all, read without running code in them, rotated, found again.

A file is torch's zip. Its CRCs are checked before it is read, since torch's own reader does not check them.
What is in one: `state.py`.
"""

from __future__ import annotations

import io
import logging
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from resnettrain.errors import CheckpointError, UnsafeCheckpointError
from shardkit import atomic_file, counted, remove_leftovers

__all__ = [
    "checkpoint_path",
    "find_checkpoint",
    "latest",
    "list_checkpoints",
    "read_checkpoint",
    "remove_unfinished",
    "rotate",
    "write_checkpoint",
]

log = logging.getLogger(__name__)

_PREFIX, _SUFFIX = "samples-", ".pt"
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
    _check_kind(path)
    try:
        _check_sums(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
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
    raise CheckpointError(f"{run_dir}: {found}. Give --resume another run folder or checkpoint, or start a new run.")


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


def _check_kind(path: Path) -> None:
    if zipfile.is_zipfile(path):
        return
    with path.open("rb") as file:
        head = file.read(2)
    if head[:1] == _PICKLE_MARK:
        raise UnsafeCheckpointError(f"{path}: {_UNSAFE}")
    reason = "it is cut short" if head == b"PK" else "no torch zip file"
    raise CheckpointError(f"{path}: damaged, or not a checkpoint ({reason}).")


def _check_sums(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise CheckpointError(f"wrong checksum of '{damaged}'")
