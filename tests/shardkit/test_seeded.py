from __future__ import annotations

import numpy as np
import pytest

from shardkit import seeded_permutation, seeded_words
from shardkit.seeded import Key


def test_words_are_pinned() -> None:
    # A change here changes every order and every fake picture: a breaking change.
    assert seeded_words(3, key=(0, "test")).tolist() == [
        11_661_049_858_297_144_888,
        12_215_501_282_367_855_360,
        2_683_316_240_233_514_443,
    ]


def test_permutations_are_pinned() -> None:
    assert seeded_permutation(10, key=(42, 0, "shards")).tolist() == [8, 4, 6, 2, 3, 9, 0, 5, 7, 1]


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_a_permutation_holds_every_number_once(count: int) -> None:
    assert sorted(seeded_permutation(count, key=(1,)).tolist()) == list(range(count))


def test_the_first_words_do_not_depend_on_how_many_are_drawn() -> None:
    assert np.array_equal(seeded_words(5, key=("a",)), seeded_words(1000, key=("a",))[:5])


@pytest.mark.parametrize(
    ("one", "other"), [((1, 23), (12, 3)), ((1,), ("1",)), (("ab", "c"), ("a", "bc")), ((1,), (1, "")), ((), (0,))]
)
def test_keys_that_look_alike_are_told_apart(one: Key, other: Key) -> None:
    assert seeded_words(1, key=one) != seeded_words(1, key=other)


def test_a_numpy_integer_is_the_integer() -> None:
    assert seeded_words(1, key=(int(np.int64(7)),)) == seeded_words(1, key=(np.uint8(7),))  # type: ignore[arg-type]  # by intent


def test_a_name_that_is_not_utf8_is_a_key_as_well() -> None:
    assert seeded_words(1, key=("caf\udce9",)) != seeded_words(1, key=("café",))


def test_types_are_64_bits_wide() -> None:
    assert seeded_words(0, key=()).dtype == np.uint64
    assert seeded_permutation(3, key=()).dtype == np.int64


def test_words_are_uniform() -> None:
    words = seeded_words(4096, key=("uniform",))
    ones = [int(np.count_nonzero(words >> np.uint64(bit) & np.uint64(1))) for bit in range(64)]
    # 2048 expected, 32 is one standard deviation.
    assert min(ones) > 2048 - 5 * 32
    assert max(ones) < 2048 + 5 * 32
