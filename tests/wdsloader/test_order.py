from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wdsloader.order import EpochOrder, listed_starts

GOLDEN = Path(__file__).parents[1] / "golden"


def order_of(case: dict[str, Any], *, epoch: int) -> EpochOrder:
    names = ("seed", "lanes", "spans_per_lane", "block")
    return EpochOrder(case["counts"], epoch=epoch, **{name: case[name] for name in names})


@pytest.mark.parametrize("case", json.loads((GOLDEN / "order_small.json").read_text()), ids=lambda case: case["name"])
def test_small_orders_are_those_of_the_golden_file(case: dict[str, Any]) -> None:
    for epoch, expected in enumerate(case["epochs"]):
        order = order_of(case, epoch=epoch)
        assert order.positions(first=0, stop=order.num_samples).tolist() == expected


def test_the_order_of_16_shards_is_that_of_the_golden_file() -> None:
    case = json.loads((GOLDEN / "order_16_shards.json").read_text())
    for epoch, expected in enumerate(case["epochs"]):
        order = order_of(case, epoch=epoch)
        positions = order.positions(first=0, stop=order.num_samples)
        assert positions[:64].tolist() == expected["first_64"]
        digest = hashlib.blake2b(positions.astype("<i8").tobytes(), digest_size=16).hexdigest()
        assert digest == expected["blake2b_of_all_as_int64_le"]


def test_lanes_have_ceil_of_n_minus_l_over_lanes_samples() -> None:
    order = EpochOrder([5, 6], seed=0, epoch=0, lanes=4, spans_per_lane=1, block=1)
    assert [order.lane_length(lane) for lane in range(4)] == [3, 3, 3, 2]


def test_a_lane_of_one_shard_and_one_span_reads_the_shard_as_it_lies() -> None:
    order = EpochOrder([6], seed=3, epoch=1, lanes=2, spans_per_lane=4, block=1)
    assert order.samples(0, first=0, stop=3).tolist() == [0, 1, 2]
    assert order.samples(1, first=0, stop=3).tolist() == [3, 4, 5]


def test_fewer_samples_than_lanes_leave_lanes_empty() -> None:
    order = EpochOrder([2, 0, 1], seed=0, epoch=0, lanes=8, spans_per_lane=4, block=32)
    assert [order.lane_length(lane) for lane in range(8)] == [1, 1, 1, 0, 0, 0, 0, 0]
    assert sorted(order.positions(first=0, stop=8).tolist()) == [0, 1, 2]


def test_every_epoch_and_every_seed_has_its_own_order() -> None:
    def positions(seed: int, epoch: int) -> tuple[int, ...]:
        order = EpochOrder([50] * 8, seed=seed, epoch=epoch, lanes=8, spans_per_lane=4, block=32)
        return tuple(order.positions(first=0, stop=400).tolist())

    assert len({positions(seed, epoch) for seed in range(3) for epoch in range(3)}) == 9


def test_a_stretch_in_the_middle_is_built_from_the_groups_and_blocks_it_lies_in() -> None:
    counts = [40, 3, 55, 1, 70, 31]
    whole = EpochOrder(counts, seed=5, epoch=2, lanes=4, spans_per_lane=2, block=8).positions(first=0, stop=200)
    for first, stop in ((0, 1), (7, 64), (99, 101), (150, 200), (199, 400)):
        fresh = EpochOrder(counts, seed=5, epoch=2, lanes=4, spans_per_lane=2, block=8)
        assert fresh.positions(first=first, stop=stop).tolist() == whole[first:stop].tolist()


def test_blocks_are_aligned_and_hold_the_samples_the_lane_reads_there() -> None:
    order = EpochOrder([30, 30], seed=1, epoch=0, lanes=2, spans_per_lane=2, block=8)
    block = order.block_of(1, 3)
    assert block.samples.tolist() == order.merged(1, first=24, stop=30).tolist()
    assert sorted(block.slots.tolist()) == list(range(6))


def test_a_billion_samples_in_a_hundred_thousand_shards_are_planned_without_holding_them() -> None:
    order = EpochOrder(np.full(100_000, 10_000), seed=0, epoch=7, lanes=64, spans_per_lane=4, block=32)
    assert len(order.samples(17, first=7_000_000, stop=7_000_032)) == 32


def test_listed_starts_count_over_all_shards() -> None:
    assert listed_starts([3, 0, 2]).tolist() == [0, 3, 3, 5]
