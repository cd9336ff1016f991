from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from shardkit import WorkerDiedError, ends_of
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


watched = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux has it")


@watched
def test_the_end_of_a_process_is_seen_also_when_it_has_ended_before() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        ends = ends_of(process.pid)
        assert not wait(ends, timeout=0)
        process.kill()
        assert wait(ends, timeout=30) == ends
    assert wait(ends_of(process.pid), timeout=0)


ORPHANED = """
import os, time
from shardkit.processes import map_in_order

def pid_after(wait_s):
    time.sleep(wait_s)
    return os.getpid()

if __name__ == "__main__":
    results = map_in_order(pid_after, [0.1, 0.1, 60, 60], jobs=2)
    worker = next(results)
    if forked := os.fork():
        print(forked, worker, flush=True)
    time.sleep(60)
"""


@watched
@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them_though_one_forked_from_it_lives(tmp_path: Path) -> None:
    """The one that was forked holds their pipes open."""
    (tmp_path / "script.py").write_text(ORPHANED)
    command = [sys.executable, str(tmp_path / "script.py")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=env) as process:
        assert process.stdout is not None
        forked, worker = map(int, process.stdout.readline().split())
        ends = ends_of(worker)
        assert not wait(ends, timeout=0)
        process.kill()
        try:
            assert wait(ends, timeout=30) == ends
        finally:
            os.kill(forked, signal.SIGKILL)
