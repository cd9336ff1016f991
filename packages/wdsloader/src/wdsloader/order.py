"""Which sample comes when: the shuffled order of one epoch, by lanes. Pure numpy; any part of it can be built alone.

Owns steps 1 to 4 of ORDER.md: the permutation of the shards, the cut into lanes, the interleaving of spans, the block
shuffle. Knows nothing of ranks, workers or batches (``plan`` does), so they cannot enter the order.

The order is a function of (dataset digest, seed, epoch, L, k, W): the digest fixes the sample counts, which come in as
``counts``; the keys of the random words are ``(seed, epoch, "shards")``, ``(seed, epoch, "merge", lane, group)`` and
``(seed, epoch, "block", lane, block)``. A sample's number is its place in the dataset as listed, over
all shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkit import seeded_permutation

__all__ = ["Block", "EpochOrder", "Int64s", "listed_starts"]

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """One aligned block of a lane.

    ``samples``: (n,) sample numbers in reading order, forward inside every span. ``slots``: (n,) what is delivered at
    the block's i-th place is ``samples[slots[i]]``.
    """

    samples: Int64s
    slots: Int64s


@dataclass(frozen=True, slots=True)
class _Lane:
    """The spans of one lane.

    ``start``: the lane's place on the line of permuted shards. ``edges``: (spans + 1,) in samples from there.
    ``shifts``: (spans,) such that place on the line + shift is the sample number.
    """

    start: int
    edges: Int64s
    shifts: Int64s


def listed_starts(counts: npt.ArrayLike) -> Int64s:
    """Return the number of every shard's first sample, and the number of all samples at the end: int64 (S + 1,)."""
    return np.concatenate(([0], np.cumsum(np.asarray(counts, np.int64))))


class EpochOrder:
    """The order of one epoch. Holds arrays of the length of the shard list, and one group of spans for each lane used.

    Args: counts: samples of every shard as listed. lanes: L. spans_per_lane: k. block: W.
    """

    def __init__(
        self, counts: npt.ArrayLike, *, seed: int, epoch: int, lanes: int, spans_per_lane: int, block: int
    ) -> None:
        counts = np.asarray(counts, np.int64)
        self.seed, self.epoch = seed, epoch
        self.lanes, self.spans_per_lane, self.block = lanes, spans_per_lane, block
        self.num_samples = int(counts.sum())
        shards = seeded_permutation(len(counts), key=(seed, epoch, "shards"))
        shards = shards[counts[shards] > 0]
        self._ends = np.cumsum(counts[shards])
        self._starts = self._ends - counts[shards]
        self._shifts = listed_starts(counts)[shards] - self._starts
        self._lanes: dict[int, _Lane] = {}
        self._groups: dict[int, tuple[int, Int64s]] = {}

    def lane_length(self, lane: int) -> int:
        """Return the number of samples in a lane: ceil((N - lane) / L)."""
        return max(0, -(-(self.num_samples - lane) // self.lanes))

    def block_of(self, lane: int, number: int) -> Block:
        """Return one block of a lane: what it reads, and the order in which it delivers that."""
        first = number * self.block
        samples = self.merged(lane, first=first, stop=min(first + self.block, self.lane_length(lane)))
        if self.block == 1:
            return Block(samples, np.zeros(len(samples), np.int64))
        return Block(samples, seeded_permutation(len(samples), key=(self.seed, self.epoch, "block", lane, number)))

    def samples(self, lane: int, *, first: int, stop: int) -> Int64s:
        """Return the samples a lane delivers at its offsets [first, stop): int64 (stop - first,)."""
        stop = min(stop, self.lane_length(lane))
        if stop <= first:
            return np.empty(0, np.int64)
        if self.block == 1:
            return self.merged(lane, first=first, stop=stop)
        numbers = range(first // self.block, (stop - 1) // self.block + 1)
        blocks = [self.block_of(lane, number) for number in numbers]
        delivered = np.concatenate([block.samples[block.slots] for block in blocks])
        skipped = first - numbers[0] * self.block
        return delivered[skipped : skipped + stop - first]

    def positions(self, *, first: int, stop: int) -> Int64s:
        """Return the samples at positions [first, stop) of the epoch, over all lanes: int64 (stop - first,)."""
        stop = min(stop, self.num_samples)
        found = np.empty(max(0, stop - first), np.int64)
        for lane in range(self.lanes):
            # The lane's first position at or after `first` is at offset ceil((first - lane) / L).
            begin = max(0, -(-(first - lane) // self.lanes))
            end = max(0, -(-(stop - lane) // self.lanes))
            at = begin * self.lanes + lane - first
            found[at :: self.lanes] = self.samples(lane, first=begin, stop=end)
        return found

    def merged(self, lane: int, *, first: int, stop: int) -> Int64s:
        """Return the samples a lane reads at offsets [first, stop), before the block shuffle: int64 (stop - first,)."""
        edges = self._lane(lane).edges[:: self.spans_per_lane]
        parts = []
        while first < stop:
            group = int(np.searchsorted(edges, first, side="right")) - 1
            samples = self._group(lane, group)
            start = int(edges[group])
            parts.append(samples[first - start : stop - start])
            first += len(parts[-1])
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _lane(self, lane: int) -> _Lane:
        """Cut one lane out of the line; a shard that a cut goes through gives a span to both sides."""
        if lane not in self._lanes:
            # Lane l starts behind the l lanes before it, of which the first N mod L are one sample longer.
            start = lane * (self.num_samples // self.lanes) + min(lane, self.num_samples % self.lanes)
            stop = start + self.lane_length(lane)
            first = int(np.searchsorted(self._ends, start, side="right"))
            last = int(np.searchsorted(self._ends, stop, side="left")) if stop > start else first
            edges = np.concatenate(([start], self._ends[first:last], [stop])) - start
            self._lanes[lane] = _Lane(start, edges, self._shifts[first : last + 1])
        return self._lanes[lane]

    def _group(self, lane: int, group: int) -> Int64s:
        """Return the samples of a group of k spans, in the order of a seeded permutation of its span labels."""
        known, known_samples = self._groups.get(lane, (-1, np.empty(0, np.int64)))
        if known == group:
            return known_samples
        spans = self._lane(lane)
        first = group * self.spans_per_lane
        edges = spans.edges[first : first + self.spans_per_lane + 1]
        lengths = np.diff(edges)
        # The smallest type: numpy sorts up to 16 bits stably by radix, in one pass over the group.
        labels = np.repeat(np.arange(len(lengths), dtype=np.min_scalar_type(len(lengths))), lengths)
        drawn = labels[seeded_permutation(len(labels), key=(self.seed, self.epoch, "merge", lane, group))]
        line = np.empty(len(drawn), np.int64)
        line[np.argsort(drawn, kind="stable")] = np.arange(spans.start + edges[0], spans.start + edges[-1])
        samples: Int64s = line + spans.shifts[first : first + self.spans_per_lane][drawn]
        self._groups[lane] = (group, samples)
        return samples
