"""How worker processes live and end: clean start, deaf to the terminal's signals, gone when their loader is. No torch.

The loader holds one end of a pipe to each; when it closes that end, or dies in whatever way, the worker leaves.
"""

from __future__ import annotations

import io
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from multiprocessing import forkserver, popen_forkserver, reduction, resource_tracker, spawn, util
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, ForkServerProcess, set_spawning_popen
from multiprocessing.process import BaseProcess
from typing import Any

from wdsloader.errors import WorkerError
from wdsloader.machine import usable_bytes

__all__ = [
    "STOP_SIGNALS",
    "WorkerProcess",
    "describe_death",
    "end_processes",
    "end_soon",
    "ignore_signals",
    "limit_threads",
    "main_can_be_run_again",
    "needs_main",
    "require_own",
    "start_process",
    "this_process",
    "warn_of_little_memory",
    "worker_context",
]

log = logging.getLogger(__name__)

# The last is what a cluster sends ahead of the end; whoever does not expect it dies of it.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
# The fork server imports them once, in 0.4 s; its children then start in some 20 ms. Not the program's main module.
_PRELOADED = ["wdsloader.fork_server", "wdsloader.worker_process", "threadpoolctl"]
# What BLAS, OpenMP and OpenCV read when they are loaded; torch follows OpenMP.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
# How long a worker may go on with what it is doing once the loader is gone.
_GRACE_S = 2.0


class WorkerProcess(ForkServerProcess):
    """A process that leaves the program's main module alone.

    multiprocessing has each child run it again, with all it imports: torch above all, in seconds and 200 MB a worker.
    """

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> popen_forkserver.Popen:  # noqa: N802  # multiprocessing's name
        return _Popen(process_obj)


class _Popen(popen_forkserver.Popen):
    _fds: list[int]

    def _launch(self, process_obj: BaseProcess) -> None:
        """Start it as multiprocessing does, but for the main module."""
        preparation = spawn.get_preparation_data(process_obj.name)
        for name in ("init_main_from_name", "init_main_from_path"):
            preparation.pop(name, None)
        buffer = io.BytesIO()
        set_spawning_popen(self)
        try:
            reduction.dump(preparation, buffer)
            reduction.dump(process_obj, buffer)
        finally:
            set_spawning_popen(None)
        self.sentinel, writer = forkserver.connect_to_new_process(self._fds)
        # The child watches the other end to learn of this process's end.
        self.finalizer = util.Finalize(self, _close_all, (os.dup(writer), self.sentinel))
        with open(writer, "wb") as stream:
            stream.write(buffer.getbuffer())
        self.pid = forkserver.read_signed(self.sentinel)


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class _MainSeeker(pickle.Pickler):
    """Takes note of functions and classes of the main module."""

    found = False

    def reducer_override(self, value: object) -> Any:
        """Have everything pickled as usual."""
        self.found = self.found or getattr(value, "__module__", None) == "__main__"
        return NotImplemented


def needs_main(value: object) -> bool:
    """Tell whether unpickling a value takes the main module. Raises: what pickle does."""
    seeker = _MainSeeker(io.BytesIO())
    seeker.dump(value)
    return seeker.found


def main_can_be_run_again() -> bool:
    """Tell whether the main module is a file: what is typed, piped or given by ``-c`` is in no other process."""
    main = sys.modules["__main__"]
    return getattr(main, "__spec__", None) is not None or os.path.isfile(getattr(main, "__file__", ""))


def worker_context() -> ForkServerContext:
    """Return the way to start workers on every Python alike: never by forking this process, which may have threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    _start_fork_server()
    return context


def _start_fork_server() -> None:
    """Start it with the stop signals held back, until it is deaf to them itself: one that comes early would kill it."""
    # Before the signals are held: starting this one lets them through again.
    _start_resource_tracker()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        forkserver.ensure_running()
    except ChildProcessError as error:  # it is the child of another process
        raise _forked() from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def this_process() -> int:
    """Return what tells this process from those that are forked from it."""
    return os.getpid()  # noqa: TID251  # compared, no name


def require_own(owner: int) -> None:
    """Check that workers were started by this process. Raises: WorkerError: by one that this one was forked from."""
    if owner != this_process():
        raise _forked()


def _forked() -> WorkerError:
    return WorkerError(
        f"process {this_process()} was forked from one that has loader workers, and can have none of its own. Start it "
        "with multiprocessing.get_context('spawn') or 'forkserver', or use num_workers=0 in it"
    )


def _start_resource_tracker() -> None:
    """Start it deaf to SIGUSR1, which it does not see to itself: what is ignored stays so in a new program."""
    if threading.current_thread() is not threading.main_thread():
        resource_tracker.ensure_running()
        return
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        resource_tracker.ensure_running()
    finally:
        signal.signal(signal.SIGUSR1, before)


def ignore_signals() -> None:
    """Leave the stop signals to the main process: it stops at a batch of its choice, and still needs its workers."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def warn_of_little_memory(*, needed_bytes: int) -> None:
    """Warn where the pixels on their way between processes may not fit: the kernel would kill one of them."""
    found = usable_bytes()
    if found is not None and found < needed_bytes:
        log.warning(
            "%d MiB of memory can be had, and batches on their way need %d MiB: a process may be killed. Use smaller "
            "batches, or num_workers=0, or give it more memory (docker run --memory)",
            found >> 20,
            -(-needed_bytes >> 20),
        )


def limit_threads() -> None:
    """Have the numerical libraries of this process, loaded or not, work in one thread: the workers share the cores."""
    import threadpoolctl

    for name in _THREAD_VARIABLES:
        os.putenv(name, "1")
    threadpoolctl.threadpool_limits(1)


def start_process(process: BaseProcess) -> None:
    """Start a worker. Raises: WorkerError: the fork server ends meanwhile, or something else is in the way."""
    try:
        process.start()
    except (EOFError, OSError) as error:
        cause = "the fork server has ended, as when memory runs out" if isinstance(error, EOFError) else str(error)
        raise WorkerError(
            f"a loader worker cannot be started: {cause}. Use fewer workers, or num_workers=0, or give it more"
        ) from error


def end_soon() -> None:
    """End this process in a while, whatever it is doing then."""
    time.sleep(_GRACE_S)
    os._exit(0)


def end_processes(processes: list[BaseProcess], *, wait_s: float = 2 * _GRACE_S) -> None:
    """Wait for processes that were told to end, and kill those that do not."""
    deadline = time.monotonic() + wait_s
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


def describe_death(processes: list[BaseProcess], *, cause: str, has_worked: bool) -> str:
    """Say which processes died, and of what; where none did, what the cause was in other words.

    Args: has_worked: anything came from them before.
    """
    # The broken connection is often noticed before the death that broke it.
    wait([process.sentinel for process in processes], timeout=_GRACE_S)
    dead = [process for process in processes if process.exitcode is not None]
    if not dead:
        return f"a loader worker cannot be reached: {cause}"
    text = "; ".join(f"loader worker (pid {process.pid}) {_cause(process.exitcode)}" for process in dead)
    if not has_worked and any(process.exitcode == 1 for process in dead):
        text += (
            " as it started. Each worker imports the program again, for the sake of its hooks: put what a script does "
            "under `if __name__ == '__main__':`, or the hooks into a module of their own, or use num_workers=0"
        )
    return text


def _cause(exitcode: int | None) -> str:
    if exitcode == -signal.SIGKILL:
        return "was killed by signal 9, as the kernel does when memory runs out: use fewer workers or smaller batches"
    if exitcode == -signal.SIGBUS:
        return "was killed by signal 7: memory or a file it was reading is gone"
    if exitcode is not None and exitcode < 0:
        return f"was killed by signal {-exitcode}"
    return f"ended with exit code {exitcode}"
