"""A loader in a process of its own, seen from the outside: started, asked, ended with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers.runner import Window
from bench.peers.task import Peer, Task
from bench.peers.work import Work

__all__ = ["PeerFailed", "Session", "without_kernel"]

_TOOLS = Path(__file__).resolve().parents[2]
# Longer than any answer takes, so that a loader that hangs ends in a line of the table and not in a night.
_PATIENCE_S = 300.0


class PeerFailed(Exception):  # noqa: N818  # it is what has happened, and no fault of this program
    """A loader did not do what it was asked; the message says why."""


class Session:
    """A peer in a process of its own. Use ``with``: at its end the whole process group is killed."""

    def __init__(self, peer: Peer, *, python: Path, search_path: Sequence[Path]) -> None:
        self.peer = peer
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed in close()
        path = os.pathsep.join(map(str, [*search_path, _TOOLS]))
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", "-m", "bench.peers.runner", peer.name],
            cwd=_TOOLS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def versions(self) -> dict[str, str]:
        """Return the versions of the packages that the peer is made of. Waits until it has started."""
        found: dict[str, str] = self._ask(do="hello")["versions"]
        return found

    def prepare(self, data: Path) -> None:
        """Have it make what it reads of a data set."""
        self._ask(do="prepare", data=str(data))

    def work(self, task: Task) -> Work:
        """Return what it delivers of one epoch."""
        answer = self._ask(do="work", task=task.to_json())
        return Work(**_with_tuples(answer))

    def open(self, task: Task) -> None:
        """Begin to deliver; stopped until the first window."""
        self._ask(do="open", task=task.to_json())
        self._signal(signal.SIGSTOP)

    def window(self, *, uncounted: int, samples: int) -> Window:
        """Measure one window; before and behind it all processes are stopped, so that they fill no queues meanwhile."""
        self._signal(signal.SIGCONT)
        answer = self._ask(do="window", uncounted=uncounted, samples=samples)
        self._signal(signal.SIGSTOP)
        return Window(**_with_tuples(answer))

    def close(self) -> None:
        """End the process and all that it has started."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                pipe.close()

    def _ask(self, **order: Any) -> dict[str, Any]:
        pipe = self._process.stdin
        try:
            if pipe is not None:
                print(json.dumps(order), file=pipe, flush=True)
            line = self._answers.get(timeout=_PATIENCE_S)
        except BrokenPipeError:
            line = ""
        except queue.Empty:
            raise PeerFailed(f"{self.peer.title}: no answer to {order['do']!r} in {_PATIENCE_S:.0f} s") from None
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"it ended; {self._last_words()}"}
        if "error" in answer:
            raise PeerFailed(f"{self.peer.title}: {' '.join(answer['error'].split())[:300]}")
        return answer

    def _signal(self, number: int) -> None:
        """Send a signal to the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(self._process.pid, number)

    def _listen(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                self._answers.put(line)
        self._answers.put("")  # it has ended

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _with_tuples(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an answer as they were before JSON made lists of the tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in answer.items()}


def without_kernel(folder: Path) -> Path:
    """Return a folder with a copy of the installed wdsloader that has no compiled kernel; for a search path."""
    import wdsloader

    installed = Path(wdsloader.__file__).parent
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(installed, folder / "wdsloader", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return folder
