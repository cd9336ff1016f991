"""A few threads that fetch what is needed next, and behind that the rest of what has been begun.

What is needed soonest comes first; the rest never has more than half of the threads, and one alone while a reader
waits. A task that fails has no effect: who needs its bytes asks for them again, and meets the error then. Only a
failure that nobody would meet again is kept.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from wdsloader.errors import WdsloaderError

__all__ = ["AheadThreads"]

log = logging.getLogger(__name__)

Task = Callable[[], None]


class _Soon(NamedTuple):
    """A task, in the order in which tasks are done: by distance, then as they were asked for."""

    distance: int
    number: int
    task: Task


class AheadThreads:
    """Threads that run tasks in the background, started when first needed; the end of the process waits for none.

    ``failure``: the first error that a task has put there, to be raised by whoever reads next.
    Args: max_tasks: of those for soon, how many may wait; the most distant ones are given up.
    """

    def __init__(self, num_threads: int = 4, *, max_tasks: int = 64) -> None:
        self._num_threads, self._max_tasks = num_threads, max_tasks
        self._soon: list[_Soon] = []
        self._rest: deque[Task] = deque()
        self._num_asked = 0
        self._at_rest = 0
        self._waiting = 0
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._closed = False
        self.failure: WdsloaderError | None = None

    def soon(self, task: Task, *, distance: int) -> None:
        """Run the task before all that can wait, and before those that are needed after more samples."""
        with self._changed:
            self._num_asked += 1
            heapq.heappush(self._soon, _Soon(distance, self._num_asked, task))
            if len(self._soon) > self._max_tasks:
                self._soon.remove(max(self._soon))
                heapq.heapify(self._soon)
            self._wake()

    def later(self, task: Task) -> None:
        """Run the task when there is nothing more urgent."""
        with self._changed:
            self._rest.append(task)
            self._wake()

    @contextmanager
    def reader_waits(self) -> Iterator[None]:
        """Tell for the length of a block that a reader waits for bytes."""
        with self._changed:
            self._waiting += 1
        try:
            yield
        finally:
            with self._changed:
                self._waiting -= 1
                self._changed.notify()

    def join(self, *, within_s: float) -> None:
        """Wait until the threads have ended; they do so once it is closed and their tasks are done."""
        deadline = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Begin no more tasks."""
        with self._changed:
            self._closed = True
            self._soon.clear()
            self._rest.clear()
            self._changed.notify_all()

    def _wake(self) -> None:
        if not self._idle and not self._closed and len(self._threads) < self._num_threads:
            name = f"fetch ahead {len(self._threads)}"
            self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._threads[-1].start()
        self._changed.notify()

    def _work(self) -> None:
        while (found := self._next()) is not None:
            task, is_rest = found
            try:
                task()
            except (WdsloaderError, OSError) as error:
                log.debug("fetching ahead failed: %s", error)
            except Exception:
                # A fault of ours must not end the thread in silence; who needs the bytes fetches them.
                log.exception("fetching ahead failed")
            finally:
                with self._changed:
                    self._at_rest -= is_rest
                    self._changed.notify()

    def _next(self) -> tuple[Task, bool] | None:
        with self._changed:
            while not self._closed:
                if self._soon:
                    return heapq.heappop(self._soon).task, False
                # One at least: others may be waiting for the whole shard.
                if self._rest and self._at_rest < (1 if self._waiting else max(1, self._num_threads // 2)):
                    self._at_rest += 1
                    return self._rest.popleft(), True
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
        return None
