from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardkit.statistics.spread import Spread

PIECES = st.lists(st.lists(st.integers(-5, 2**40), max_size=30), max_size=6)


@given(pieces=PIECES)
def test_values_are_counted_whatever_the_pieces(pieces: list[list[int]]) -> None:
    spread = Spread()
    for piece in pieces:
        spread.add(np.array(piece, np.int64))
    values = [value for piece in pieces for value in piece]
    assert spread.count == len(values)
    assert spread.as_dict() == dict(sorted(Counter(values).items()))


@given(values=st.lists(st.integers(0, 2**40), min_size=1, max_size=200), percent=st.integers(0, 100))
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(values: list[int], percent: int) -> None:
    spread = Spread()
    spread.add(np.array(values, np.int64))
    found = spread.percentiles([percent])[percent]
    enough = [v for v in sorted(values) if 100 * sum(w <= v for w in values) >= percent * len(values)]
    assert found == enough[0]


def test_the_mean_is_exact_where_floating_point_is_not() -> None:
    spread = Spread()
    spread.add(np.array([2**62, 2**62, 2**62 + 3], np.int64))
    assert spread.mean == float(2**62 + 1)
