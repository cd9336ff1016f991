from __future__ import annotations

import threading

import pytest

from wdsloader.ahead import AheadThreads
from wdsloader.errors import FetchError


def run_all(threads: AheadThreads) -> None:
    """Let a single thread finish all that was asked for before."""
    done = threading.Event()
    threads.later(done.set)
    assert done.wait(10)


def held(threads: AheadThreads) -> threading.Event:
    """Keep the only thread busy until the event is set."""
    begun, go = threading.Event(), threading.Event()

    def task() -> None:
        begun.set()
        go.wait(10)

    threads.soon(task, distance=0)
    assert begun.wait(10)
    return go


def test_what_is_needed_soonest_comes_first_and_the_rest_last() -> None:
    threads = AheadThreads(1)
    go, order = held(threads), list[str]()
    threads.later(lambda: order.append("rest"))
    for distance in (5, 1, 3):
        threads.soon(lambda d=distance: order.append(f"in {d}"), distance=distance)  # type: ignore[misc]  # bound here
    go.set()
    run_all(threads)
    assert order == ["in 1", "in 3", "in 5", "rest"]
    threads.close()


def test_of_too_many_tasks_the_most_distant_are_given_up() -> None:
    threads = AheadThreads(1, max_tasks=2)
    go, order = held(threads), list[int]()
    for distance in (5, 1, 3, 4):
        threads.soon(lambda d=distance: order.append(d), distance=distance)  # type: ignore[misc]  # bound here
    go.set()
    run_all(threads)
    assert order == [1, 3]
    threads.close()


def test_while_a_reader_waits_the_rest_has_one_thread() -> None:
    threads = AheadThreads(4)
    running, most = list[int](), list[int]()
    lock, go = threading.Lock(), threading.Event()

    def task() -> None:
        with lock:
            running.append(1)
            most.append(len(running))
        go.wait(0.2)
        with lock:
            running.pop()

    with threads.reader_waits():
        for _ in range(4):
            threads.later(task)
        go.wait(0.5)
    assert max(most) == 1
    go.set()
    threads.close()


@pytest.mark.parametrize("error", [FetchError("u", "gone"), OSError("full"), ZeroDivisionError("ours")])
def test_a_task_that_fails_ends_no_thread(error: Exception) -> None:
    threads = AheadThreads(1)

    def fail() -> None:
        raise error

    threads.soon(fail, distance=0)
    run_all(threads)
    assert threads.failure is None
    threads.close()


def test_after_closing_nothing_is_begun() -> None:
    threads = AheadThreads(1)
    go, order = held(threads), list[int]()
    threads.later(lambda: order.append(1))
    threads.close()
    go.set()
    threads.soon(lambda: order.append(2), distance=0)
    assert order == []
