"""Checkpoint files: written whole or not at all, read without running code in them, rotated, found again.

A file is torch's zip. Its CRCs are checked before it is read, since torch's own reader does not check them.
What is in one: `state.py`.
"""

from __future__ import annotations

import io
import logging
import os
import pickle
import secrets
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from resnettrain.errors import CheckpointError, UnsafeCheckpointError

__all__ = [
    "checkpoint_path",
    "find_checkpoint",
    "latest",
    "list_checkpoints",
    "read_checkpoint",
    "remove_leftovers",
    "rotate",
    "write_checkpoint",
]

log = logging.getLogger(__name__)

_PREFIX, _SUFFIX, _TEMPORARY = "samples-", ".pt", ".tmp-"
# Ours are zips; a file that opens with this byte is a bare pickle, which is a program.
_PICKLE_MARK = b"\x80"
_UNSAFE = "not a safe checkpoint: it asks for code to be run on loading, and nothing in it was run."


def checkpoint_path(folder: Path, *, samples: int) -> Path:
    """Return the name of the checkpoint after `samples` consumed samples; names sort as samples do."""
    return folder / f"{_PREFIX}{samples:014d}{_SUFFIX}"


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write a checkpoint: temporary file, fsync, rename, fsync of the folder.

    An earlier file of that name stays until the rename.
    Raises: CheckpointError: it cannot be written (disk full, no right); nothing half-made is left.
    """
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)
    temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}{_SUFFIX}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
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
    found = f"none of its {len(paths)} checkpoints can be read" if paths else "there is no checkpoint in it"
    raise CheckpointError(f"{run_dir}: {found}. Give --resume a checkpoint file or a run folder.")


def find_checkpoint(path: Path) -> tuple[Path, dict[str, Any]]:
    """Return a checkpoint by its file, or the newest good one of a run folder.

    Raises: CheckpointError: nothing there, damaged, or unsafe.
    """
    if not path.exists():
        raise CheckpointError(f"{path}: there is no such checkpoint or run folder.")
    return latest(path) if path.is_dir() else (path, read_checkpoint(path))


def rotate(run_dir: Path, *, keep: int) -> None:
    """Delete all but the newest `keep` checkpoints of a run."""
    for path in list_checkpoints(run_dir)[:-keep]:
        path.unlink(missing_ok=True)


def remove_leftovers(run_dir: Path) -> None:
    """Delete temporary files that a killed run left behind."""
    for path in (run_dir / "checkpoints").glob(f"{_TEMPORARY}*"):
        log.info("%s: removed, left over by a run that was killed while saving", path)
        path.unlink(missing_ok=True)


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


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
