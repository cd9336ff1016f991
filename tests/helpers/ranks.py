"""Run a function as the ranks of one group, each in a process of its own, and collect what they return or raise."""

from __future__ import annotations

import multiprocessing
import pickle
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from resnettrain import Rank
from wdsloader.processes import worker_context

__all__ = ["Died", "run_ranks", "started_ranks"]


@dataclass(frozen=True, slots=True)
class Died:
    """What a rank ended with that returned nothing."""

    exitcode: int | None


@dataclass(frozen=True, slots=True)
class Started:
    """Ranks at work."""

    processes: list[BaseProcess]
    results: list[Connection]

    def join(self, *, timeout_s: float = 60.0) -> list[Any]:
        """Return what each rank returned, the error that it raised, or how it died."""
        end = time.monotonic() + timeout_s
        try:
            return [
                _result(process, receiver, end=end)
                for process, receiver in zip(self.processes, self.results, strict=True)
            ]
        finally:
            for process in self.processes:
                process.kill()
                process.join()


def run_ranks(act: Callable[..., Any], *args: Any, world_size: int, folder: Path, timeout_s: float = 60.0) -> list[Any]:
    """Call `act(place, *args)` as every rank; return what each returned, raised, or how it died.

    `act` is a function of a module. The processes come from the loader's fork server, which has torch already.
    """
    return started_ranks(act, *args, world_size=world_size, folder=folder).join(timeout_s=timeout_s)


def started_ranks(act: Callable[..., Any], *args: Any, world_size: int, folder: Path) -> Started:
    """Begin to call `act(place, *args)` as every rank."""
    context = worker_context()
    meeting = f"file://{folder}/meeting-{uuid.uuid4().hex}"
    started = Started([], [])
    for rank in range(world_size):
        place = Rank(rank=rank, local_rank=rank, world_size=world_size, rendezvous=meeting)
        receiver, sender = multiprocessing.Pipe(duplex=False)
        process = context.Process(target=_call, args=(sender, act, place, args))  # type: ignore[attr-defined]  # typeshed
        process.start()
        sender.close()
        started.processes.append(process)
        started.results.append(receiver)
    return started


def _call(sender: Connection, act: Callable[..., Any], place: Rank, args: Sequence[Any]) -> None:
    torch.set_num_threads(1)
    try:
        result = act(place, *args)
    except Exception as error:  # noqa: BLE001  # the boundary of the process: the test looks at it
        result = error
    # By value: torch would send a handle to memory that ends with this process.
    sender.send_bytes(pickle.dumps(result))


def _result(process: BaseProcess, receiver: Connection, *, end: float) -> Any:
    if not receiver.poll(max(0.0, end - time.monotonic())):
        return Died(None)
    try:
        return pickle.loads(receiver.recv_bytes())
    except EOFError:
        process.join()
        return Died(process.exitcode)
