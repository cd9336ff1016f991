"""The folder of one run: `config.toml`, `metrics.jsonl`, `checkpoints/`. Owns names and the continuing of a log.

metrics.jsonl holds one JSON object a line with `schema_version`, `kind` (train, val, end), `epoch`, `samples`, `time`
(seconds since 1970) and the figures of its kind. An end says its `outcome`: completed, capped (`cap`: by what),
interrupted, or failed (`error`: why). Of several runs one at a time has a folder, by a lock on it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from resnettrain.errors import RunFolderError
from resnettrain.events import EventWriter
from shardkit import counted, mask_urls, write_atomically

if TYPE_CHECKING:
    from resnettrain.state import TrainState

__all__ = ["SCHEMA_VERSION", "RunLog", "new_run_dir", "read_metrics"]

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1
_RUNS = Path("runs")
# Of each kind of record, the figures that are always numbers, and those that may be null.
_FIGURES: dict[object, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "train": (("epoch", "samples", "updates", "lr"), ("loss", "top1", "images_per_s", "wait_share")),
    "val": (("epoch", "samples", "top1", "top5"), ("loss",)),
    "end": (("epoch", "samples"), ("loss", "top1", "images_per_s", "wait_share", "skipped", "seconds")),
}
# Figures that are there only where they are known.
_OPTIONAL = ("mfu",)
# No figure of a run comes near it; what does would overflow in the sums.
_MOST = 1e100


def new_run_dir(recipe: str, *, now: time.struct_time | None = None) -> Path:
    """Return `runs/<time>-<recipe>`, with a number behind it where that is taken. Creates nothing."""
    base = _RUNS / f"{time.strftime('%Y%m%d-%H%M%S', now or time.localtime())}-{recipe}"
    path, number = base, 2
    while path.exists():
        path, number = base.with_name(f"{base.name}-{number}"), number + 1
    return path


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """Return the records of a run's metrics.jsonl in order; a line that a kill cut short is left out.

    So is, with a warning, one that is not what a run writes.
    """
    path = run_dir / "metrics.jsonl"
    if not path.exists():
        return []
    records, bad = [], []
    for number, line in enumerate(_whole_lines(path), start=1):
        try:
            records.append(_record(line))
        except (ValueError, RecursionError) as error:
            bad.append(f"line {number}: {error}")
    if bad:
        log.warning("%s: %s left out, not what a run writes; %s.", path, counted(len(bad), "line is/lines are"), bad[0])
    return records


class RunLog:
    """An open run folder. Lines reach the file as they are written.

    Args: config_toml: kept as config.toml; None on a rank that knows the folder and writes nothing.  keep_lines: None
    for a new run; for one that goes on, how many lines its checkpoint had seen: the rest are of work that is done
    again, and go.
    Raises: RunFolderError: a new run in a folder that is not empty; a folder that another run is writing to, or that
    cannot be written.
    """

    def __init__(self, run_dir: Path, *, config_toml: str | None, keep_lines: int | None = None) -> None:
        self.run_dir, self.checkpoint_dir, self.num_lines = run_dir, run_dir / "checkpoints", 0
        self._file: TextIO | None = None
        self._lock: int | None = None
        self._events: EventWriter | None = None
        self._has_ended = False
        if config_toml is None:
            return
        try:
            self._open(config_toml, keep_lines=keep_lines)
        except RunFolderError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise RunFolderError(f"{run_dir}: cannot write the run folder ({error.strerror}).") from error

    def _open(self, config_toml: str, *, keep_lines: int | None) -> None:
        run_dir, path = self.run_dir, self.run_dir / "metrics.jsonl"
        if run_dir.exists() and not run_dir.is_dir():
            raise RunFolderError(f"{run_dir}: is a file. Name another run folder.")
        run_dir.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(run_dir)
        if keep_lines is None and any(run_dir.iterdir()):
            saved = any(self.checkpoint_dir.glob("*.pt"))
            way_on = f"go on with --resume {run_dir}" if saved else "remove this one: it holds no checkpoint"
            raise RunFolderError(f"{run_dir}: is not empty. Name another run folder, or {way_on}.")
        self.checkpoint_dir.mkdir(exist_ok=True)
        write_atomically(run_dir / "config.toml", config_toml.encode(), replace=True)
        kept = _whole_lines(path)[:keep_lines] if keep_lines is not None and path.exists() else []
        write_atomically(path, b"".join(kept), replace=True)
        self._file = path.open("a", encoding="utf-8")
        self.num_lines = len(kept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def write(self, kind: str, figures: Mapping[str, object]) -> None:
        """Append one record; a figure that JSON has no word for (NaN) becomes null.

        Raises: OSError: the disk is full, say; it names the file.
        """
        if self._file is None:
            return
        record = {"schema_version": SCHEMA_VERSION, "kind": kind, **figures, "time": round(time.time(), 3)}
        line = json.dumps({key: _plain(value) for key, value in record.items()}, allow_nan=False) + "\n"
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            error.filename = self._file.name
            raise
        self.num_lines += 1
        self._has_ended = kind == "end"
        if self._events is not None:
            self._events.write(kind, figures)

    @contextmanager
    def telling_failure(self, state: TrainState, *, cause: Callable[[BaseException], BaseException]) -> Iterator[None]:
        """Record what ends the run from inside as its end, unless an end is recorded already; it goes on as it came.

        Args: state: how far the run is.  cause: returns what the error comes from.
        """
        try:
            yield
        except BaseException as error:
            if self._file is not None and not self._has_ended:
                # Whatever hinders it, a full disk say: the error itself is what has to be heard.
                with suppress(Exception):
                    self.write("end", _failure(cause(error), state))
            raise

    def add(self, events: EventWriter) -> None:
        """Have every record written as events too; the file is closed with this one."""
        self._events = events

    def close(self) -> None:
        """Close the file; closing twice is no error."""
        if self._file is not None:
            with suppress(OSError):  # of a line whose writing has failed, what was not written is still there
                self._file.close()
        if self._events is not None:
            self._events.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _failure(error: BaseException, state: TrainState) -> dict[str, object]:
    numbers, maybe = _FIGURES["end"]
    return {
        **dict.fromkeys(maybe),
        **{name: getattr(state, name) for name in numbers},
        "outcome": "failed" if isinstance(error, Exception) else "interrupted",
        "error": mask_urls(" ".join(str(error).split())) or type(error).__name__,
    }


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _whole_lines(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def _record(line: bytes) -> dict[str, Any]:
    """Return the record in a line. Raises: ValueError, RecursionError: it is none."""
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("no JSON object")
    if record.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"schema_version {record.get('schema_version')!r}, this program reads {SCHEMA_VERSION}")
    kind = record.get("kind")
    if not isinstance(kind, str) or kind not in _FIGURES:
        raise ValueError(f"kind {kind!r}, none of {', '.join(map(str, _FIGURES))}")
    numbers, maybe = _FIGURES[kind]
    wrong = [name for name in numbers if not _is_number(record.get(name))]
    wrong += [name for name in maybe if record.get(name, "missing") is not None and not _is_number(record.get(name))]
    wrong += [name for name in _OPTIONAL if name in record and not _is_number(record[name])]
    if wrong:
        raise ValueError(f"no number is {', '.join(wrong)}")
    return record


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_MOST < value < _MOST


def _locked(folder: Path) -> int | None:
    """Return a descriptor that holds the folder for this process, None where the file system has no locks.

    It goes with the process, however that ends. Raises: RunFolderError: another one holds it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise RunFolderError(
                f"{folder}: another run is writing to it. Wait until that has ended, or name another run folder."
            ) from None
        return None
    return descriptor
