"""A few threads that fetch what is needed next, and behind that the rest of what has been begun.

What is needed soon comes first; the rest never has more than half of the threads. A task that fails has no effect: who
needs its bytes asks for them again, and meets the error then. Only a failure that nobody would meet again is kept.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from wdsloader.errors import WdsloaderError

__all__ = ["AheadThreads"]

log = logging.getLogger(__name__)

Task = Callable[[], None]


class AheadThreads:
    """Threads that run tasks in the background, started when first needed; the end of the process waits for none.

    ``failure``: the first error that a task has put there, to be raised by whoever reads next.
    """

    def __init__(self, num_threads: int = 4) -> None:
        self._num_threads = num_threads
        self._soon: deque[Task] = deque()
        self._rest: deque[Task] = deque()
        self._at_rest = 0
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._closed = False
        self.failure: WdsloaderError | None = None

    def soon(self, task: Task) -> None:
        """Run the task before all that can wait."""
        self._add(self._soon, task)

    def later(self, task: Task) -> None:
        """Run the task when there is nothing more urgent."""
        self._add(self._rest, task)

    def close(self) -> None:
        """Begin no more tasks."""
        with self._changed:
            self._closed = True
            self._soon.clear()
            self._rest.clear()
            self._changed.notify_all()

    def _add(self, queue: deque[Task], task: Task) -> None:
        with self._changed:
            if self._closed:
                return
            queue.append(task)
            if not self._idle and len(self._threads) < self._num_threads:
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
                    return self._soon.popleft(), False
                if self._rest and self._at_rest < max(1, self._num_threads // 2):
                    self._at_rest += 1
                    return self._rest.popleft(), True
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
        return None
