"""What one worker does: its rows of every batch of its rank, read, decoded and written in place. Numpy, no torch.

Life of a sample here: position (``plan``) -> sample number (``order``) -> bytes (``shards``) -> crop (``augment``) ->
its row of a uint8 array (``decode``). A lane's block is read forward and handed out in the block's order, so at most W
samples of a lane wait as packed bytes. Batches are put together in the main process, by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from shardkit import PictureError, Sample, picture_extension
from wdsloader.augment import Crop, centre_crop, draw
from wdsloader.config import LoaderConfig
from wdsloader.decode import Uint8s, decode_crop
from wdsloader.errors import SampleError
from wdsloader.order import EpochOrder, Int64s
from wdsloader.plan import LISTED, Plan
from wdsloader.shards import SampleReader, ShardTable, StoredSample
from wdsloader.state import LoaderState

__all__ = ["LaneWindow", "Part", "WorkerTask", "decode_sample", "empty_part", "put_together", "worker_parts"]

Float32s = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Some rows of one rank's batch: the batch that starts at ``position`` of ``epoch``.

    ``rows``: (r,) their places in the batch. ``images``: uint8 (r, size, size, 3). ``labels``: (r,), -1 without one.
    ``weights``: (r,), 0 for a masked row. ``keys``: (r,), None for a masked row.
    """

    epoch: int
    position: int
    rows: Int64s
    images: Uint8s
    labels: Int64s
    weights: Float32s
    keys: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTask:
    """Everything one worker needs, to be sent to its process. ``state``: the order, and where to begin in it."""

    table: ShardTable
    config: LoaderConfig
    plan: Plan
    state: LoaderState
    worker: int = 0
    num_workers: int = 1


def worker_parts(task: WorkerTask) -> Iterator[Part]:
    """Yield the worker's part of every batch, epoch after epoch, from the state on.

    Raises: SampleError: a sample that cannot be delivered. DatasetError, FetchError.
    """
    lanes = max(1, task.plan.lanes // task.plan.world_size // task.num_workers)
    # A lane reads k spans in turn; one place more each for the change to its next group.
    reader = SampleReader(task.table, max_indexes=(lanes + 1) * (task.state.spans_per_lane + 1))
    epoch, position = task.state.epoch, task.state.position
    try:
        while task.config.num_epochs is None or epoch < task.config.num_epochs:
            rows = _EpochRows(task, reader, epoch=epoch)
            for _ in range(task.plan.steps_from(position)):
                yield rows.part(position)
                position = task.plan.after(position)
            epoch, position = epoch + 1, 0
    finally:
        reader.close()


def empty_part(num_rows: int, *, size: int, epoch: int, position: int) -> Part:
    """Return a part of rows 0.. that holds nothing yet: black, weight 0, label 0."""
    return Part(
        epoch=epoch,
        position=position,
        rows=np.arange(num_rows),
        images=np.zeros((num_rows, size, size, 3), np.uint8),
        labels=np.zeros(num_rows, np.int64),
        weights=np.zeros(num_rows, np.float32),
        keys=(None,) * num_rows,
    )


def put_together(parts: Sequence[Part], *, num_rows: int) -> Part:
    """Return the rank's whole batch. Rows that no part fills are masked and repeat row 0, for BatchNorm's sake.

    Real rows always come first, so row 0 is one if the rank has any; the batch is the same for any number of workers.
    """
    first = parts[0]
    if len(parts) == 1 and len(first.rows) == num_rows:
        return first
    whole = empty_part(num_rows, size=first.images.shape[1], epoch=first.epoch, position=first.position)
    keys: list[str | None] = [None] * num_rows
    filled = np.zeros(num_rows, bool)
    for part in parts:
        whole.images[part.rows] = part.images
        whole.labels[part.rows] = part.labels
        whole.weights[part.rows] = part.weights
        filled[part.rows] = True
        for row, key in zip(part.rows.tolist(), part.keys, strict=True):
            keys[row] = key
    if filled[0]:
        whole.images[~filled] = whole.images[0]
        whole.labels[~filled] = whole.labels[0]
    return replace(whole, keys=tuple(keys))


class _EpochRows:
    """One worker's rows in one epoch."""

    def __init__(self, task: WorkerTask, reader: SampleReader, *, epoch: int) -> None:
        self._task, self._reader, self._epoch = task, reader, epoch
        state = task.state
        self._order: EpochOrder | None = None
        if task.plan.lanes != LISTED:
            self._order = EpochOrder(
                np.diff(task.table.starts),
                seed=state.seed,
                epoch=epoch,
                lanes=state.lanes,
                spans_per_lane=state.spans_per_lane,
                block=state.block,
            )
        self._windows: dict[int, LaneWindow] = {}

    def part(self, position: int) -> Part:
        """Read and decode the worker's rows of the batch that starts at ``position``."""
        task, size = self._task, self._task.config.image_size
        positions = task.plan.positions(position)
        rows = task.plan.rows_of_worker(task.worker, num_workers=task.num_workers, position=position)
        rows = rows[positions[rows] < task.plan.num_samples]
        filler = task.plan.filler(position) if task.worker == 0 else None
        part = empty_part(len(rows) + (filler is not None), size=size, epoch=self._epoch, position=position)
        part.rows[: len(rows)] = rows
        keys: list[str | None] = [None] * len(part.rows)
        for i, at in enumerate(positions[rows].tolist()):
            number, stored = self._take(at)
            self._decode(number, stored, out=part.images[i])
            part.labels[i], part.weights[i], keys[i] = stored.label, 1, stored.content.key
        if filler is not None:
            number = self._number_at(filler)
            stored = self._reader.read(number)
            self._decode(number, stored, out=part.images[0])
            part.labels[0] = stored.label
        return replace(part, keys=tuple(keys))

    def _take(self, position: int) -> tuple[int, StoredSample]:
        """Return (sample number, sample) at a position; the positions of a lane must come in order."""
        if self._order is None:
            return position, self._reader.read(position)
        lane, offset = position % self._order.lanes, position // self._order.lanes
        if lane not in self._windows:
            self._windows[lane] = LaneWindow(self._order, lane, read=self._reader.read)
        return self._windows[lane].take(offset)

    def _number_at(self, position: int) -> int:
        if self._order is None:
            return position
        return int(self._order.positions(first=position, stop=position + 1)[0])

    def _decode(self, number: int, stored: StoredSample, *, out: Uint8s) -> None:
        decode_sample(stored.content, number, shard=stored.shard, config=self._task.config, epoch=self._epoch, out=out)


class LaneWindow:
    """The block of a lane that is being drained: read forward as far as needed, handed out in the block's order."""

    def __init__(self, order: EpochOrder, lane: int, *, read: Callable[[int], StoredSample]) -> None:
        self._order, self._lane, self._read = order, lane, read
        self._number = -1
        self._samples: list[int] = []
        self._slots: list[int] = []
        self._wanted: frozenset[int] = frozenset()
        self._held: dict[int, StoredSample] = {}
        self._next = 0

    def take(self, offset: int) -> tuple[int, StoredSample]:
        """Return (sample number, sample) at an offset of the lane."""
        number, place = divmod(offset, self._order.block)
        if number != self._number:
            block = self._order.block_of(self._lane, number)
            self._number, self._samples, self._slots = number, block.samples.tolist(), block.slots.tolist()
            # What was delivered before a resume is not read again.
            self._wanted, self._held, self._next = frozenset(self._slots[place:]), {}, 0
        slot = self._slots[place]
        while self._next <= slot:
            if self._next in self._wanted:
                self._held[self._next] = self._read(self._samples[self._next])
            self._next += 1
        return self._samples[slot], self._held.pop(slot)


def decode_sample(
    content: Sample, number: int | str, *, shard: str, config: LoaderConfig, epoch: int, out: Uint8s
) -> None:
    """Write a sample's pixels into its row: a drawn crop, or the evaluation crop.

    Args: number: the sample's number, or another name for it that no other sample has.
    Raises: SampleError: no picture in it, or one that does not decode.
    """
    extension = picture_extension(content.members)
    if extension is None:
        found = ", ".join(sorted(content.members)) or "nothing"
        reason = f"no picture in this sample, only {found}"
        raise SampleError(shard, reason, key=content.key, offset=content.offset)

    def choose(width: int, height: int) -> Crop:
        if config.augment is None:
            return centre_crop(width=width, height=height)
        return draw(config.augment, seed=config.seed, epoch=epoch, sample=number, width=width, height=height)

    try:
        decode_crop(content.members[extension], choose, out=out, max_pixels=config.max_pixels)
    except PictureError as error:
        raise SampleError(shard, f"{extension}: {error}", key=content.key, offset=content.offset) from error
