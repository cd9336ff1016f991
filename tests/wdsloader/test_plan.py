from __future__ import annotations

import pytest

from wdsloader.config import LoaderConfig, Tail
from wdsloader.errors import ConfigError
from wdsloader.plan import LISTED, Plan, choose_block, choose_lanes, first_state
from wdsloader.state import LoaderState


def plan_of(
    num_samples: int, batch_size: int, *, lanes: int = 4, tail: Tail = "pad", layout: tuple[int, int] = (0, 1)
) -> Plan:
    rank, world_size = layout
    return Plan(
        num_samples=num_samples, batch_size=batch_size, lanes=lanes, tail=tail, rank=rank, world_size=world_size
    )


@pytest.mark.parametrize(
    ("batch_size", "world_size", "lanes"),
    [
        (256, 1, 64),  # the largest divisor in 16..64
        (96, 1, 48),
        (8, 1, 8),  # nothing in 16..64: B itself
        (2 * 67, 1, 67),  # nothing in 16..64: the smallest above
        (840, 8, 56),
        (8 * 100, 8, 40),
        (128 * 97, 128, 128),  # more ranks than 64 lanes
        (1, 1, 1),
        (2**31 - 1, 1, 2**31 - 1),  # a prime, at once
    ],
)
def test_default_lanes_follow_the_rule(batch_size: int, world_size: int, lanes: int) -> None:
    assert choose_lanes(batch_size, world_size=world_size) == lanes


@pytest.mark.parametrize(
    ("batch_size", "world_size", "lanes"), [(256, 1, 8), (12, 1, 6), (256, 16, 16), (7, 1, 7), (3, 1, 3)]
)
def test_remote_shards_which_are_fetched_whole_have_fewer_lanes(batch_size: int, world_size: int, lanes: int) -> None:
    assert choose_lanes(batch_size, world_size=world_size, remote=True) == lanes


@pytest.mark.parametrize(
    ("lanes", "num_shards", "packed_shuffled", "block"),
    [(64, 256, True, 1), (64, 255, True, 32), (64, 1282, False, 32), (16, 4, False, 128), (1, 1, False, 2048)],
)
def test_default_block_is_one_only_for_many_shards_packed_in_shuffled_order(
    lanes: int, num_shards: int, packed_shuffled: bool, block: int
) -> None:
    chosen = choose_block(lanes=lanes, spans_per_lane=4, num_shards=num_shards, packed_shuffled=packed_shuffled)
    assert chosen == block


@pytest.mark.parametrize(("batch", "lanes", "block"), [(256, 8, 49), (8, 8, 33), (1024, 8, 193), (250, 5, 75)])
def test_a_block_of_remote_shards_is_little_more_than_a_batch_takes_of_a_lane(
    batch: int, lanes: int, block: int
) -> None:
    chosen = choose_block(lanes=lanes, spans_per_lane=4, num_shards=9, packed_shuffled=False, remote_batch=batch)
    assert chosen == block


def test_a_run_begins_with_what_the_settings_leave_open_decided() -> None:
    def begin(config: LoaderConfig, num_shards: int | None = 300) -> LoaderState:
        return first_state(config, digest="d", num_shards=num_shards, packed_shuffled=True, remote=False, world_size=2)

    state = begin(LoaderConfig(batch_size=64, seed=5))
    assert (state.seed, state.epoch, state.position, state.batch) == (5, 0, 0, 128)
    assert (state.lanes, state.spans_per_lane, state.block) == (64, 4, 1)
    assert begin(LoaderConfig(batch_size=64, lanes=32, block=7)).block == 7
    assert begin(LoaderConfig(batch_size=64, shuffle=False)).lanes == LISTED
    assert begin(LoaderConfig(batch_size=64), num_shards=None).lanes == LISTED


def test_lanes_that_do_not_divide_the_batch_are_refused_with_the_nearest_that_fit() -> None:
    with pytest.raises(
        ConfigError, match=r"10 lanes do not divide the global batch of 96.*8 or 12 fit.*90 or 100 fits"
    ):
        plan_of(1000, 96, lanes=10)


def test_ranks_that_do_not_divide_the_lanes_are_refused_with_the_nearest_that_fit() -> None:
    with pytest.raises(
        ConfigError, match=r"3 ranks do not divide 64 lanes.*48 or 96 fit.*63 or 66 lanes serve 3 ranks"
    ):
        plan_of(1000, 192, lanes=64, layout=(0, 3))


def test_a_batch_that_does_not_divide_over_the_ranks_is_refused() -> None:
    with pytest.raises(ConfigError, match="100 does not divide over 8 ranks; 96 or 104"):
        plan_of(1000, 100, lanes=LISTED, layout=(0, 8))


def test_dropping_everything_is_an_error_that_names_both_numbers() -> None:
    with pytest.raises(
        ConfigError,
        match=r"no whole batch in 7 samples: a global batch has 8\. Use a batch of at most 7 \(--batch-size\)",
    ):
        plan_of(7, 8, tail="drop")


def test_ragged_batches_are_for_one_rank() -> None:
    with pytest.raises(ConfigError, match="one rank"):
        plan_of(100, 8, tail="ragged", layout=(0, 2))


def test_drop_leaves_out_the_last_n_mod_b_and_pad_adds_a_masked_batch() -> None:
    assert plan_of(23, 4, tail="drop").steps_from(0) == 5
    assert plan_of(23, 4, tail="pad").steps_from(0) == 6
    assert plan_of(23, 4, tail="pad").after(20) == 23


def test_the_last_ragged_batch_is_short() -> None:
    plan = plan_of(23, 4, tail="ragged")
    assert [plan.rows(position) for position in (0, 16, 20)] == [4, 4, 3]
    assert plan.positions(20).tolist() == [20, 21, 22]


def test_rank_r_owns_the_lanes_that_are_r_modulo_the_ranks() -> None:
    plan = plan_of(100, 12, lanes=4, layout=(1, 2))
    positions = plan.positions(24)
    assert positions.tolist() == [25, 27, 29, 31, 33, 35]
    assert set((positions % 4).tolist()) == {1, 3}


def test_micro_batch_a_of_a_holds_the_rows_of_rank_a_of_as_many_ranks() -> None:
    alone = plan_of(100, 12, lanes=4).positions(12)
    for rank in range(2):
        assert alone[rank::2].tolist() == plan_of(100, 12, lanes=4, layout=(rank, 2)).positions(12).tolist()


def test_the_listed_order_gives_each_rank_a_contiguous_part_of_every_batch() -> None:
    assert plan_of(100, 12, lanes=LISTED, layout=(1, 3)).positions(24).tolist() == [28, 29, 30, 31]


def test_workers_share_the_rows_by_lane_and_keep_their_lanes_in_every_batch() -> None:
    plan = plan_of(1000, 16, lanes=8, layout=(0, 2))
    for position in (0, 16, 160):
        shares = [plan.rows_of_worker(worker, num_workers=3, position=position).tolist() for worker in range(3)]
        assert sorted(row for share in shares for row in share) == list(range(8))
        lanes = [set((plan.positions(position)[share] % 8).tolist()) for share in shares]
        assert lanes == [{0, 6}, {2}, {4}]


def test_more_workers_than_lanes_are_not_used() -> None:
    assert plan_of(100, 8, lanes=8, layout=(0, 2)).usable_workers(16) == 4
    assert plan_of(100, 6, lanes=LISTED).usable_workers(16) == 6


@pytest.mark.parametrize("position", [-4, 101, 6])
def test_a_position_where_no_batch_starts_cannot_be_resumed(position: int) -> None:
    with pytest.raises(ConfigError, match=f"position {position}"):
        plan_of(100, 8, lanes=4).require_resumable(position)
