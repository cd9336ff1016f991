"""The order of an epoch as its reader meets it: lane by lane, each read forward and handed out by blocks. Numpy.

At most W samples of a lane wait as packed bytes; what comes next is told ahead, so that it can be fetched. Owns the way
from a lane's offset to the sample there, in one dataset and in a mixture of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from wdsloader.errors import SampleError
from wdsloader.held import HeldBytes, packed_bytes
from wdsloader.mixing import MixSchedule
from wdsloader.order import Drawing, EpochOrder, Int64s, listed_starts
from wdsloader.shards import StoredSample
from wdsloader.state import LoaderState

__all__ = [
    "LaneWindow",
    "Lanes",
    "MixedLanes",
    "PlainLanes",
    "Read",
    "Reading",
    "Taken",
    "WillNeed",
    "Window",
    "epoch_order",
]

# Told ahead at least so many samples of a lane, where its blocks are smaller.
_TOLD_AHEAD = 32

Read = Callable[[int], StoredSample | SampleError]
WillNeed = Callable[[Iterable[int]], None]
_UNLIMITED = 1 << 62


def _no_limit() -> HeldBytes:
    return HeldBytes(_UNLIMITED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a lane reads: ``read`` by number; ``will_need`` is told what comes, if it helps; ``held``: what may wait."""

    read: Read
    will_need: WillNeed | None = None
    held: HeldBytes = field(default_factory=_no_limit)


class Taken(NamedTuple):
    """What came at an offset: the sample's number, the epoch of its dataset, and the sample, or why there is none."""

    number: int
    epoch: int
    found: StoredSample | SampleError


class Window(Protocol):
    """One lane; its offsets must be taken in ascending order."""

    def tell_ahead(self, offset: int) -> None:
        """Say what will be read for an offset, before it is taken."""
        ...

    def take(self, offset: int) -> Taken:
        """Return what comes at an offset of the lane."""
        ...


class Lanes(Protocol):
    """The order of one epoch. ``lanes``: L."""

    lanes: int

    def window(self, lane: int, *, reading: Reading) -> Window:
        """Return a lane to read from."""
        ...

    def sample_at(self, position: int) -> tuple[int, int]:
        """Return (sample number, epoch of its dataset) at a position."""
        ...


def epoch_order(counts: Int64s, state: LoaderState, *, epoch: int) -> EpochOrder:
    """Return the order of an epoch with the settings of a state."""
    return EpochOrder(
        counts,
        seed=state.seed,
        epoch=epoch,
        lanes=state.lanes,
        spans_per_lane=state.spans_per_lane,
        block=state.block,
        drawing=Drawing(resampled=state.resampled, per_run=state.cut == "run"),
    )


class PlainLanes:
    """The lanes of one dataset in one epoch."""

    def __init__(self, order: EpochOrder) -> None:
        self._order = order
        self.lanes = order.lanes

    def window(self, lane: int, *, reading: Reading) -> Window:
        """Return a lane to read from."""
        return LaneWindow(self._order, lane, reading=reading)

    def sample_at(self, position: int) -> tuple[int, int]:
        """Return (sample number, epoch) at a position."""
        return int(self._order.positions(first=position, stop=position + 1)[0]), self._order.epoch


class LaneWindow:
    """The block of a lane that is being drained: read forward as far as needed, handed out in the block's order."""

    def __init__(self, order: EpochOrder, lane: int, *, reading: Reading) -> None:
        self._order, self._lane = order, lane
        self._read, self._will_need, self._buffer = reading.read, reading.will_need, reading.held
        self._number = -1
        self._samples: list[int] = []
        self._slots: list[int] = []
        self._wanted: frozenset[int] = frozenset()
        self._held: dict[int, StoredSample | SampleError] = {}
        self._next = 0
        self._told = 0

    def take(self, offset: int) -> Taken:
        """Return what comes at an offset of the lane."""
        number, place = divmod(offset, self._order.block)
        if number != self._number:
            self._tell_ahead(number * self._order.block)
            block = self._order.block_of(self._lane, number)
            self._number, self._samples, self._slots = number, block.samples.tolist(), block.slots.tolist()
            # What was delivered before a resume is not read again.
            self._wanted, self._held, self._next = frozenset(self._slots[place:]), {}, 0
        slot = self._slots[place]
        while self._next <= slot:
            if self._next in self._wanted:
                self._hold(self._next, due=self._next == slot)
            self._next += 1
        return Taken(self._samples[slot], self._order.epoch, self._hand_out(slot))

    def tell_ahead(self, offset: int) -> None:
        """Say what will be read for an offset, before it is taken."""
        number = offset // self._order.block
        if number != self._number:
            self._tell_ahead(number * self._order.block)

    def _hold(self, place: int, *, due: bool) -> None:
        """Read a sample of the block ahead of its turn, if there is room for it or its turn has come."""
        if due or self._buffer.has_room(block=self._order.block):
            found = self._held[place] = self._read(self._samples[place])
            self._buffer.add(_bytes_of(found))

    def _hand_out(self, place: int) -> StoredSample | SampleError:
        found = self._held.pop(place, None)
        if found is None:
            return self._read(self._samples[place])
        self._buffer.remove(_bytes_of(found))
        return found

    def _tell_ahead(self, offset: int) -> None:
        """Say what this stretch and the next one will read, each once."""
        if self._will_need is None:
            return
        stretch = max(self._order.block, _TOLD_AHEAD)
        stop = min((offset // stretch + 2) * stretch, self._order.lane_length(self._lane))
        first = max(offset, self._told)
        if stop > first:
            self._will_need(self._order.merged(self._lane, first=first, stop=stop).tolist())
            self._told = stop


def _bytes_of(found: StoredSample | SampleError) -> int:
    return 0 if isinstance(found, SampleError) else packed_bytes(found.content)


class MixedLanes:
    """The lanes of a mixture in one epoch of it; every part goes through epochs of its own."""

    def __init__(
        self, schedule: MixSchedule, counts: Sequence[int] | Int64s, *, state: LoaderState, first_block: int
    ) -> None:
        self.lanes = schedule.lanes
        self._schedule, self._state, self._first_block = schedule, state, first_block
        counts = np.asarray(counts, np.int64)
        edges = listed_starts(schedule.part_shards)
        self._counts = [counts[a:b] for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
        self._starts = listed_starts(schedule.part_samples).tolist()
        self._orders: dict[tuple[int, int], EpochOrder] = {}

    def window(self, lane: int, *, reading: Reading) -> Window:
        """Return a lane to read from."""
        return _MixedWindow(self, lane, reading=reading)

    def sample_at(self, position: int) -> tuple[int, int]:
        """Return (sample number, epoch of its part) at a position of the mixture's epoch."""
        part, stream_place = self.place(position % self.lanes, position // self.lanes)
        epoch, place = divmod(stream_place, self._schedule.part_samples[part])
        sample = self.order(part, epoch).positions(first=place, stop=place + 1)
        return self.first_sample(part) + int(sample[0]), epoch

    def place(self, lane: int, offset: int) -> tuple[int, int]:
        """Return (part, place in its endless stream) that an offset of a lane draws from."""
        rounds, offset_in_block = divmod(offset, self._schedule.rounds)
        block = self._first_block + rounds
        labels = self._schedule.labels(block, lane)
        part = int(labels[offset_in_block])
        drawn = int(self._schedule.drawn_before(block, lane)[part]) + int((labels[:offset_in_block] == part).sum())
        return part, lane + self.lanes * drawn

    def order(self, part: int, epoch: int) -> EpochOrder:
        """Return the order of one epoch of a part; those that all lanes have passed are let go of."""
        if (part, epoch) not in self._orders:
            self._orders = {(p, e): o for (p, e), o in self._orders.items() if p != part or abs(e - epoch) <= 1}
            self._orders[part, epoch] = epoch_order(self._counts[part], self._state, epoch=epoch)
        return self._orders[part, epoch]

    def part_samples(self, part: int) -> int:
        """Return the number of samples of a part."""
        return self._schedule.part_samples[part]

    def first_sample(self, part: int) -> int:
        """Return the number that a part's first sample has in the mixture."""
        return int(self._starts[part])


class _MixedWindow:
    """One lane of a mixture: a window into a lane of each part, in that part's epoch."""

    def __init__(self, lanes: MixedLanes, lane: int, *, reading: Reading) -> None:
        self._lanes, self._lane, self._reading = lanes, lane, reading
        self._windows: dict[int, tuple[int, LaneWindow]] = {}

    def tell_ahead(self, offset: int) -> None:
        """Say what will be read for an offset, before it is taken."""
        part, epoch, place = self._find(offset)
        self._window(part, epoch, place=place).tell_ahead(place // self._lanes.lanes)

    def take(self, offset: int) -> Taken:
        """Return what comes at an offset of the lane."""
        part, epoch, place = self._find(offset)
        taken = self._window(part, epoch, place=place).take(place // self._lanes.lanes)
        return Taken(self._lanes.first_sample(part) + taken.number, epoch, taken.found)

    def _find(self, offset: int) -> tuple[int, int, int]:
        """Return (part, its epoch, place in that) of an offset."""
        part, stream_place = self._lanes.place(self._lane, offset)
        return part, *divmod(stream_place, self._lanes.part_samples(part))

    def _window(self, part: int, epoch: int, *, place: int) -> LaneWindow:
        if part not in self._windows or self._windows[part][0] != epoch:
            order, first = self._lanes.order(part, epoch), self._lanes.first_sample(part)
            read, will_need = self._reading.read, self._reading.will_need
            reading = replace(
                self._reading,
                read=lambda sample: read(first + sample),
                will_need=will_need and (lambda samples: will_need(first + sample for sample in samples)),
            )
            # All places of one lane of the mixture are equal modulo L, so in one epoch of a part they are one lane.
            self._windows[part] = epoch, LaneWindow(order, place % order.lanes, reading=reading)
        return self._windows[part][1]
