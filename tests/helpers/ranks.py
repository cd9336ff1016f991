"""Run a function as the ranks of one group, each in a process of its own, and collect what they return or raise."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import pickle
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resnettrain import Rank
from tests.helpers.cli import wait_until

__all__ = ["Died", "Started", "run_ranks", "started_ranks"]


@dataclass(frozen=True, slots=True)
class Died:
    """How a rank ended that returned and raised nothing: its exit code (negative: that signal), and what it wrote."""

    code: int | None
    output: str


@dataclass(frozen=True, slots=True)
class Started:
    """Ranks at work; `folder` is where they leave what they have to say."""

    folder: Path
    world_size: int

    @property
    def pids(self) -> list[int]:
        """Return the ranks' process ids, once they are there."""
        path = self.folder / "pids.json"
        assert wait_until(path.exists)
        pids: list[int] = json.loads(path.read_text())
        return pids

    def join(self, *, timeout_s: float = 120.0) -> list[Any]:
        """Return what each rank returned, the error that it raised, or how it died."""
        codes_path = self.folder / "codes.json"
        if not wait_until(codes_path.exists, timeout_s=timeout_s):
            for pid in self.pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert wait_until(codes_path.exists)
        codes: list[int] = json.loads(codes_path.read_text())
        return [self._result(rank, code) for rank, code in enumerate(codes)]

    def _result(self, rank: int, code: int) -> Any:
        path = self.folder / f"{rank}.pickle"
        if path.exists():
            return pickle.loads(path.read_bytes())
        return Died(code, (self.folder / f"{rank}.log").read_text())


def run_ranks(
    act: Callable[..., Any], *args: Any, world_size: int, folder: Path, timeout_s: float = 120.0
) -> list[Any]:
    """Call `act(place, *args)` as every rank; return what each returned, raised, or how it died.

    `act` is a function of a module.
    """
    return started_ranks(act, *args, world_size=world_size, folder=folder).join(timeout_s=timeout_s)


def started_ranks(act: Callable[..., Any], *args: Any, world_size: int, folder: Path) -> Started:
    """Begin to call `act(place, *args)` as every rank."""
    home = folder / f"ranks-{uuid.uuid4().hex[:8]}"
    home.mkdir(parents=True)
    places = [
        Rank(rank=rank, local_rank=rank, world_size=world_size, rendezvous=f"file://{home}/meeting")
        for rank in range(world_size)
    ]
    (home / "job.pickle").write_bytes(pickle.dumps((act, places, args)))
    factory = _factory()
    assert factory.stdin is not None
    factory.stdin.write(f"{home}\n")
    factory.stdin.flush()
    return Started(home, world_size)


@functools.cache
def _factory() -> subprocess.Popen[str]:
    """Return the process that forks the ranks: it imports torch once for all tests."""
    process = subprocess.Popen([sys.executable, "-m", "tests.helpers.rank_factory"], stdin=subprocess.PIPE, text=True)
    atexit.register(process.kill)
    return process
