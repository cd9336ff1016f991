"""The results of many tasks, in the order of the tasks, from one process or several, with few of them waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

from shardkit.processes import process_pool

__all__ = ["map_in_order"]

Task = TypeVar("Task")
Result = TypeVar("Result")
# A process always has its next task at hand, and a slow one holds up no more finished results than this.
_AHEAD = 4


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
