"""How worker processes live and end: clean start, deaf to the terminal's signals, gone when their loader is. No torch.

The loader holds one end of a pipe, its lifeline; when it closes that end, or dies in whatever way, the workers leave.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess

__all__ = [
    "STOP_SIGNALS",
    "describe_death",
    "end_processes",
    "follow_lifeline",
    "ignore_signals",
    "warn_of_little_shared_memory",
    "worker_context",
]

log = logging.getLogger(__name__)

# The last is what a cluster sends ahead of the end; whoever does not expect it dies of it.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
# The fork server imports torch once; its children then start in some 50 ms instead of seconds.
_PRELOADED = ["wdsloader.fork_server", "wdsloader.torch_workers"]
# How long a worker may go on with what it is doing once its lifeline is cut.
_GRACE_S = 2.0


def worker_context() -> BaseContext:
    """Return the way to start workers on every Python alike: never by forking this process, which may have threads."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
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
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


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


def warn_of_little_shared_memory(*, needed_bytes: int, folder: str = "/dev/shm") -> None:  # noqa: S108
    """Warn where the pixels on their way between processes may not fit: the kernel would kill the one that writes."""
    try:
        found = os.statvfs(folder)
    except (AttributeError, OSError):
        return  # no such folder here: shared memory has no limit of its own
    free_bytes = found.f_bavail * found.f_frsize
    if free_bytes < needed_bytes:
        log.warning(
            "%s has %d MiB free, and batches on their way need %d MiB: a worker may die of a bus error. Give it more "
            "(docker run --shm-size=1g), or use smaller batches, or num_workers=0",
            folder,
            free_bytes >> 20,
            -(-needed_bytes >> 20),
        )


def follow_lifeline(lifeline: Connection) -> None:
    """End this process soon after the other end of the pipe has closed, whatever it is doing then."""
    threading.Thread(target=_wait_for_end, args=(lifeline,), name="lifeline", daemon=True).start()


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
            " as it started. Each worker imports the program again: put what a script does under "
            "`if __name__ == '__main__':`, read no script from standard input, or use num_workers=0"
        )
    return text


def _cause(exitcode: int | None) -> str:
    if exitcode == -signal.SIGKILL:
        return "was killed by signal 9, as the kernel does when memory runs out: use fewer workers or smaller batches"
    if exitcode == -signal.SIGBUS:
        return "was killed by signal 7: shared memory (/dev/shm) is full"
    if exitcode is not None and exitcode < 0:
        return f"was killed by signal {-exitcode}"
    return f"ended with exit code {exitcode}"


def _wait_for_end(lifeline: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        lifeline.recv_bytes()
    time.sleep(_GRACE_S)
    os._exit(0)
