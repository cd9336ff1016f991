"""The laws of ORDER.md, over random shards, lanes, ranks, workers, batch sizes and resume points."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import seeded_permutation
from wdsloader.order import Drawing, EpochOrder, listed_starts
from wdsloader.plan import LISTED, Plan, choose_block, choose_lanes

# Rows of one rank: step -> row -> sample number, None for a masked row.
Delivered = list[list[int | None]]


@dataclass(frozen=True)
class Case:
    counts: tuple[int, ...]
    seed: int
    epoch: int
    lanes: int
    spans_per_lane: int
    block: int
    batch: int
    per_run: bool = False

    @property
    def num_samples(self) -> int:
        return sum(self.counts)

    def order(self) -> EpochOrder:
        return EpochOrder(
            self.counts,
            seed=self.seed,
            epoch=self.epoch,
            lanes=self.lanes,
            spans_per_lane=self.spans_per_lane,
            block=self.block,
            drawing=Drawing(per_run=self.per_run),
        )

    def plan(self, *, rank: int = 0, world_size: int = 1, batch: int | None = None, listed: bool = False) -> Plan:
        return Plan(
            num_samples=self.num_samples,
            batch_size=batch or self.batch,
            lanes=LISTED if listed else self.lanes,
            tail="pad",
            rank=rank,
            world_size=world_size,
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    counts = draw(st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any))
    lanes = draw(st.sampled_from([1, 2, 4, 6, 8, 12]))
    return Case(
        counts=tuple(counts),
        seed=draw(st.integers(0, 2**32 - 1)),
        epoch=draw(st.integers(0, 1000)),
        lanes=lanes,
        spans_per_lane=draw(st.integers(1, 5)),
        block=draw(st.sampled_from([1, 2, 3, 8, 32])),
        batch=lanes * draw(st.integers(1, 4)),
        per_run=draw(st.booleans()),
    )


def divisors(value: int) -> list[int]:
    return [d for d in range(1, value + 1) if value % d == 0]


def deliver(case: Case, plan: Plan, *, num_workers: int, position: int = 0, shuffle: bool = True) -> Delivered:
    """Let the workers of one rank fill their rows, each from its own copy of the order, from a position on."""
    delivered: Delivered = []
    orders = [case.order() for _ in range(num_workers)]
    for _ in range(plan.steps_from(position)):
        positions = plan.positions(position).tolist()
        rows: list[int | None] = [None] * len(positions)
        for worker in range(num_workers):
            for row in plan.rows_of_worker(worker, num_workers=num_workers, position=position).tolist():
                if positions[row] < plan.num_samples:
                    assert rows[row] is None, "two workers fill one row"
                    rows[row] = positions[row] if not shuffle else sample_at(orders[worker], positions[row])
        delivered.append(rows)
        position = plan.after(position)
    return delivered


def sample_at(order: EpochOrder, position: int) -> int:
    lane, offset = position % order.lanes, position // order.lanes
    return int(order.samples(lane, first=offset, stop=offset + 1)[0])


def by_position(case: Case, ranks: list[Delivered], *, batch: int, position: int, listed: bool = False) -> list[int]:
    """Put what the ranks deliver into the order of positions; the masked rows, which are the last, left out."""
    found: dict[int, int] = {}
    for rank, steps in enumerate(ranks):
        for step, rows in enumerate(steps):
            plan = case.plan(rank=rank, world_size=len(ranks), batch=batch, listed=listed)
            for at, sample in zip(plan.positions(position + step * batch).tolist(), rows, strict=True):
                if sample is not None:
                    assert at not in found
                    found[at] = sample
    assert sorted(found) == list(range(position, case.num_samples))
    return [found[at] for at in sorted(found)]


def naive_order(case: Case) -> list[int]:
    """ORDER.md steps 1 to 5, executed sample by sample."""
    starts = listed_starts(case.counts).tolist()
    key = (case.seed, "shards") if case.per_run else (case.seed, case.epoch, "shards")
    shards = seeded_permutation(len(case.counts), key=key).tolist()
    line = [(shard, starts[shard] + i) for shard in shards for i in range(case.counts[shard])]
    lanes: list[list[int]] = []
    start = 0
    for lane in range(case.lanes):
        length = max(0, -(-(len(line) - lane) // case.lanes))
        lanes.append(naive_lane(case, lane, line[start : start + length]))
        start += length
    return [lanes[p % case.lanes][p // case.lanes] for p in range(len(line))]


def naive_lane(case: Case, lane: int, line: list[tuple[int, int]]) -> list[int]:
    spans: list[list[int]] = []
    previous = None
    for shard, sample in line:
        if shard != previous:
            spans.append([])
        spans[-1].append(sample)
        previous = shard
    if case.per_run:
        spans = [spans[i] for i in seeded_permutation(len(spans), key=(case.seed, case.epoch, "spans", lane)).tolist()]
    merged: list[int] = []
    for group in range(0, len(spans), case.spans_per_lane):
        queues = [list(span) for span in spans[group : group + case.spans_per_lane]]
        labels = [label for label, queue in enumerate(queues) for _ in queue]
        key = (case.seed, case.epoch, "merge", lane, group // case.spans_per_lane)
        merged += [queues[labels[i]].pop(0) for i in seeded_permutation(len(labels), key=key).tolist()]
    if case.block == 1:
        return merged
    delivered: list[int] = []
    for first in range(0, len(merged), case.block):
        block = merged[first : first + case.block]
        key = (case.seed, case.epoch, "block", lane, first // case.block)
        delivered += [block[i] for i in seeded_permutation(len(block), key=key).tolist()]
    return delivered


@given(cases())
def test_the_order_is_what_the_text_says_step_by_step(case: Case) -> None:
    assert case.order().positions(first=0, stop=case.num_samples).tolist() == naive_order(case)


class TestPromises:
    """ORDER.md, "The promise": the number of each is in the test's docstring."""

    @given(cases(), st.data())
    def test_every_sample_comes_once_and_batches_are_the_same_over_layouts(
        self, case: Case, data: st.DataObject
    ) -> None:
        """1, 2: exactly once over all ranks together; ranks and workers appear nowhere in the order. 5: equal steps."""
        world_size = data.draw(st.sampled_from(divisors(case.lanes)), label="ranks")
        num_workers = data.draw(st.integers(1, case.lanes // world_size), label="workers")
        alone = deliver(case, case.plan(), num_workers=1)
        ranks = [
            deliver(case, case.plan(rank=rank, world_size=world_size), num_workers=num_workers)
            for rank in range(world_size)
        ]
        assert {len(steps) for steps in ranks} == {len(alone)}
        whole = by_position(case, [alone], batch=case.batch, position=0)
        assert sorted(whole) == list(range(case.num_samples))
        assert by_position(case, ranks, batch=case.batch, position=0) == whole
        for step, rows in enumerate(alone):
            assert [ranks[row % world_size][step][row // world_size] for row in range(len(rows))] == rows

    @given(cases(), st.data())
    def test_a_resume_with_another_layout_and_batch_size_delivers_the_rest_of_the_order(
        self, case: Case, data: st.DataObject
    ) -> None:
        """3, 13: stop anywhere, resume with other ranks, workers, batch size; the rest is what it would have been."""
        whole = case.order().positions(first=0, stop=case.num_samples).tolist()
        position = data.draw(st.integers(0, case.num_samples // case.lanes), label="round") * case.lanes
        batch = case.lanes * data.draw(st.integers(1, 5), label="lanes a batch")
        world_size = data.draw(st.sampled_from(divisors(case.lanes)), label="ranks")
        num_workers = data.draw(st.integers(1, case.lanes // world_size), label="workers")
        ranks = []
        for rank in range(world_size):
            plan = case.plan(rank=rank, world_size=world_size, batch=batch)
            plan.require_resumable(position)
            ranks.append(deliver(case, plan, num_workers=num_workers, position=position))
        assert by_position(case, ranks, batch=batch, position=position) == whole[position:]

    @given(cases())
    def test_every_span_is_read_forward_and_at_most_k_are_open(self, case: Case) -> None:
        """4: every shard is read forward only, by each lane; at most k spans of a lane are begun and unfinished."""
        order = case.order()
        starts = listed_starts(case.counts)
        for lane in range(case.lanes):
            samples = order.merged(lane, first=0, stop=order.lane_length(lane)).tolist()
            blocks = [order.block_of(lane, b).samples.tolist() for b in range(-(-len(samples) // case.block))]
            assert [sample for block in blocks for sample in block] == samples
            shards = [int(starts.searchsorted(sample, side="right")) - 1 for sample in samples]
            places: dict[int, list[int]] = {}
            for place, shard in enumerate(shards):
                places.setdefault(shard, []).append(place)
            for where in places.values():
                read = [samples[place] for place in where]
                assert read == list(range(read[0], read[0] + len(read)))
            begun = [sum(where[0] <= place <= where[-1] for where in places.values()) for place in range(len(samples))]
            assert max(begun, default=0) <= case.spans_per_lane

    @given(cases(), st.data())
    def test_evaluation_counts_every_sample_once_in_listed_order(self, case: Case, data: st.DataObject) -> None:
        """1, 9, 11: evaluation never loses or repeats a sample; equal steps with a mask; order as listed."""
        world_size = data.draw(st.integers(1, 5), label="ranks")
        batch = world_size * data.draw(st.integers(1, 7), label="rows a rank")
        ranks = []
        for rank in range(world_size):
            plan = case.plan(rank=rank, world_size=world_size, batch=batch, listed=True)
            num_workers = data.draw(st.integers(1, plan.rows_per_rank), label="workers")
            ranks.append(deliver(case, plan, num_workers=num_workers, shuffle=False))
        assert len({len(steps) for steps in ranks}) == 1
        assert by_position(case, ranks, batch=batch, position=0, listed=True) == list(range(case.num_samples))


@pytest.mark.parametrize(("batch", "remote"), [(256, False), (256, True), (128, True), (1024, True)])
@pytest.mark.parametrize("packed_shuffled", [False, True])
@pytest.mark.parametrize("num_shards", [1, 4, 16])
def test_no_batch_repeats_as_a_set_over_ten_epochs_with_the_defaults(
    num_shards: int, packed_shuffled: bool, batch: int, remote: bool
) -> None:
    counts = [16_000 // num_shards] * num_shards
    lanes = choose_lanes(batch, world_size=1, remote=remote)
    block = choose_block(
        lanes=lanes,
        spans_per_lane=4,
        num_shards=num_shards,
        packed_shuffled=packed_shuffled,
        remote_batch=batch if remote else None,
    )
    seen: set[frozenset[int]] = set()
    for epoch in range(10):
        order = EpochOrder(counts, seed=0, epoch=epoch, lanes=lanes, spans_per_lane=4, block=block)
        positions = order.positions(first=0, stop=16_000).tolist()
        seen |= {frozenset(positions[at : at + batch]) for at in range(0, 16_000 - batch + 1, batch)}
    assert len(seen) == 10 * (16_000 // batch)
