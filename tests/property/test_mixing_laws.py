"""The laws of ORDER.md for mixtures, for shards drawn with replacement, and for lanes that are cut once a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wdsloader.errors import SampleError
from wdsloader.mixing import MixSchedule, largest_remainder
from wdsloader.order import Drawing, EpochOrder, listed_starts
from wdsloader.state import LoaderState
from wdsloader.windows import MixedLanes, Reading, Taken


@dataclass(frozen=True)
class Mixture:
    counts: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]
    lanes: int
    rounds: int
    seed: int
    block: int
    per_run: bool

    @property
    def batch(self) -> int:
        return self.lanes * self.rounds

    @property
    def part_samples(self) -> tuple[int, ...]:
        return tuple(map(sum, self.counts))

    def schedule(self) -> MixSchedule:
        return MixSchedule(
            part_shards=tuple(map(len, self.counts)),
            part_samples=self.part_samples,
            shares=largest_remainder(self.batch, weights=self.weights),
            lanes=self.lanes,
            seed=self.seed,
        )

    def order(self, *, first_block: int = 0) -> MixedLanes:
        state = LoaderState(
            digest="d", seed=self.seed, epoch=0, position=0, lanes=self.lanes, spans_per_lane=2, block=self.block,
            batch=self.batch, cut="run" if self.per_run else "epoch",
        )  # fmt: skip
        counts = [count for part in self.counts for count in part]
        return MixedLanes(self.schedule(), counts, state=state, first_block=first_block)


@st.composite
def mixtures(draw: st.DrawFn) -> Mixture:
    parts = draw(st.integers(2, 4))
    return Mixture(
        counts=tuple(
            tuple(draw(st.lists(st.integers(0, 12), min_size=1, max_size=5).filter(any))) for _ in range(parts)
        ),
        weights=tuple(draw(st.floats(0.05, 1.0)) for _ in range(parts)),
        lanes=draw(st.sampled_from([1, 2, 3, 4, 8])),
        rounds=draw(st.integers(1, 5)),
        seed=draw(st.integers(0, 2**32 - 1)),
        block=draw(st.sampled_from([1, 3, 8])),
        per_run=draw(st.booleans()),
    )


@given(st.integers(0, 1000), st.lists(st.floats(0.001, 1000.0), min_size=1, max_size=8))
def test_largest_remainder_gives_away_all_and_is_off_by_less_than_one(total: int, weights: list[float]) -> None:
    shares = largest_remainder(total, weights=weights)
    assert sum(shares) == total
    assert all(abs(share - total * weight / sum(weights)) < 1 for share, weight in zip(shares, weights, strict=True))


@given(mixtures(), st.integers(0, 40))
def test_every_block_draws_the_rounded_weights_and_every_lane_as_often(mixture: Mixture, block: int) -> None:
    schedule = mixture.schedule()
    labels = [schedule.labels(block, lane).tolist() for lane in range(mixture.lanes)]
    assert {len(lane) for lane in labels} == {mixture.rounds}
    drawn = Counter(part for lane in labels for part in lane)
    assert tuple(drawn[part] for part in range(len(mixture.counts))) == schedule.shares


@given(mixtures())
def test_what_was_drawn_before_a_block_is_the_sum_of_the_blocks_before(mixture: Mixture) -> None:
    schedule, parts = mixture.schedule(), len(mixture.counts)
    for lane in range(mixture.lanes):
        total = np.zeros(parts, np.int64)
        for block in range(2 * mixture.lanes + 3):
            assert schedule.drawn_before(block, lane).tolist() == total.tolist()
            total += np.bincount(schedule.labels(block, lane), minlength=parts)


def stream_of(mixture: Mixture, *, blocks: int) -> list[tuple[int, int, int]]:
    """Return (part, epoch of the part, sample number) at every position of the first blocks."""
    order = mixture.order()
    starts = listed_starts(mixture.part_samples)
    found = []
    for position in range(blocks * mixture.batch):
        sample, epoch = order.sample_at(position)
        part = int(starts.searchsorted(sample, side="right")) - 1
        found.append((part, epoch, sample))
    return found


class TestPromises:
    """ORDER.md 14, and the promises 1 to 3 for a mixture."""

    @given(mixtures())
    def test_each_part_keeps_epochs_of_its_own_in_which_every_sample_comes_once(self, mixture: Mixture) -> None:
        """After every L blocks, a part has delivered the beginning of its stream of epochs, nothing else."""
        drawn = stream_of(mixture, blocks=mixture.lanes)
        assert len(set(drawn)) == len(drawn), "a sample twice in one epoch of its part"
        starts = listed_starts(mixture.part_samples)
        for part, share in enumerate(mixture.schedule().shares):
            num_samples, count = mixture.part_samples[part], share * mixture.lanes
            by_epoch = Counter(epoch for p, epoch, _ in drawn if p == part)
            whole, rest = divmod(count, num_samples)
            assert by_epoch == Counter({**dict.fromkeys(range(whole), num_samples), **({whole: rest} if rest else {})})
            for epoch in range(whole):
                samples = {sample for p, e, sample in drawn if (p, e) == (part, epoch)}
                assert samples == set(range(int(starts[part]), int(starts[part + 1])))

    @given(mixtures(), st.data())
    def test_lanes_read_by_whoever_owns_them_from_any_place_on_give_the_same_order(
        self, mixture: Mixture, data: st.DataObject
    ) -> None:
        """2, 3: layout and resume point appear nowhere; every sample is read as itself, once."""
        blocks = 3
        whole = [sample for _, _, sample in stream_of(mixture, blocks=blocks)]
        rounds = blocks * mixture.rounds
        for lane in range(mixture.lanes):
            first = data.draw(st.integers(0, rounds - 1), label="round")
            read: list[int] = []
            taken = take(mixture.order(), lane, offsets=range(first, rounds), read=read)
            assert [came.number for came in taken] == whole[lane + first * mixture.lanes :: mixture.lanes]
            assert all(str(came.found).startswith(f"{came.number}: read. ") for came in taken)
            assert len(read) <= rounds - first + len(mixture.counts) * mixture.block

    @given(mixtures())
    def test_an_epoch_of_the_mixture_goes_on_where_the_one_before_ended(self, mixture: Mixture) -> None:
        whole = [sample for _, _, sample in stream_of(mixture, blocks=4)]
        later = mixture.order(first_block=2)
        assert [later.sample_at(p)[0] for p in range(2 * mixture.batch)] == whole[2 * mixture.batch :]


def take(order: MixedLanes, lane: int, *, offsets: range, read: list[int]) -> list[Taken]:
    def reading(sample: int) -> SampleError:
        read.append(sample)
        return SampleError(str(sample), "read")

    window = order.window(lane, reading=Reading(read=reading, will_need=lambda _: None))
    return [window.take(offset) for offset in offsets]


@st.composite
def drawings(draw: st.DrawFn) -> tuple[tuple[int, ...], int, EpochOrder]:
    counts = tuple(draw(st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any)))
    samples = draw(st.integers(1, 3000))
    order = EpochOrder(
        counts,
        seed=draw(st.integers(0, 2**32 - 1)),
        epoch=draw(st.integers(0, 100)),
        lanes=draw(st.sampled_from([1, 2, 4, 12])),
        spans_per_lane=draw(st.integers(1, 5)),
        block=draw(st.sampled_from([1, 8])),
        drawing=Drawing(resampled=samples),
    )
    return counts, samples, order


@given(drawings())
def test_a_resampled_epoch_has_the_stated_length_and_is_made_of_whole_shards(
    drawn: tuple[tuple[int, ...], int, EpochOrder],
) -> None:
    """Each drawn shard comes whole; only the last one is cut short where the epoch ends."""
    counts, samples, order = drawn
    numbers = order.positions(first=0, stop=10 * samples)
    assert len(numbers) == order.num_samples == samples
    times = np.bincount(numbers, minlength=sum(counts))
    ends = 0
    for start, stop in zip(listed_starts(counts)[:-1], listed_starts(counts)[1:], strict=True):
        of_shard = times[start:stop].tolist()
        assert of_shard == sorted(of_shard, reverse=True)
        assert not of_shard or of_shard[0] - of_shard[-1] <= 1
        ends += len(set(of_shard)) > 1
    assert ends <= 1


def test_shards_are_drawn_evenly_and_anew_each_epoch() -> None:
    counts, times, orders = [10] * 8, np.zeros(8, np.int64), set()
    for epoch in range(50):
        order = EpochOrder(
            counts, seed=0, epoch=epoch, lanes=4, spans_per_lane=2, block=8, drawing=Drawing(resampled=1000)
        )
        numbers = order.positions(first=0, stop=1000)
        orders.add(tuple(numbers.tolist()))
        times += np.bincount(numbers // 10, minlength=8)
    assert len(orders) == 50
    # 5,000 drawings of 8 shards: 625 each, with a standard deviation of 23.
    assert np.abs(times / 10 - 625).max() < 5 * 23.4


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any), st.integers(0, 2**32 - 1))
def test_lanes_cut_once_a_run_keep_their_samples_and_change_their_order(counts: list[int], seed: int) -> None:
    orders = [
        EpochOrder(counts, seed=seed, epoch=epoch, lanes=4, spans_per_lane=2, block=8, drawing=Drawing(per_run=True))
        for epoch in range(3)
    ]
    whole = [tuple(order.positions(first=0, stop=sum(counts)).tolist()) for order in orders]
    for lane in range(4):
        kept = {frozenset(order.samples(lane, first=0, stop=order.lane_length(lane)).tolist()) for order in orders}
        assert len(kept) == 1
    if sum(counts) > 30:
        assert len(set(whole)) == 3
