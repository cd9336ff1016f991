"""Processes that share the work of one call and are gone after it, whatever became of the caller."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import TypeVar

from shardkit.errors import WorkerDiedError

__all__ = ["ends_of", "map_in_order", "process_pool"]

Task = TypeVar("Task")
Result = TypeVar("Result")
# A process always has its next task at hand, and a slow one holds up no more finished results than this.
_AHEAD = 4


@contextmanager
def process_pool(jobs: int, *, prepare: Callable[[], None] | None = None) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of processes for one block; after an error, what has not begun is left out.

    Args: prepare: called in each process first; it must be picklable.
    Raises: WorkerDiedError: a process was killed, most likely for want of memory.
    """
    # Not fork: the command may have threads, and Python 3.14 does not either.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=(prepare,)) as pool:
        try:
            yield pool
        except BrokenProcessPool as error:
            reason = "a worker process was killed, perhaps for want of memory. Use fewer jobs (--jobs 1)"
            raise WorkerDiedError(reason) from error
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def map_in_order(function: Callable[[Task], Result], tasks: Sequence[Task], *, jobs: int) -> Iterator[Result]:
    """Yield ``function(task)`` of every task in order, from as many processes; one process is this one.

    Args: function, tasks: picklable.
    Raises: WorkerDiedError. What ``function`` raises.
    """
    jobs = min(jobs, len(tasks))
    if jobs <= 1:
        yield from map(function, tasks)
        return
    with process_pool(jobs) as pool:
        waiting: deque[Future[Result]] = deque()
        for task in tasks:
            waiting.append(pool.submit(function, task))
            if len(waiting) >= jobs * _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _begin(prepare: Callable[[], None] | None) -> None:
    """Set up a worker process."""
    # Ctrl-C reaches the whole group: the parent decides, and a worker finishes what it has begun.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="end with parent", daemon=True).start()
    if prepare is not None:
        prepare()


def _end_with_parent() -> None:
    """End this process when its parent has died: an orphan would go on writing where others write by then."""
    parent = parent_process()
    if parent is not None and parent.pid is not None:
        wait([parent.sentinel, *ends_of(parent.pid)])
        os._exit(1)


def ends_of(pid: int) -> list[int]:
    """Return a list of the file descriptor that `multiprocessing.connection.wait` finds ready once a process has ended.

    It is empty where the system has none for this. The descriptor is the caller's to close.
    A `sentinel` of multiprocessing does not do: it is a pipe that any process forked from that one keeps open.
    """
    try:
        return [os.pidfd_open(pid)]
    except ProcessLookupError:  # it has ended already
        reader, writer = os.pipe()
        os.close(writer)
        return [reader]
    except (AttributeError, OSError):
        return []
