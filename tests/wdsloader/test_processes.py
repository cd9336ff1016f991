"""What is left of a loader whose process ends: nothing, however it ends. Each test runs a small script of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.shards import write_samples

pytestmark = pytest.mark.slow  # each process imports torch, and so does its fork server

SCRIPT = """
import multiprocessing, os, signal, sys, time
from wdsloader import LoaderConfig, TorchLoader, open_dataset

if __name__ == "__main__":
    loader = TorchLoader(open_dataset([sys.argv[1]]), LoaderConfig(batch_size=4, image_size=8, num_workers=2))
    batches = iter(loader)
    next(batches)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    {then}
"""

EARLY_SIGNAL = """
import os, signal, sys
from multiprocessing import forkserver
from wdsloader.processes import worker_context

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    context = worker_context()
    forkserver.ensure_running()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.killpg(0, number)
    process = context.Process(target=os.getpid)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@contextmanager
def running(tmp_path: Path, then: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Start the script in a process group of its own; hand out the process and the ids of its workers."""
    write_samples(tmp_path / "s.tar", 40)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(then=then))
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "s.tar")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield process, [int(pid) for pid in line.split()]
    finally:
        process.kill()
        process.communicate()


def wait_until_gone(pids: list[int], *, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, f"still there: {[pid for pid in pids if alive(pid)]}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_leave_when_their_parent_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, "time.sleep(60)") as (process, workers):
        assert len(workers) == 2
        assert all(alive(pid) for pid in workers)
        process.kill()
        wait_until_gone(workers, within_s=5)


def test_a_script_that_does_not_close_its_loader_ends_all_the_same(tmp_path: Path) -> None:
    with running(tmp_path, "pass") as (process, workers):
        assert process.wait(timeout=10) == 0
        wait_until_gone(workers, within_s=1)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_a_signal_to_the_whole_group_leaves_the_workers_to_the_main_process(tmp_path: Path) -> None:
    then = """signal.signal(signal.SIGTERM, lambda *_: None)
    os.killpg(0, signal.SIGTERM)
    time.sleep(0.5)
    for _ in range(40):
        for batch in loader:
            pass
    loader.close()
    print("delivered", flush=True)"""
    with running(tmp_path, then) as (process, workers):
        out, err = process.communicate(timeout=30)
        assert out == "delivered\n"
        assert err == ""
        wait_until_gone(workers, within_s=1)


def test_a_stop_signal_to_the_group_while_the_fork_server_starts_leaves_it_alive(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(EARLY_SIGNAL)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script)]
    ended = subprocess.run(
        command, capture_output=True, text=True, start_new_session=True, env=env, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
