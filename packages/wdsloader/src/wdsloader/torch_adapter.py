"""A dataset as batches of torch tensors: worker processes, one epoch per ``iter``, a position with every batch.

Owns the worker processes and the step from numpy parts to :class:`Batch`. A worker fills its rows of each batch; the
parts are put together here, so a batch is the same for any number of workers. Workers live on from epoch to epoch.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from shardkit import ShardkitError
from wdsloader.config import LoaderConfig
from wdsloader.dataset import Dataset
from wdsloader.errors import ConfigError, DatasetError, NoLengthError, WdsloaderError, WorkerError
from wdsloader.pipeline import Part, WorkerTask, put_together, worker_parts
from wdsloader.plan import LISTED, Plan, first_state
from wdsloader.processes import describe_death, end_processes, follow_lifeline, ignore_signals, worker_context
from wdsloader.state import LoaderState
from wdsloader.streaming import StreamTask, stream_parts

__all__ = ["Batch", "TorchLoader"]

log = logging.getLogger(__name__)

_Task = WorkerTask | StreamTask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """One batch of a rank.

    ``images``: uint8 (b, size, size, 3), RGB. ``labels``: int64 (b,), -1 without one. ``weights``: float32 (b,), 0 for
    a masked row. ``keys``: None for a masked row. ``position``: samples of ``epoch`` consumed over all ranks after this
    batch. ``state``: what :meth:`TorchLoader.load_state_dict` takes to go on behind this batch.
    """

    images: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor
    keys: tuple[str | None, ...]
    epoch: int
    position: int
    state: dict[str, int | str | None]


class TorchLoader:
    """Batches of a dataset: ``for batch in loader`` is one epoch, the rest of it after a resume or a ``break``.

    The next ``iter`` goes on with the next epoch, on the same workers. Close it, or use ``with``.
    Raises: ConfigError: settings that do not fit each other, the data, or the number of ranks. DatasetError: unknown
        sample counts with ``exact``.
    """

    def __init__(self, dataset: Dataset, config: LoaderConfig, *, rank: int = 0, world_size: int = 1) -> None:
        if config.exact and dataset.counts is None:
            raise DatasetError("exact=True, and no manifest says how many samples the shards have; run `wds index`")
        self.dataset, self.config = dataset, config
        self.rank, self.world_size = rank, world_size
        self._state = self._first_state(config)
        self._plan = self._plan_of(self._state)
        self._workers: _Workers | None = None
        self._finalizer: Callable[[], object] | None = None
        self._said = False

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch. Raises: NoLengthError: in the inexact mode."""
        if self._plan is None:
            raise NoLengthError("the sample counts of these shards are not known, so neither is the number of batches")
        return self._plan.steps_from(0)

    def __enter__(self) -> TorchLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Batch]:
        epoch = self._state.epoch
        if self._finished():
            return
        try:
            yield from self._stream_epoch(epoch) if self._plan is None else self._exact_epoch(epoch)
        except Exception:
            self.close()
            raise
        if self._finished():
            self.close()

    def state_dict(self) -> dict[str, int | str | None]:
        """Return the state behind the last batch that was handed out; equal on every rank."""
        return self._state.to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was saved, also with other workers, ranks or batch size.

        Raises: ConfigError: saved with other data, seed or order, or at a position where these batches cannot start.
        """
        saved = LoaderState.from_dict(state)
        config = self.config
        if saved.lanes != LISTED and config.shuffle:
            config = replace(config, lanes=config.lanes or saved.lanes, block=config.block or saved.block)
        mine = self._first_state(config)
        mine.require_same_order(saved, source="the saved state")
        loaded = replace(mine, epoch=saved.epoch, position=saved.position)
        plan = self._plan_of(loaded)
        if plan is None:
            if loaded.position:
                log.warning("the inexact mode cannot resume inside an epoch: epoch %d starts again", loaded.epoch)
            loaded = replace(loaded, position=0)
        else:
            plan.require_resumable(loaded.position)
            if not plan.steps_from(loaded.position):
                left = plan.num_samples - loaded.position
                log.info("%d samples of epoch %d make no batch: going on with the next", left, loaded.epoch)
                loaded = replace(loaded, epoch=loaded.epoch + 1, position=0)
        if loaded != self._state:
            self.close()
        self._state, self._plan = loaded, plan

    def close(self) -> None:
        """End the workers; none is left when this returns. Iterating again starts new ones at the same position."""
        if self._finalizer is not None:
            self._finalizer()
            atexit.unregister(self._finalizer)
        self._workers = self._finalizer = None

    def _first_state(self, config: LoaderConfig) -> LoaderState:
        dataset = self.dataset
        return first_state(
            config,
            digest=dataset.digest,
            num_shards=None if dataset.counts is None else len(dataset.counts),
            packed_shuffled=dataset.packed_shuffled,
            remote=dataset.remote,
            world_size=self.world_size,
        )

    def _plan_of(self, state: LoaderState) -> Plan | None:
        """Return how batches are cut from the order of a state; None in the inexact mode."""
        if self.dataset.num_samples is None:
            return None
        return Plan(
            num_samples=self.dataset.num_samples,
            batch_size=state.batch,
            lanes=state.lanes,
            tail=self.config.tail,
            rank=self.rank,
            world_size=self.world_size,
        )

    def _finished(self) -> bool:
        return self.config.num_epochs is not None and self._state.epoch >= self.config.num_epochs

    def _exact_epoch(self, epoch: int) -> Iterator[Batch]:
        while self._state.epoch == epoch and self._plan is not None:
            plan, start = self._plan, self._state.position
            if self._workers is None:
                task = WorkerTask(table=self.dataset.table, config=self.config, plan=plan, state=self._state)
                self._workers = self._start(task, plan.usable_workers(self.config.num_workers))
            parts = self._workers.take()
            if any((part.epoch, part.position) != (epoch, start) for part in parts):
                raise WorkerError(f"the workers are out of step with epoch {epoch}, position {start}")
            end = plan.after(start)
            following = (epoch, end) if plan.steps_from(end) else (epoch + 1, 0)
            self._state = replace(self._state, epoch=following[0], position=following[1])
            yield self._batch(put_together(parts, num_rows=plan.rows(start)), position=end)

    def _stream_epoch(self, epoch: int) -> Iterator[Batch]:
        self.close()
        self._state = replace(self._state, position=0)
        task = StreamTask(
            table=self.dataset.table,
            config=self.config,
            epoch=epoch,
            rank=self.rank,
            world_size=self.world_size,
        )
        shards_a_rank = -(-len(self.dataset.urls) // self.world_size)
        workers = self._workers = self._start(task, min(self.config.num_workers, shards_a_rank))
        while (part := workers.next()) is not None:
            position = self._state.position + int(part.weights.sum()) * self.world_size
            self._state = replace(self._state, position=position)
            yield self._batch(part, position=position)
        self.close()
        self._state = replace(self._state, epoch=epoch + 1, position=0)

    def _batch(self, part: Part, *, position: int) -> Batch:
        return Batch(
            images=torch.from_numpy(part.images),
            labels=torch.from_numpy(part.labels),
            weights=torch.from_numpy(part.weights),
            keys=part.keys,
            epoch=part.epoch,
            position=position,
            state=self._state.to_dict(),
        )

    def _start(self, task: _Task, num_workers: int) -> _Workers:
        if num_workers < self.config.num_workers and not self._said:
            log.info(
                "%d of %d workers have rows to fill; the others are not started", num_workers, self.config.num_workers
            )
            self._said = True
        workers = _Workers(task, num_workers)
        # A loader that is dropped unclosed must leave no process behind. And when this process ends, its workers have
        # to be told before multiprocessing waits for them, which it does in an exit handler registered earlier.
        self._finalizer = atexit.register(weakref.finalize(self, workers.close))
        return workers


@dataclass(frozen=True, slots=True, eq=False)
class _Envelope:
    """A part on its way between processes: its pixels as a tensor, which torch moves by shared memory."""

    images: torch.Tensor
    part: Part


@dataclass(frozen=True, slots=True, eq=False)
class _Failure:
    """The error that ended a worker, instead of its next part."""

    error: Exception


class _Workers:
    """The stream of parts of one task, from worker processes or (none) from this one."""

    def __init__(self, task: _Task, num_workers: int) -> None:
        self.num_workers = num_workers
        self._processes: list[BaseProcess] = []
        self._taken: list[Part] = []
        self._lifeline: Connection | None = None
        self._local: Iterator[Part] | None = None
        self._remote: Iterator[_Envelope | _Failure] | None = None
        if not num_workers:
            self._local = _parts(task)
            return
        context = worker_context()
        theirs, self._lifeline = context.Pipe(duplex=False)
        loader: DataLoader[Any] = DataLoader(
            _Share(task, theirs),
            batch_size=None,
            num_workers=num_workers,
            collate_fn=_unchanged,
            worker_init_fn=_prepare_worker,
            multiprocessing_context=context,
            # Its own generator: the loader must not draw from torch's global one, which a resume restores.
            generator=torch.Generator(),
        )
        before = set(multiprocessing.active_children())
        self._remote = iter(loader)
        self._processes = [child for child in multiprocessing.active_children() if child not in before]
        theirs.close()

    def take(self) -> list[Part]:
        """Return the next part of every worker. An interruption in the middle loses none."""
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
            raise WorkerError(describe_death(self._processes, cause=str(error))) from error
        if isinstance(received, _Failure):
            raise received.error
        return None if received is None else replace(received.part, images=received.images.numpy())

    def close(self) -> None:
        """End the processes; a second call does nothing."""
        if self._lifeline is not None:
            self._lifeline.close()
        self._local = self._remote = self._lifeline = None
        end_processes(self._processes)
        self._processes = []


class _Share(IterableDataset[_Envelope | _Failure]):
    """One worker's parts, in its process."""

    def __init__(self, task: _Task, lifeline: Connection) -> None:
        self._task = task
        self.lifeline = lifeline

    def __iter__(self) -> Iterator[_Envelope | _Failure]:
        info = get_worker_info()
        task = self._task if info is None else replace(self._task, worker=info.id, num_workers=info.num_workers)
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


def _parts(task: _Task) -> Iterator[Part]:
    return worker_parts(task) if isinstance(task, WorkerTask) else stream_parts(task)


def _unchanged(envelope: Any) -> Any:
    return envelope


def _prepare_worker(_: int) -> None:
    ignore_signals()
    info = get_worker_info()
    if info is None or not isinstance(info.dataset, _Share):
        raise ConfigError("not a worker of this loader")
    follow_lifeline(info.dataset.lifeline)
