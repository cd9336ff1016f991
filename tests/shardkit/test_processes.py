from __future__ import annotations

import os
import signal

import pytest

from shardkit import WorkerDiedError
from shardkit.processes import map_in_order


def double(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is below zero")
    return 2 * number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_the_tasks(jobs: int) -> None:
    assert list(map_in_order(double, range(30), jobs=jobs)) == [2 * number for number in range(30)]


def test_no_tasks_give_no_results() -> None:
    assert list(map_in_order(double, [], jobs=4)) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_comes_at_the_place_of_its_task(jobs: int) -> None:
    results = map_in_order(double, [1, 2, -3, 4], jobs=jobs)
    assert [next(results), next(results)] == [2, 4]
    with pytest.raises(ValueError, match="-3 is below zero"):
        next(results)


def test_a_process_that_is_killed_is_an_error() -> None:
    with pytest.raises(WorkerDiedError, match="Use fewer jobs"):
        list(map_in_order(die, [1, 2], jobs=2))
