"""One loader in this process, measured in windows: `python -m bench.peers.runner NAME` takes orders line by line.

An order is a line of JSON on standard input, the answer one on standard output; whatever the loader prints itself goes
to standard error. A window begins with the loader at work: some samples first, which are not counted, use up what it
had ready. ``session`` is the other side.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bench.paired import Run
from bench.peers.meters import cpu_s, memory, syscall_bytes
from bench.peers.registry import PEERS
from bench.peers.task import Delivered, Peer, Task
from bench.peers.work import as_nhwc, measure_work

__all__ = ["Loader", "Window", "main", "prepare"]


@dataclass(frozen=True, slots=True)
class Window(Run):
    """One window: ``items`` images in ``wall_s``, CPU of all its processes, ``peak_bytes`` as resident at its end.

    ``pss_bytes`` and ``shared_bytes``: see ``meters.Memory``; ``moved_bytes``: by system calls. ``mean_rgb``: of a few
    pixels of every batch, in 0..255; empty where a subject makes no images. ``labels``: smallest and largest.
    """

    pss_bytes: int
    shared_bytes: int
    moved_bytes: int
    mean_rgb: tuple[float, ...]
    labels: tuple[int, int]


def prepare(peer: Peer, data: Path) -> None:
    """Have the peer make what it reads of a data set, unless it has already."""
    stamp = data / f"{peer.folder}.prepared"
    if peer.folder and not stamp.exists():
        shutil.rmtree(data / peer.folder, ignore_errors=True)
        peer.prepare(data)
        stamp.write_text("", encoding="utf-8")


class Loader:
    """A peer at work on a task."""

    def __init__(self, peer: Peer, task: Task) -> None:
        began = time.perf_counter()
        batches = peer.open(task)
        first = next(batches)
        self.first_s = time.perf_counter() - began
        self._batches: Iterator[Delivered] = chain([first], batches)

    def window(self, *, uncounted: int, samples: int) -> Window:
        """Take so many samples, then at least so many more against the clock."""
        while uncounted > 0:
            uncounted -= len(next(self._batches)[1])
        glances: list[Any] = []
        low, high, items = sys.maxsize, -1, 0
        cpu, moved, began = cpu_s(), syscall_bytes(), time.perf_counter()
        while items < samples:
            images, labels = next(self._batches)
            numbers = np.asarray(labels)
            low, high = min(low, int(numbers.min())), max(high, int(numbers.max()))
            items += len(numbers)
            if images is not None:
                glances.append(_glance(images))
        wall_s = time.perf_counter() - began
        cpu, moved, held = cpu_s() - cpu, syscall_bytes() - moved, memory()
        mean = tuple(float(value) for value in np.mean(glances, axis=0)) if glances else ()
        return Window(
            items=items,
            wall_s=wall_s,
            cpu_s=cpu,
            peak_bytes=held.rss_bytes,
            pss_bytes=held.pss_bytes,
            shared_bytes=held.shared_bytes,
            moved_bytes=moved,
            mean_rgb=mean,
            labels=(low, high),
        )


def _glance(images: Any) -> Any:
    """Return the mean of every 32nd pixel each way of all images of a batch: 0.2 ms, and proof that they are there."""
    array = np.asarray(images)
    few = array[:, ::32, ::32] if array.shape[-1] == 3 else array[:, :, ::32, ::32]
    return as_nhwc(few).mean(axis=(0, 1, 2))


def _versions(peer: Peer) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in peer.packages}


class _Orders:
    """What can be asked of this process. Every method is an order; its result the answer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.loader: Loader | None = None

    def hello(self) -> dict[str, Any]:
        return {"versions": _versions(self.peer)}

    def prepare(self, data: str) -> dict[str, Any]:
        prepare(self.peer, Path(data))
        return {}

    def work(self, task: str) -> dict[str, Any]:
        return asdict(measure_work(self.peer.open(Task.from_json(task))))

    def open(self, task: str) -> dict[str, Any]:
        self.loader = Loader(self.peer, Task.from_json(task))
        return {"first_s": self.loader.first_s}

    def window(self, uncounted: int, samples: int) -> dict[str, Any]:
        if self.loader is None:
            raise RuntimeError("nothing is open")
        return asdict(self.loader.window(uncounted=uncounted, samples=samples))


def main() -> None:
    """Obey until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    orders = _Orders(PEERS[sys.argv[1]])
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(orders, order.pop("do"))(**order)
        except Exception as error:  # noqa: BLE001  # what a loader fails with is its own affair; it is reported
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error).strip() or 'no more is said'}"}
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # some loaders' threads and workers would hold it up


if __name__ == "__main__":
    main()
