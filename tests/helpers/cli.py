"""Run the command as a user does: in a process of its own, on a terminal, or quickly inside this one."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from wds.app import app

__all__ = [
    "Ended",
    "invoke",
    "loggers_kept",
    "processes_of_session",
    "run_on_terminal",
    "run_script",
    "run_wds",
    "shown_on_terminal",
    "started_wds",
    "wait_until",
]

# Options of a training run that takes seconds: the smallest model and pictures, in one process, on one thread.
TINY = (
    *("--model", "tiny", "--image-size", "32", "--batch-size", "16", "--lr", "0.05", "--workers", "0"),
    *("--device", "cpu", "--set", "runtime.threads=1", "--set", "log.every_s=0.0"),
)
_WDS = (sys.executable, "-m", "wds")
# Commands that start a process a core unless they are told otherwise, which takes longer than all else that tests ask.
_WITH_JOBS = frozenset({"index", "inspect", "make-shards", "repair", "reshard", "run-plan", "stats", "validate"})
# What changes how the command looks, or how fast it starts, wherever the tests run.
_UNWANTED = frozenset(
    {
        "CI",
        "COLUMNS",
        "FORCE_COLOR",
        "GITHUB_ACTIONS",
        "NO_COLOR",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
        "PYTHONWARNINGS",
        "TERM",
        "TERMINAL_WIDTH",
        "WDS_DEBUG",
    }
)
_LOGGERS = ("wds", "shardkit", "wdsloader", "resnettrain")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: its exit code (negative: killed by that signal) and what it wrote."""

    code: int
    stdout: str
    stderr: str


def invoke(*args: object, stdin: str | bytes = b"") -> Ended:
    """Run the command inside this process: quick, but signals, pipes and imports are not as in real life.

    Without ``--jobs`` in the arguments it starts no processes.
    """
    words = _words(args)
    if _WITH_JOBS.intersection(words[:1]) and "--jobs" not in words:
        words += ["--jobs", "1"]
    with loggers_kept():
        result = CliRunner().invoke(app, words, input=stdin, catch_exceptions=False, prog_name="wds")
    return Ended(result.exit_code, result.stdout, result.stderr)


def run_wds(
    *args: object, cwd: Path, env: Mapping[str, str] | None = None, stdin: bytes = b"", timeout_s: float = 120.0
) -> Ended:
    """Run the command in a process of its own, with ``cwd`` as its working folder and its home."""
    return _run([*_WDS, *_words(args)], cwd=cwd, env=env, stdin=stdin, timeout_s=timeout_s)


def run_script(script: str, *, cwd: Path, args: Sequence[str] = ()) -> Ended:
    """Run a Python script in a process of its own."""
    return _run([sys.executable, "-c", script, *args], cwd=cwd)


def run_on_terminal(*args: object, cwd: Path, env: Mapping[str, str] | None = None) -> Ended:
    """Run the command with a terminal as its stderr; what it shows there is ``stderr``."""
    ours, theirs = os.openpty()
    try:
        process = subprocess.Popen(
            [*_WDS, *_words(args)],
            cwd=cwd,
            env=_environment(cwd, {"TERM": "xterm", **(env or {})}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
        )
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b""))
        return Ended(process.wait(timeout=60), "", shown.decode())
    finally:
        os.close(ours)


def shown_on_terminal(*args: object, cwd: Path, columns: int, env: Mapping[str, str] | None = None) -> list[str]:
    """Run the command with a terminal of so many columns as its stdout; return the lines it shows there."""
    ours, theirs = os.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(
            [*_WDS, *_words(args)],
            cwd=cwd,
            env=_environment(cwd, {"TERM": "xterm", **(env or {})}),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b""))
        process.wait(timeout=60)
        return shown.decode().splitlines()
    finally:
        os.close(ours)


@contextlib.contextmanager
def started_wds(*args: object, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """Start the command as leader of its own session; what is left of the session at the end is killed."""
    process = subprocess.Popen(
        [*_WDS, *_words(args)],
        cwd=cwd,
        env=_environment(cwd, None),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 60.0) -> bool:
    """Return True as soon as the condition holds, False when the time is over."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def processes_of_session(leader: int) -> list[str]:
    """Return the command lines of the session's processes, ended ones left out."""
    return [line for line in map(_command_line_of(leader), Path("/proc").iterdir()) if line is not None]


def _command_line_of(leader: int) -> Callable[[Path], str | None]:
    def read(entry: Path) -> str | None:
        if not entry.name.isdigit():
            return None
        try:
            # Behind the name in brackets: state, parent, group, session.
            state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return None
        return line if int(session) == leader and state != "Z" else None

    return read


def _run(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_s: float = 120.0,
) -> Ended:
    result = subprocess.run(
        command,
        cwd=cwd,
        env=_environment(cwd, env),
        input=stdin,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    return Ended(result.returncode, result.stdout.decode(), result.stderr.decode())


def _environment(home: Path, extra: Mapping[str, str] | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    return {**kept, "HOME": str(home), "LANG": "C.UTF-8", **(extra or {})}


def _words(args: Sequence[object]) -> list[str]:
    return [str(arg) for arg in args]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's way to say that the other end is closed
        return b""


@contextlib.contextmanager
def loggers_kept() -> Iterator[None]:
    """Give the loggers back as they were: the command's handlers would outlive it, and hide records from caplog."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    earlier = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    try:
        yield
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, earlier, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
