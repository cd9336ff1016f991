"""What is left of a loader whose process ends: nothing, however it ends. Each test runs a small script of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.damaged import write_with_bad_pictures
from tests.helpers.shards import write_samples
from wdsloader.processes import warn_of_little_memory

pytestmark = pytest.mark.slow  # each script imports torch

SCRIPT = """
import multiprocessing, os, signal, sys, time
from wdsloader import LoaderConfig, TorchLoader, open_dataset

if __name__ == "__main__":
    loader = TorchLoader(open_dataset([sys.argv[1]]), LoaderConfig(batch_size=4, image_size=8, num_workers=2))
    batches = iter(loader)
    next(batches), next(batches)  # the first is made here
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    {then}
"""

EARLY_SIGNAL = """
import os, signal, sys
from multiprocessing import forkserver
from wdsloader.processes import worker_context

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    context = worker_context()
    forkserver.ensure_running()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
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


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
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
        wait_until_gone(workers)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux has it")
def test_workers_leave_when_their_parent_is_killed_though_a_process_forked_from_it_lives(tmp_path: Path) -> None:
    """That one holds the same ends of the pipes: none of them closes."""
    then = """child = os.fork()
    if child:
        print(child, flush=True)
    time.sleep(60)"""
    with running(tmp_path, then) as (process, workers):
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            process.kill()
            wait_until_gone(workers)
            assert alive(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_script_that_does_not_close_its_loader_ends_all_the_same(tmp_path: Path) -> None:
    with running(tmp_path, "pass") as (process, workers):
        assert process.wait(timeout=60) == 0
        wait_until_gone(workers)
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
        out, err = process.communicate(timeout=60)
        assert out == "delivered\n"
        assert err == ""
        wait_until_gone(workers)


def test_a_stop_signal_to_the_group_while_the_fork_server_starts_leaves_it_alive(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(EARLY_SIGNAL)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script)]
    ended = subprocess.run(
        command, capture_output=True, text=True, start_new_session=True, env=env, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


UNGUARDED = """
import sys
from wdsloader import LoaderConfig, TorchLoader, open_dataset

def pass_on(sample, generator):
    return sample.image

config = LoaderConfig(batch_size=4, image_size=8, num_workers=1, transform={transform})
print(sum(len(batch.keys) for batch in TorchLoader(open_dataset([sys.argv[1]]), config)))
"""


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)


def test_a_script_needs_no_main_guard_as_workers_leave_it_alone(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 40)
    (tmp_path / "script.py").write_text(UNGUARDED.format(transform=None))
    ended = run_python(str(tmp_path / "script.py"), str(path))
    assert (ended.stdout, ended.stderr) == ("40\n", "")


def test_where_workers_need_the_script_for_its_hook_a_missing_main_guard_is_told_in_the_last_line(
    tmp_path: Path,
) -> None:
    path = write_samples(tmp_path / "s.tar", 40)
    (tmp_path / "script.py").write_text(UNGUARDED.format(transform="pass_on"))
    ended = run_python(str(tmp_path / "script.py"), str(path))
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 1
    assert last.startswith("wdsloader.errors.WorkerError: loader worker (pid ")
    assert "under `if __name__ == '__main__':`" in last


def test_a_hook_of_a_guarded_script_works_in_workers(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 40)
    body, call = UNGUARDED.format(transform="pass_on").split("config = ")
    guarded = "config = " + call.replace("\n", "\n    ")
    (tmp_path / "script.py").write_text(body + 'if __name__ == "__main__":\n    ' + guarded)
    ended = run_python(str(tmp_path / "script.py"), str(path))
    assert (ended.stdout, ended.stderr) == ("40\n", "")


def test_a_notebook_needs_no_main_guard(tmp_path: Path) -> None:
    """As in a notebook, the main module here is no file that a worker could import again."""
    path = write_samples(tmp_path / "s.tar", 40)
    ended = run_python("-c", UNGUARDED.format(transform=None), str(path))
    assert (ended.stdout, ended.stderr) == ("40\n", "")


def test_a_hook_that_is_in_no_file_is_refused_where_it_would_have_to_travel(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 40)
    ended = run_python("-c", UNGUARDED.format(transform="pass_on"), str(path))
    assert ended.stderr.splitlines()[-1] == (
        "wdsloader.errors.ConfigError: keep or transform is of a program that is no file (a notebook, python -c, "
        "standard input), which workers cannot run again. Put it into a module and import it; or use num_workers=0"
    )


FORKED = """
import multiprocessing, sys, warnings
from wdsloader import LoaderConfig, TorchLoader, WorkerError, open_dataset

def refusal(loader, batches):
    try:
        next(batches)
    except WorkerError as error:
        return str(error)

def use(loader, batches, pipe):
    own = TorchLoader(loader.dataset, loader.config)
    pipe.send([refusal(loader, batches), refusal(own, iter(own))])
    loader.close()
    pipe.recv()

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    config = LoaderConfig(batch_size=4, image_size=8, num_workers=2, num_epochs=2)
    loader = TorchLoader(open_dataset([sys.argv[1]]), config)
    batches = iter(loader)
    next(batches), next(batches)
    workers = multiprocessing.active_children()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=use, args=(loader, batches, theirs))
    child.start()
    said = ours.recv()
    assert all(text.startswith(f"process {child.pid} was forked from one that has") for text in said), said
    assert sum(len(batch.keys) for batch in batches) == 32
    next(iter(loader))
    loader.close()  # while the child holds the same ends of the pipes
    assert [worker.exitcode for worker in workers] == [0, 0], workers
    ours.send(None)
    child.join()
    assert child.exitcode == 0
"""


def test_a_forked_process_is_refused_the_workers_and_takes_nothing_from_its_parent(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 40)
    (tmp_path / "script.py").write_text(FORKED)
    ended = run_python(str(tmp_path / "script.py"), str(path))
    assert (ended.returncode, ended.stderr) == (0, "")


BREAKS = """
import multiprocessing, os, sys
from wdsloader import LoaderConfig, TorchLoader, open_dataset

def held():
    return len(os.listdir("/proc/self/fd")), len(multiprocessing.active_children())

if __name__ == "__main__":
    dataset = open_dataset([sys.argv[1]])
    for num_workers in (0, 2):
        with TorchLoader(dataset, LoaderConfig(batch_size=3, image_size=8, num_workers=num_workers)) as loader:
            seen = []
            for _ in range(200):
                for batch in loader:
                    break
                seen.append(held())
            assert max(abs(a - b) for a, b in zip(seen[9], seen[-1])) <= 2, (seen[9], seen[-1])
    for _ in range(20):
        loader = TorchLoader(dataset, LoaderConfig(batch_size=3, image_size=8, num_workers=1))
        next(iter(loader))
        seen.append(held())
        del loader
    assert max(abs(a - b) for a, b in zip(seen[-10], seen[-1])) <= 2, (seen[-10], seen[-1])
"""


def test_files_and_children_do_not_grow_with_early_breaks(tmp_path: Path) -> None:
    """TRN-12: 200 times."""
    path = write_samples(tmp_path / "s.tar", 40)
    (tmp_path / "script.py").write_text(BREAKS)
    ended = run_python(str(tmp_path / "script.py"), str(path))
    assert (ended.returncode, ended.stderr) == (0, "")


RANKS = """
import sys
import torch
import torch.distributed
from torch.distributed.elastic.multiprocessing.errors import record
from wdsloader import LoaderConfig, TorchLoader, open_dataset

@record
def main():
    torch.distributed.init_process_group("gloo")
    layout = {"rank": torch.distributed.get_rank(), "world_size": torch.distributed.get_world_size()}
    config = LoaderConfig(batch_size=4, image_size=8, shuffle=False, num_workers=1)
    with TorchLoader(open_dataset([sys.argv[1]]), config, **layout) as loader:
        for batch in loader:
            torch.distributed.all_reduce(torch.ones(1))

if __name__ == "__main__":
    main()
"""


def test_a_rank_with_bad_data_ends_all_ranks_and_its_message_is_the_last(tmp_path: Path) -> None:
    """TRN-11: under torchrun; each batch of 8 has its last four rows on rank 1."""
    path = write_with_bad_pictures(tmp_path / "one-bad.tar", 64, bad={37})
    (tmp_path / "script.py").write_text(RANKS)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    ended = run_python(*launcher, str(tmp_path / "script.py"), str(path))
    assert ended.returncode == 1
    *_, last = (line for line in ended.stderr.splitlines() if line.strip(" ="))
    assert last.strip().startswith(f"wdsloader.errors.SampleError: {path}: '000037' at byte ")
    root_cause = ended.stderr.rpartition("Root Cause")[2]
    assert re.search(r"rank +: 1 ", root_cause)


def test_too_little_memory_is_a_warning_with_both_figures(caplog: pytest.LogCaptureFixture) -> None:
    """TRN-07: batches need no /dev/shm; memory they do."""
    warn_of_little_memory(needed_bytes=1)
    assert not caplog.records
    warn_of_little_memory(needed_bytes=1 << 60)
    (record,) = caplog.records
    assert re.match(r"\d+ MiB of memory can be had, and batches on their way need 1099511627776 MiB", record.message)
