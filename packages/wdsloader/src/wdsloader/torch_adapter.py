"""A dataset as batches of torch tensors: worker processes, one epoch per ``iter``, a position with every batch.

Owns the worker processes and the step from numpy to :class:`Batch`. A worker fills its rows of each batch in shared
memory; nothing is copied here, unless a device decodes (``decode_torch``), and a batch is the same for any number of
workers. Workers live on from epoch to epoch.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wdsloader.account import EpochAccount, Fault, Tally
from wdsloader.assembly import Assembler, GoodRow, Part, Settle, as_decoded
from wdsloader.config import LoaderConfig
from wdsloader.dataset import Dataset
from wdsloader.errors import ConfigError, DatasetError, NoLengthError, WorkerError
from wdsloader.machine import default_workers
from wdsloader.mixing import MixedDataset
from wdsloader.pipeline import WorkerTask, find_good_row
from wdsloader.plan import Plan
from wdsloader.session import order_of, plan_of, resumed, schedule_of
from wdsloader.state import LoaderState
from wdsloader.streaming import StreamTask
from wdsloader.workers import Task, Workers

__all__ = ["Batch", "TorchLoader"]

log = logging.getLogger(__name__)

# The account has all; so many are named in the line at the end of an epoch.
_NAMED_FAULTS = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """One batch of a rank.

    ``images``: uint8 (b, size, size, 3), RGB; on the device where one decodes. ``labels``: int64 (b,), -1 without one.
    ``weights``: float32 (b,), 0 for a masked row. ``keys``: None for a masked row. ``position``: samples of ``epoch``
    consumed over all ranks after this batch. ``state``: what :meth:`TorchLoader.load_state_dict` takes to go on behind
    this batch. ``faults``: the samples that were skipped or filtered out of it.

    ``images`` lie in memory that is filled anew once nothing refers to it: no tensor, view, or array. So keep the batch
    until a copy of it to a device that goes on in the background (``non_blocking=True``) is done.
    """

    images: Tensor
    labels: Tensor
    weights: Tensor
    keys: tuple[str | None, ...]
    epoch: int
    position: int
    state: dict[str, int | str | None]
    faults: tuple[Fault, ...] = ()


class TorchLoader:
    """Batches of a dataset: ``for batch in loader`` is one epoch, the rest of it after a resume or a ``break``.

    The next ``iter`` goes on with the next epoch, on the same workers. Close it, or use ``with``.
    Args: device: where ``decode="gpu"`` decodes; None: the current CUDA device. "cpu" decodes there, to try it.
        name: of what is counted, in the line at the end of an epoch; None: "epoch 1" and so on.
    Raises: ConfigError: settings that do not fit each other, the data, the number of ranks or the device.
        DatasetError: unknown sample counts with ``exact``. While it works, also: SkipLimitError: too many samples could
        not be delivered. TransformError: a hook of the user's failed. SampleError, DatasetError, FetchError: under
        ``on_error="stop"``.
    """

    def __init__(
        self,
        dataset: Dataset | MixedDataset,
        config: LoaderConfig,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str | None = None,
        name: str | None = None,
    ) -> None:
        if config.exact and dataset.counts is None:
            raise DatasetError("exact=True, and no manifest says how many samples the shards have; run `wds index`")
        if config.pin_memory and not torch.cuda.is_available():
            raise ConfigError("pin_memory=True is for a CUDA device, and torch finds none")
        self.dataset, self.config = dataset, config
        self.rank, self.world_size, self._name = rank, world_size, name
        asked = config.num_workers
        self.num_workers = default_workers(world_size=world_size) if asked is None else asked
        self._state = order_of(dataset, config, world_size=world_size)
        self._plan = self._plan_of(self._state)
        self._settle: Settle = as_decoded if config.decode == "cpu" else _device_decoder(config, device)
        # On the host by numpy: torch would wake a thread for each core to copy one picture, and they spin for more.
        self._copy: Callable[[Any], Any] = np.copy if config.decode == "cpu" else torch.clone
        self._workers: Workers | None = None
        self._finalizer: Callable[[], object] | None = None
        self._assembler: Assembler | None = None
        self._tally: Tally | None = None
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
        except GeneratorExit:
            raise
        except BaseException:
            # Also when interrupted: what the workers have done since is made again, from the state.
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
        loaded = resumed(
            LoaderState.from_dict(state),
            dataset=self.dataset,
            config=self.config,
            rank=self.rank,
            world_size=self.world_size,
        )
        plan = self._plan_of(loaded)
        if loaded != self._state:
            self.close()
        self._state, self._plan, self._tally = loaded, plan, None

    def close(self) -> None:
        """End the workers; none is left when this returns. Iterating again starts new ones at the same position."""
        if self._finalizer is not None:
            self._finalizer()
            atexit.unregister(self._finalizer)
        self._workers = self._finalizer = self._assembler = None

    @property
    def account(self) -> EpochAccount | None:
        """What the epoch of the last batch was to deliver and did, on this rank; None before the first batch."""
        return None if self._tally is None else self._tally.account()

    def _plan_of(self, state: LoaderState) -> Plan | None:
        return plan_of(state, dataset=self.dataset, config=self.config, rank=self.rank, world_size=self.world_size)

    def _finished(self) -> bool:
        return self.config.num_epochs is not None and self._state.epoch >= self.config.num_epochs

    def _exact_epoch(self, epoch: int) -> Iterator[Batch]:
        while self._state.epoch == epoch and self._plan is not None:
            plan, start = self._plan, self._state.position
            if self._workers is None or self._assembler is None:
                task = self._task(plan)
                self._workers = self._start(task, plan.usable_workers(self.num_workers))
                find_good = partial(find_good_row, task, settle=self._settle)
                self._assembler = Assembler(find_good=find_good, copy=self._copy)
            tally = self._open_tally(epoch, start=start)
            filled = self._workers.take()
            if filled is None:
                raise WorkerError("a loader worker ended before its last batch")
            if any((part.epoch, part.position) != (epoch, start) for part in filled.parts):
                raise WorkerError(f"the workers are out of step with epoch {epoch}, position {start}")
            parts, images = self._settle(filled.parts, filled.memory, num_rows=plan.rows(start))
            whole = self._assembler.assemble(parts, images=images)
            tally.add(whole.faults, delivered=int(whole.weights.sum()))
            end = plan.after(start)
            last = not plan.steps_from(end)
            self._state = replace(self._state, epoch=epoch + last, position=0 if last else end)
            if last:
                tally.dropped = int((plan.positions(end) < plan.num_samples).sum())
                self._close_tally(tally)
            batch = self._batch(whole, images=images, position=end)
            del filled, parts, images
            yield batch

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
        tally = self._open_tally(epoch, start=0)
        workers = self._workers = self._start(task, min(self.num_workers, shards_a_rank))
        assembler = Assembler(find_good=_none_before, copy=self._copy)
        while (filled := workers.take()) is not None:
            num_rows = len(filled.parts[0].rows)
            if num_rows and self.config.tail == "pad":
                num_rows = self.config.batch_size
            parts, images = self._settle(filled.parts, filled.memory, num_rows=num_rows)
            whole = assembler.assemble(parts, images=images)
            delivered = int(whole.weights.sum())
            tally.add(whole.faults, delivered=delivered, lost=whole.lost)
            tally.dropped += whole.dropped
            if not num_rows:
                continue
            position = self._state.position + delivered * self.world_size
            self._state = replace(self._state, position=position)
            batch = self._batch(whole, images=images, position=position)
            del filled, parts, images
            yield batch
        self.close()
        self._state = replace(self._state, epoch=epoch + 1, position=0)
        self._close_tally(tally)

    def _task(self, plan: Plan) -> WorkerTask:
        schedule = schedule_of(self.dataset, self._state)
        return WorkerTask(table=self.dataset.table, config=self.config, plan=plan, state=self._state, schedule=schedule)

    def _open_tally(self, epoch: int, *, start: int) -> Tally:
        if self._tally is None or self._tally.epoch != epoch or self._tally.complete:
            samples = None if self._plan is None else -(-self._plan.num_samples // self.world_size)
            self._tally = Tally(
                epoch=epoch,
                start=start,
                limit=self.config.max_skipped,
                epoch_samples=samples,
                unknown_shards=set(self.dataset.lost_shards),
            )
            self._tally.require_within()
        return self._tally

    def _close_tally(self, tally: Tally) -> None:
        """Say how the epoch went: a warning where samples are missing; nothing needs saying where none can be."""
        tally.complete = True
        account = tally.account()
        clean = not account.replaced and not account.lost_shards
        level = logging.WARNING if not clean else logging.INFO if self.config.on_error == "skip" else logging.DEBUG
        # All samples of a lost shard say the same.
        first = "; ".join(list(dict.fromkeys(map(str, account.faults)))[:_NAMED_FAULTS])
        log.log(level, "%s%s", account.in_words(self._name), f". First: {first}" if first else "")

    def _batch(self, part: Part, *, images: Any, position: int) -> Batch:
        return Batch(
            images=torch.from_numpy(images) if isinstance(images, np.ndarray) else images,
            labels=torch.from_numpy(part.labels),
            weights=torch.from_numpy(part.weights),
            keys=part.keys,
            epoch=part.epoch,
            position=position,
            state=self._state.to_dict(),
            faults=part.faults,
        )

    def _start(self, task: Task, num_workers: int) -> Workers:
        if num_workers < self.num_workers and not self._said:
            log.info("%d of %d workers have rows to fill; the others are not started", num_workers, self.num_workers)
            self._said = True
        workers = Workers(task, num_workers, pin=_pin if self.config.pin_memory else None)
        # A loader that is dropped unclosed must leave no process behind. And when this process ends, its workers have
        # to be told before multiprocessing waits for them, which it does in an exit handler registered earlier.
        self._finalizer = atexit.register(weakref.finalize(self, workers.close))
        return workers


def _device_decoder(config: LoaderConfig, device: torch.device | str | None) -> Settle:
    # Not before it is asked for: torchvision takes a second to import.
    from wdsloader.decode_torch import DeviceDecoder, decoding_device

    return DeviceDecoder(config, device=decoding_device(device)).settle


def _none_before(*, epoch: int, position: int) -> GoodRow | None:  # noqa: ARG001  # a batch has a sample of its own
    return None


def _pin(address: int, *, num_bytes: int) -> Callable[[], object]:
    """Register memory with the CUDA driver; return what undoes it."""
    runtime = torch.cuda.cudart()
    status = int(runtime.cudaHostRegister(address, num_bytes, 0))
    if status:
        log.warning("CUDA cannot pin %d MiB for a batch (error %d): copies to the device wait", num_bytes >> 20, status)
        # CUDA keeps an error until it is asked for it, and the next who asks is torch behind its next kernel.
        with suppress(RuntimeError):
            torch.zeros(1, device="cuda")
        return _nothing
    return partial(runtime.cudaHostUnregister, address)


def _nothing() -> None:
    """Undo nothing."""
