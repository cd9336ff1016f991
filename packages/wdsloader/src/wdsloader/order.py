"""Which sample comes when: the shuffled order of one epoch, by lanes. Pure numpy; any part of it can be built alone.

Owns steps 1 to 4 of ORDER.md: the permutation of the shards, the cut into lanes, the interleaving of spans, the block
shuffle. Knows nothing of ranks, workers or batches (``plan`` does), so they cannot enter the order.

The order is a function of (dataset digest, seed, epoch, L, k, W): the digest fixes the sample counts, which come in as
``counts``; the keys of the random words are ``(seed, epoch, "shards")``, ``(seed, epoch, "merge", lane, group)`` and
``(seed, epoch, "block", lane, block)``. A sample's number is its place in the dataset as listed, over
all shards.

Beside the plain epoch there are two others. Resampled: shards are drawn with replacement, key ``(seed, epoch,
"resampled", piece)``, until they hold the samples of an epoch. Cut once a run: the shards are permuted by ``(seed,
"shards")`` for all epochs, and in each the spans of a lane by ``(seed, epoch, "spans", lane)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkit import seeded_permutation, seeded_words

__all__ = ["PLAIN", "Block", "Drawing", "EpochOrder", "Int64s", "listed_starts"]

Int64s = npt.NDArray[np.int64]
# Shards drawn with replacement come in pieces of so many random words.
_DRAWN_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Block:
    """One aligned block of a lane.

    ``samples``: (n,) sample numbers in reading order, forward inside every span. ``slots``: (n,) what is delivered at
    the block's i-th place is ``samples[slots[i]]``.
    """

    samples: Int64s
    slots: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Which shards an epoch is made of, and when they are cut into lanes.

    ``resampled``: None is every shard once; a number is so many samples of shards drawn with replacement. ``per_run``:
    one cut for all epochs.
    """

    resampled: int | None = None
    per_run: bool = False


PLAIN = Drawing()


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
        self,
        counts: npt.ArrayLike,
        *,
        seed: int,
        epoch: int,
        lanes: int,
        spans_per_lane: int,
        block: int,
        drawing: Drawing = PLAIN,
    ) -> None:
        counts = np.asarray(counts, np.int64)
        self.seed, self.epoch = seed, epoch
        self.lanes, self.spans_per_lane, self.block = lanes, spans_per_lane, block
        self._per_run = drawing.per_run
        shards = self._shards(counts, resampled=drawing.resampled)
        self._ends = np.cumsum(counts[shards])
        starts = self._ends - counts[shards]
        if drawing.resampled is not None:
            self._ends[-1] = drawing.resampled
        self.num_samples = int(self._ends[-1]) if len(shards) else 0
        self._shifts = listed_starts(counts)[shards] - starts
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

    def _shards(self, counts: Int64s, *, resampled: int | None) -> Int64s:
        """Return the shards of the epoch along the line, empty ones left out."""
        if resampled is None:
            key = (self.seed, "shards") if self._per_run else (self.seed, self.epoch, "shards")
            shards = seeded_permutation(len(counts), key=key)
            return shards[counts[shards] > 0]
        full = np.flatnonzero(counts)
        pieces: list[Int64s] = []
        held = 0
        while held < resampled:
            words = seeded_words(_DRAWN_AT_ONCE, key=(self.seed, self.epoch, "resampled", len(pieces)))
            # The upper 32 bits of a word scaled to the number of shards; the bias is below that number / 2**32.
            drawn = ((words >> np.uint64(32)) * np.uint64(len(full))) >> np.uint64(32)
            pieces.append(full[drawn.astype(np.int64)])
            held += int(counts[pieces[-1]].sum())
        line = np.concatenate(pieces)
        return line[: int(np.searchsorted(np.cumsum(counts[line]), resampled)) + 1]

    def _lane(self, lane: int) -> _Lane:
        """Cut one lane out of the line; a shard that a cut goes through gives a span to both sides."""
        if lane not in self._lanes:
            # Lane l starts behind the l lanes before it, of which the first N mod L are one sample longer.
            start = lane * (self.num_samples // self.lanes) + min(lane, self.num_samples % self.lanes)
            stop = start + self.lane_length(lane)
            first = int(np.searchsorted(self._ends, start, side="right"))
            last = int(np.searchsorted(self._ends, stop, side="left")) if stop > start else first
            edges = np.concatenate(([start], self._ends[first:last], [stop])) - start
            cut = _Lane(start, edges, self._shifts[first : last + 1])
            self._lanes[lane] = self._permuted(cut, lane) if self._per_run else cut
        return self._lanes[lane]

    def _permuted(self, cut: _Lane, lane: int) -> _Lane:
        """Return the spans of a lane in the order of this epoch, where the cut is the same in all of them."""
        spans = seeded_permutation(len(cut.shifts), key=(self.seed, self.epoch, "spans", lane))
        edges = np.concatenate(([0], np.cumsum(np.diff(cut.edges)[spans])))
        first_samples = (cut.start + cut.edges[:-1] + cut.shifts)[spans]
        return _Lane(cut.start, edges, first_samples - cut.start - edges[:-1])

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
