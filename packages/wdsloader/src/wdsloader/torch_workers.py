"""Worker processes of a loader, started through torch's DataLoader: how parts come from them, and how they end.

torch moves the pixels by shared memory and notices a worker that dies; the rest of its loader (sampling, collating) is
not used. Knows nothing of batches: what comes out are the parts that the workers make.
"""

from __future__ import annotations

import multiprocessing
import pickle
import traceback
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from shardkit import ShardkitError
from wdsloader.assembly import Part
from wdsloader.errors import ConfigError, WdsloaderError, WorkerError
from wdsloader.pipeline import WorkerTask, worker_parts
from wdsloader.processes import (
    describe_death,
    end_processes,
    follow_lifeline,
    ignore_signals,
    warn_of_little_shared_memory,
    worker_context,
)
from wdsloader.streaming import StreamTask, stream_parts

__all__ = ["Task", "Workers"]

Task = WorkerTask | StreamTask
# torch asks every worker for so many parts ahead; one more batch is with whoever trains.
_AHEAD = 2


@dataclass(frozen=True, slots=True, eq=False)
class _Envelope:
    """A part on its way between processes: its pixels as a tensor, which torch moves by shared memory."""

    images: torch.Tensor
    part: Part


@dataclass(frozen=True, slots=True, eq=False)
class _Failure:
    """The error that ended a worker, instead of its next part."""

    error: Exception


class Workers:
    """The stream of parts of one task, from worker processes or (none) from this one.

    The first batch of local shards is made in this process, while the workers start; the second waits for them.
    """

    def __init__(self, task: Task, num_workers: int) -> None:
        self.num_workers = num_workers
        self._processes: list[BaseProcess] = []
        self._taken: list[Part] = []
        self._has_worked = False
        self._lifeline: Connection | None = None
        self._local: Iterator[Part] | None = None
        self._remote: Iterator[_Envelope | _Failure] | None = None
        self._here: WorkerTask | None = None
        self._unstarted: Task | None = None
        if not num_workers:
            self._local = _parts(task)
            return
        _require_sendable(task)
        pixels = task.config.image_size**2 * 3 * task.config.batch_size
        # Parts of one batch come from all workers; in the inexact mode each makes whole batches.
        batches = _AHEAD * (1 if isinstance(task, WorkerTask) else num_workers) + 1
        warn_of_little_shared_memory(needed_bytes=pixels * batches)
        self._context = worker_context()
        if isinstance(task, WorkerTask) and task.table.fetcher is None:
            # The fork server imports torch, for seconds; meanwhile the first batch is made here.
            state = replace(task.state, position=task.plan.after(task.state.position))
            self._here, self._unstarted = task, replace(task, state=state)
        else:
            self._start(task)

    def _start(self, task: Task) -> None:
        theirs, self._lifeline = self._context.Pipe(duplex=False)
        loader: DataLoader[Any] = DataLoader(
            _Share(task, theirs),
            batch_size=None,
            num_workers=self.num_workers,
            prefetch_factor=_AHEAD,
            collate_fn=_unchanged,
            worker_init_fn=_prepare_worker,
            multiprocessing_context=self._context,
            # Its own generator: the loader must not draw from torch's global one, which a resume restores.
            generator=torch.Generator(),
        )
        before = set(multiprocessing.active_children())
        self._remote = iter(loader)
        self._processes = [child for child in multiprocessing.active_children() if child not in before]
        self._unstarted = None
        theirs.close()

    def take(self) -> list[Part]:
        """Return the parts of the next batch. An interruption in the middle loses none."""
        if self._here is not None:
            with closing(worker_parts(self._here)) as parts_here:
                first = [next(parts_here)]
            self._here = None
            return first
        if self._unstarted is not None:
            self._start(self._unstarted)
        while len(self._taken) < max(1, self.num_workers):
            part = self.next()
            if part is None:
                raise WorkerError("a loader worker ended before its last batch")
            self._taken.append(part)
        parts, self._taken = self._taken, []
        return parts

    def next(self) -> Part | None:
        """Return the next part, from the workers in turn; None at the end. Raises: what ended a worker; WorkerError."""
        if self._local is not None:
            return next(self._local, None)
        if self._remote is None:
            return None
        try:
            received = next(self._remote, None)
        except Exception as error:  # a worker that is gone breaks the exchange in many ways; none of them is its own
            raise WorkerError(describe_death(self._processes, cause=str(error), has_worked=self._has_worked)) from error
        self._has_worked = True
        if isinstance(received, _Failure):
            raise received.error
        return None if received is None else replace(received.part, images=received.images.numpy())

    def close(self) -> None:
        """End the processes; a second call does nothing."""
        if self._lifeline is not None:
            self._lifeline.close()
        self._local = self._remote = self._lifeline = self._here = self._unstarted = None
        end_processes(self._processes)
        self._processes = []


class _Share(IterableDataset[_Envelope | _Failure]):
    """One worker's parts, in its process."""

    def __init__(self, task: Task, lifeline: Connection) -> None:
        self.task = task
        self.lifeline = lifeline

    def __iter__(self) -> Iterator[_Envelope | _Failure]:
        info = get_worker_info()
        task = self.task if info is None else replace(self.task, worker=info.id, num_workers=info.num_workers)
        no_pixels = np.empty((0, 0, 0, 3), np.uint8)
        try:
            for part in _parts(task):
                yield _Envelope(torch.from_numpy(part.images), replace(part, images=no_pixels))
        except (WdsloaderError, ShardkitError, OSError) as error:
            yield _Failure(error)
        except Exception as error:  # noqa: BLE001  # the worker boundary: whatever it is, the main process reports it
            failure = WorkerError(f"a loader worker failed: {type(error).__name__}: {error}")
            failure.add_note(traceback.format_exc())
            yield _Failure(failure)


def _require_sendable(task: Task) -> None:
    """Refuse hooks that cannot reach another process, before one is started for them. Raises: ConfigError."""
    for name in ("keep", "transform"):
        hook = getattr(task.config, name)
        try:
            pickle.dumps(hook)
        except Exception as error:
            raise ConfigError(
                f"{name}={hook!r} cannot be sent to the loader's processes ({error}). Use a function defined in a "
                "module, or an object of a class, in place of a lambda; or num_workers=0"
            ) from error


def _parts(task: Task) -> Iterator[Part]:
    return worker_parts(task) if isinstance(task, WorkerTask) else stream_parts(task)


def _unchanged(envelope: Any) -> Any:
    return envelope


def _prepare_worker(_: int) -> None:
    ignore_signals()
    info = get_worker_info()
    if info is None or not isinstance(info.dataset, _Share):
        raise ConfigError("not a worker of this loader")
    fetcher = info.dataset.task.table.fetcher
    follow_lifeline(info.dataset.lifeline, at_end=None if fetcher is None else fetcher.stop)
    if fetcher is not None:
        # Threads that fetch ahead end with the process, wherever they are.
        Finalize(None, fetcher.end, exitpriority=0)
