"""The folder of one run: `config.toml`, `metrics.jsonl`, `checkpoints/`. Owns names and the continuing of a log.

metrics.jsonl holds one JSON object a line with `schema_version`, `kind` (train, val, end), `epoch`, `samples`, `time`
(seconds since 1970) and the figures of its kind.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TextIO

from resnettrain.errors import RunFolderError
from resnettrain.events import EventWriter
from shardkit import write_atomically

__all__ = ["SCHEMA_VERSION", "RunLog", "new_run_dir", "read_metrics"]

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1
_RUNS = Path("runs")


def new_run_dir(recipe: str, *, now: time.struct_time | None = None) -> Path:
    """Return `runs/<time>-<recipe>`, with a number behind it where that is taken. Creates nothing."""
    base = _RUNS / f"{time.strftime('%Y%m%d-%H%M%S', now or time.localtime())}-{recipe}"
    path, number = base, 2
    while path.exists():
        path, number = base.with_name(f"{base.name}-{number}"), number + 1
    return path


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """Return the records of a run's metrics.jsonl in order; a line that a kill cut short is left out."""
    path = run_dir / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in _whole_lines(path)]


class RunLog:
    """An open run folder. Lines reach the file as they are written.

    Args: config_toml: kept as config.toml; None on a rank that knows the folder and writes nothing.  keep_lines: None
    for a new run; for one that goes on, how many lines its checkpoint had seen: the rest are of work that is done
    again, and go.
    Raises: RunFolderError: a new run in a folder that is not empty; a folder that cannot be written.
    """

    def __init__(self, run_dir: Path, *, config_toml: str | None, keep_lines: int | None = None) -> None:
        self.run_dir, self.checkpoint_dir, self.num_lines = run_dir, run_dir / "checkpoints", 0
        self._file: TextIO | None = None
        self._events: EventWriter | None = None
        if config_toml is None:
            return
        if keep_lines is None and run_dir.exists() and (not run_dir.is_dir() or any(run_dir.iterdir())):
            saved = any((run_dir / "checkpoints").glob("*.pt"))
            way_on = f"go on with --resume {run_dir}" if saved else "remove this one: it holds no checkpoint"
            raise RunFolderError(f"{run_dir}: is not empty. Name another run folder, or {way_on}.")
        path = run_dir / "metrics.jsonl"
        try:
            self.checkpoint_dir.mkdir(parents=True, exist_ok=True)
            write_atomically(run_dir / "config.toml", config_toml.encode(), replace=True)
            kept = _whole_lines(path)[:keep_lines] if keep_lines is not None and path.exists() else []
            write_atomically(path, "".join(kept).encode(), replace=True)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise RunFolderError(f"{run_dir}: cannot write the run folder ({error.strerror}).") from error
        self.num_lines = len(kept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def write(self, kind: str, figures: Mapping[str, object]) -> None:
        """Append one record; a figure that JSON has no word for (NaN) becomes null."""
        if self._file is None:
            return
        record = {"schema_version": SCHEMA_VERSION, "kind": kind, **figures, "time": round(time.time(), 3)}
        self._file.write(json.dumps({key: _plain(value) for key, value in record.items()}, allow_nan=False) + "\n")
        self._file.flush()
        self.num_lines += 1
        if self._events is not None:
            self._events.write(kind, figures)

    def add(self, events: EventWriter) -> None:
        """Have every record written as events too; the file is closed with this one."""
        self._events = events

    def close(self) -> None:
        """Close the file; closing twice is no error."""
        if self._file is not None:
            self._file.close()
        if self._events is not None:
            self._events.close()


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _whole_lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [line for line in lines if line.endswith("\n")]
