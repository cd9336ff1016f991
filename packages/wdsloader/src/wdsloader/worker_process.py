"""What runs in a worker process: its rows of one batch after another, written into the slots that the loader names.

The loader sends numbers of slots, a slot's file with the first use of its number; what goes back are parts, which hold
no pixels, and that there are no more. When the connection ends, so does the process. No torch.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import socket
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Any

from shardkit import ShardkitError, ends_of
from wdsloader.assembly import Part
from wdsloader.decode import Uint8s
from wdsloader.errors import WdsloaderError, WorkerError
from wdsloader.pipeline import WorkerTask, worker_parts
from wdsloader.processes import end_soon, ignore_signals, limit_threads
from wdsloader.slots import Shape, Slot, map_slot
from wdsloader.streaming import StreamTask, stream_parts

__all__ = ["Answer", "Ended", "Job", "Task", "end_orders", "order_part", "parts_of", "work"]

Task = WorkerTask | StreamTask
# Slots to write into as they are ordered; an error that kept one from being mapped; None when no more will come.
_Orders = queue.SimpleQueue[Uint8s | OSError | None]


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """A worker has no more parts: it has made all, or an error has ended its work."""

    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a worker is told as it starts: the pickled task, which worker of how many, the shape of slots.

    ``owner``: the process id of the loader, with which the worker ends.
    """

    pickled: bytes
    worker: int
    num_workers: int
    shape: Shape
    owner: int


Answer = Part | Ended


def parts_of(task: Task, slots: Iterator[Uint8s]) -> Generator[Part, None, None]:
    """Yield the parts of a task, each written into the next slot; ends early when there is none."""
    return worker_parts(task, slots) if isinstance(task, WorkerTask) else stream_parts(task, slots)


def order_part(pipe: Connection, slot: Slot) -> None:
    """Have the worker at the other end write its next part into a slot. Raises: OSError: it is gone."""
    pipe.send((slot.number, slot.descriptor is not None))
    if slot.descriptor is not None:
        with _as_socket(pipe) as channel:
            socket.send_fds(channel, [b"f"], [slot.descriptor])


def end_orders(pipe: Connection) -> None:
    """Have the worker at the other end leave: at once, also where a process that was forked holds this end too."""
    with contextlib.suppress(OSError), _as_socket(pipe) as channel:
        channel.shutdown(socket.SHUT_RDWR)
    pipe.close()


def work(pipe: Connection, job: Job) -> None:
    """Answer every order, until the other end of the pipe is closed."""
    ignore_signals()
    limit_threads()
    orders: _Orders = queue.SimpleQueue()
    # Apart from the work, which must end soon when the loader does.
    wake: list[Callable[[], object]] = []
    receiver = threading.Thread(
        target=_receive, args=(pipe, orders), kwargs={"job": job, "wake": wake}, name="orders", daemon=True
    )
    receiver.start()
    _send(pipe, _answer_all(pipe, job, slots=_ordered(orders), wake=wake))
    while orders.get() is not None:
        pass  # until the connection ends


def _answer_all(pipe: Connection, job: Job, *, slots: Iterator[Uint8s], wake: list[Callable[[], object]]) -> Ended:
    """Send one part after the other; return why there are no more."""
    try:
        task: Task = pickle.loads(job.pickled)  # noqa: S301  # from the process that started this one
        limit_threads()  # once more: hooks may have brought libraries along
        if task.table.fetcher is not None:
            wake.append(task.table.fetcher.stop)
            # Threads that fetch ahead end with the process, wherever they are.
            Finalize(None, task.table.fetcher.end, exitpriority=0)
        for part in parts_of(replace(task, worker=job.worker, num_workers=job.num_workers), slots):
            _send(pipe, part)
    except (WdsloaderError, ShardkitError, OSError) as error:
        return Ended(error)
    except Exception as error:  # noqa: BLE001  # the worker boundary: whatever it is, the main process reports it
        failure = WorkerError(f"a loader worker failed: {type(error).__name__}: {error}")
        failure.add_note(traceback.format_exc())
        return Ended(failure)
    return Ended()


def _send(pipe: Connection, answer: Answer) -> None:
    try:
        pipe.send(answer)
    except OSError as error:
        raise SystemExit(0) from error  # nobody waits for it any more


def _ordered(orders: _Orders) -> Iterator[Uint8s]:
    while (slot := orders.get()) is not None:
        if isinstance(slot, OSError):
            raise slot
        yield slot


def _receive(pipe: Connection, orders: _Orders, *, job: Job, wake: list[Callable[[], object]]) -> None:
    """Pass orders on; soon after the other end has closed, or its owner has died, end the process at whatever it is.

    Args: wake: called before that, in this thread, to wake what waits.
    """
    known: dict[int, Uint8s] = {}
    # A process that was forked from the owner holds the other end too, and keeps it open.
    ends = ends_of(job.owner)
    while (order := _next_order(pipe, ends)) is not None:
        number, file_follows = order
        try:
            if file_follows:
                known[number] = _receive_slot(pipe, job.shape)
        except OSError as error:
            orders.put(error)
        else:
            orders.put(known[number])
    orders.put(None)
    for each in wake:
        each()
    end_soon()


def _next_order(pipe: Connection, ends: list[int]) -> Any:
    try:
        return pipe.recv() if pipe in wait([pipe, *ends]) else None
    except (EOFError, OSError):
        return None


def _receive_slot(pipe: Connection, shape: Shape) -> Uint8s:
    with _as_socket(pipe) as channel:
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    if not descriptors:
        raise OSError("a worker has too many files open for another batch: let it have more of them (ulimit -n)")
    try:
        return map_slot(descriptors[0], shape)
    finally:
        os.close(descriptors[0])


def _as_socket(pipe: Connection) -> socket.socket:
    """Return a second handle on the connection, which a duplex pipe of multiprocessing is: it passes files."""
    return socket.fromfd(pipe.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
