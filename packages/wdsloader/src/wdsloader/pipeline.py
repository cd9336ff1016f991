"""What one worker does: its rows of every batch of its rank, read, decoded and written in place. Numpy, no torch.

Life of a sample here: position (``plan``) -> sample number (``order``, by lane: ``windows``) -> bytes (``reading``) ->
its row of the batch (``rows``): decoded, or its bytes and its crop for a device that decodes. Batches are put together
in the main process, by row (``assembly``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from wdsloader.account import FILTERED, Fault
from wdsloader.assembly import GoodRow, Part, Settle, as_decoded
from wdsloader.config import LoaderConfig
from wdsloader.decode import Uint8s
from wdsloader.encoded import slot_shape
from wdsloader.errors import SampleError
from wdsloader.mixing import MixSchedule
from wdsloader.plan import LISTED, Plan
from wdsloader.reading import PolicyReader
from wdsloader.rows import BatchRows, Identity, rows_of
from wdsloader.shards import ShardTable
from wdsloader.state import LoaderState
from wdsloader.windows import Lanes, MixedLanes, PlainLanes, Reading, Taken, Window, epoch_order

__all__ = ["LaneRows", "WorkerTask", "find_good_row", "lanes_of", "worker_parts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTask:
    """Everything one worker needs, to be sent to its process.

    ``state``: the order, and where to begin in it. ``schedule``: of a mixture; the table has its parts one by one.
    """

    table: ShardTable
    config: LoaderConfig
    plan: Plan
    state: LoaderState
    schedule: MixSchedule | None = None
    worker: int = 0
    num_workers: int = 1

    @property
    def num_lanes(self) -> int:
        """How many lanes the worker reads; 1 where samples come as listed."""
        return max(1, self.plan.lanes // self.plan.world_size // self.num_workers)

    @property
    def max_indexes(self) -> int:
        """How many shards the worker reads in turn."""
        parts = 1 if self.schedule is None else len(self.schedule.shares)
        # A lane reads k spans in turn; one place more each for the change to its next group.
        return (self.num_lanes + 1) * (self.state.spans_per_lane + 1) * parts


def worker_parts(task: WorkerTask, slots: Iterator[Uint8s]) -> Generator[Part, None, None]:
    """Yield the worker's part of every batch, epoch after epoch, from the state on; end where there is no slot more.

    Args: slots: uint8 of ``slot_shape``, one for each batch; a part is written at its rows.
    Raises: SampleError, DatasetError, FetchError: what cannot be delivered, under "stop". TransformError.
    """
    reader = PolicyReader(task.table, task.config, max_indexes=task.max_indexes)
    epoch, position = task.state.epoch, task.state.position
    try:
        while task.config.num_epochs is None or epoch < task.config.num_epochs:
            reader.begin_epoch()
            rows = _EpochRows(task, reader, epoch=epoch)
            for _ in range(task.plan.steps_from(position)):
                memory = next(slots, None)
                if memory is None:
                    return
                yield rows.part(position, memory)
                position = task.plan.after(position)
            epoch, position = epoch + 1, 0
    finally:
        reader.close()


def find_good_row(task: WorkerTask, *, epoch: int, position: int, settle: Settle = as_decoded) -> GoodRow | None:
    """Return the last good row of the rank before the batch that starts at a position; None: the epoch has none.

    Args: settle: as the loader's own batches are.
    """
    reader = PolicyReader(task.table, task.config, max_indexes=1)
    rows = _EpochRows(task, reader, epoch=epoch)
    try:
        while position > 0:
            position = max(0, position - task.plan.batch_size)
            for at in reversed(task.plan.positions(position).tolist()):
                found = rows.good_row(at, settle=settle) if at < task.plan.num_samples else None
                if found is not None:
                    return found
    finally:
        reader.close()
    return None


def lanes_of(task: WorkerTask, *, epoch: int) -> Lanes | None:
    """Return the order of an epoch; None: samples come as listed."""
    if task.plan.lanes == LISTED:
        return None
    counts = np.diff(task.table.starts)
    if task.schedule is None:
        return PlainLanes(epoch_order(counts, task.state, epoch=epoch))
    first_block = epoch * (task.plan.num_samples // task.plan.batch_size)
    return MixedLanes(task.schedule, counts, state=task.state, first_block=first_block)


class LaneRows:
    """The samples of one epoch by position, for one reader; the positions of a lane must come in order."""

    def __init__(self, task: WorkerTask, reader: PolicyReader, *, epoch: int) -> None:
        self._task, self._reader, self._epoch = task, reader, epoch
        self._lanes = lanes_of(task, epoch=epoch)
        self._windows: dict[int, Window] = {}
        reader.held.begin(num_lanes=task.num_lanes)
        will_need = reader.will_need if reader.fetches else None
        self._reading = Reading(read=reader.read, will_need=will_need, held=reader.held)

    def tell_ahead(self, positions: Sequence[int]) -> None:
        """Say what will be read for these positions, of all lanes before the first is read."""
        if self._lanes is None or self._reading.will_need is None:
            return
        told: set[int] = set()
        for position in positions:
            lane = position % self._lanes.lanes
            if lane not in told:
                told.add(lane)
                self._window(lane).tell_ahead(position // self._lanes.lanes)

    def take(self, position: int) -> Taken:
        """Return what comes at a position."""
        if self._lanes is None:
            return Taken(position, self._epoch, self._reader.read(position))
        lane, offset = position % self._lanes.lanes, position // self._lanes.lanes
        return self._window(lane).take(offset)

    def _window(self, lane: int) -> Window:
        if lane not in self._windows and self._lanes is not None:
            self._windows[lane] = self._lanes.window(lane, reading=self._reading)
        return self._windows[lane]

    def look_up(self, position: int) -> Taken:
        """Return what comes at a position, by itself, in any order."""
        number, epoch = (position, self._epoch) if self._lanes is None else self._lanes.sample_at(position)
        return Taken(number, epoch, self._reader.read(number))

    def identity(self, taken: Taken, *, position: int) -> Identity:
        """Return which sample it is for whatever is drawn for it."""
        # Where shards are drawn with replacement a sample may come twice in an epoch, and shall not look the same.
        name = f"{taken.number}@{position}" if self._task.state.resampled else taken.number
        return Identity(name=name, number=taken.number, epoch=taken.epoch)


class _EpochRows:
    """One worker's rows in one epoch."""

    def __init__(self, task: WorkerTask, reader: PolicyReader, *, epoch: int) -> None:
        self._task, self._epoch = task, epoch
        self._rows = LaneRows(task, reader, epoch=epoch)

    def part(self, position: int, memory: Uint8s) -> Part:
        """Read and deliver the worker's rows of the batch that starts at ``position``; bad ones are left out of it."""
        plan = self._task.plan
        rows = plan.rows_of_worker(self._task.worker, num_workers=self._task.num_workers, position=position)
        target = rows_of(memory, config=self._task.config)
        positions = plan.positions(position)
        rows = rows[positions[rows] < plan.num_samples]
        labels: list[int] = []
        keys: list[str | None] = []
        faults: list[Fault] = []
        good: list[int] = []
        self._rows.tell_ahead(positions[rows].tolist())
        for row, at in zip(rows.tolist(), positions[rows].tolist(), strict=True):
            taken = self._rows.take(at)
            try:
                labels.append(self._deliver(taken, target, row=row, position=at))
            except SampleError as error:
                if self._task.config.on_error == "stop" and error.kind != FILTERED:
                    raise
                faults.append(Fault.of(error, position=at))
                continue
            good.append(row)
            keys.append(None if isinstance(taken.found, SampleError) else taken.found.content.key)
        return Part(
            epoch=self._epoch,
            position=position,
            rows=np.asarray(good, np.int64),
            labels=np.asarray(labels, np.int64),
            weights=np.ones(len(good), np.float32),
            keys=tuple(keys),
            faults=tuple(faults),
            encoded=tuple(target.encoded),
        )

    def good_row(self, position: int, *, settle: Settle) -> GoodRow | None:
        """Return the row of a position by itself, None where it is masked."""
        memory = np.zeros((1, *slot_shape(self._task.config)[1:]), np.uint8)
        target = rows_of(memory, config=self._task.config)
        taken = self._rows.look_up(position)
        try:
            label = self._deliver(taken, target, row=0, position=position)
            part = Part(
                epoch=self._epoch,
                position=position,
                rows=np.zeros(1, np.int64),
                labels=np.asarray([label], np.int64),
                weights=np.ones(1, np.float32),
                keys=(None,),
                encoded=tuple(target.encoded),
            )
            (settled,), images = settle([part], memory, num_rows=1)
        except SampleError:
            return None
        return (images[0], label) if len(settled.rows) else None

    def _deliver(self, taken: Taken, target: BatchRows, *, row: int, position: int) -> int:
        """Write a sample into its row; return its label. Raises: SampleError: bad, or filtered out."""
        if isinstance(taken.found, SampleError):
            raise taken.found
        identity = self._rows.identity(taken, position=position)
        return target.deliver(taken.found, identity, row=row, position=position)
