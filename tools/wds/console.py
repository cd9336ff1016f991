"""All that the command shows: data on stdout, logs, progress and errors on stderr. The only writer to either."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from wds.text import WIPE, can_redraw, masked, valid, visible, wants_colour

__all__ = [
    "JOBS",
    "SCHEMA_VERSION",
    "AsJson",
    "Jobs",
    "Progress",
    "StatusLine",
    "human_bytes",
    "print_error",
    "print_json",
    "print_line",
    "print_note",
    "print_warning",
    "setup_logging",
]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes; the result is the same for any number.")]
JOBS = min(os.cpu_count() or 1, 8)

SCHEMA_VERSION = 1
# What the command itself says goes the way of a log line, so that -v and -q hold for it too.
log = logging.getLogger("wds")
_LOGGERS = ("wds", "shardkit", "wdsloader", "resnettrain")
# Off a terminal a line every few seconds, so that a log file stays readable.
_PLAIN_EVERY_S = 5.0


def setup_logging(level: str) -> None:
    """Send log lines of this level and above to stderr. Raises: typer.BadParameter: no such level."""
    from wds.log_lines import send_to_stderr

    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise typer.BadParameter(f"{level!r} is no level. Use CRITICAL, ERROR, WARNING, INFO or DEBUG", param_hint="-v")
    send_to_stderr(_LOGGERS, level=number)


def print_line(text: str = "", *, colour: str | None = None) -> None:
    """Print data to stdout, in a colour where colours are wanted there. Raises: OSError: naming it (a full disk)."""
    line = masked(visible(text))
    wanted = colour is not None and wants_colour(sys.stdout)
    try:
        typer.echo(typer.style(line, fg=colour) if wanted else line, color=True if wanted else None)
    except OSError as error:
        error.filename = error.filename or "standard output"
        raise


def print_note(text: str) -> None:
    """Print a hint or a closing remark to stderr, unless only warnings or errors are wanted."""
    log.info("%s", text)


def print_warning(text: str) -> None:
    """Print a warning to stderr, unless only errors are wanted."""
    log.warning("%s", text)


def print_error(text: str) -> None:
    """Print a known error to stderr: one line, red where colours are wanted."""
    line = f"Error: {masked(visible(' '.join(text.split())))}"
    coloured = wants_colour()
    typer.echo(typer.style(line, fg=typer.colors.RED) if coloured else line, err=True, color=coloured)


def print_json(document: Mapping[str, object]) -> None:
    """Print one JSON object to stdout, its ``schema_version`` first; plain ASCII, so valid whatever names it holds."""
    print_line(json.dumps(_visible_in({"schema_version": SCHEMA_VERSION, **document}), indent=1))


def human_bytes(num_bytes: float) -> str:
    """Return a size as people read it, in powers of 1024."""
    for unit in ("B", "KiB", "MiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} GiB"


class StatusLine:
    """One line on stderr that changes: redrawn on a terminal; off one, only what is to stay is printed."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet or not log.isEnabledFor(logging.INFO)
        self._terminal = can_redraw()

    def show(self, text: str, *, narrow: Callable[[int], str] | None = None) -> None:
        """Show a report, which off a terminal becomes a line of its own.

        Args: narrow: makes the text for a terminal, of at most so many columns.
        """
        if self._terminal:
            self.redraw(text if narrow is None else narrow(shutil.get_terminal_size().columns - 1))
        elif not self._quiet:
            typer.echo(visible(text), err=True)

    def redraw(self, text: str) -> None:
        """Show a passing state, on a terminal only."""
        if self._terminal and not self._quiet:
            width = shutil.get_terminal_size().columns - 1
            typer.echo(f"{WIPE}{visible(text)[:width]}", nl=False, err=True)

    def close(self) -> None:
        """Wipe the line."""
        self.redraw("")


class Progress:
    """How far some work is, with rate and time left: on a terminal always, off one every few seconds."""

    def __init__(self, what: str, *, total: int, quiet: bool = False) -> None:
        self._what = what
        self._total = total
        self._status = StatusLine(quiet=quiet)
        self._started = self._shown = time.monotonic()
        self._done = 0
        # The first one may take long.
        self._status.redraw(f"{what} 0/{total}")

    def advance(self) -> None:
        """Count one more as done."""
        self._done += 1
        now = time.monotonic()
        rate = self._done / max(now - self._started, 1e-9)
        text = f"{self._what} {self._done}/{self._total}, {rate:.1f}/s, {(self._total - self._done) / rate:.0f} s left"
        if now - self._shown > _PLAIN_EVERY_S:
            self._shown = now
            self._status.show(text)
        else:
            self._status.redraw(text)

    def close(self) -> None:
        """Wipe the line."""
        self._status.close()


def _visible_in(value: object) -> object:
    """Return a JSON value with every text in it made valid, and free of secrets."""
    if isinstance(value, Mapping):
        return {valid(str(key)): _visible_in(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_visible_in(item) for item in value]
    return masked(valid(value)) if isinstance(value, str) else value
