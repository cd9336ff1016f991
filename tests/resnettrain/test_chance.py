from __future__ import annotations

import numpy as np
import pytest

from resnettrain.chance import beta, row_uniforms, uniforms


def test_numbers_follow_from_their_key_alone() -> None:
    assert uniforms(3, key=(1, "a")).tolist() == pytest.approx([0.66178248, 0.10394666, 0.98905133])
    assert uniforms(3, key=(1, "b")).tolist() != uniforms(3, key=(1, "a")).tolist()


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_ranks_share_the_rows_of_one_batch(world_size: int) -> None:
    whole = row_uniforms(8, 3, key=(0, "rows"), rank=0, world_size=1)
    parts = [
        row_uniforms(8 // world_size, 3, key=(0, "rows"), rank=r, world_size=world_size) for r in range(world_size)
    ]
    assert all(np.array_equal(part, whole[rank::world_size]) for rank, part in enumerate(parts))


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5, 1.0])
def test_beta_has_its_mean_and_its_spread(alpha: float) -> None:
    drawn = np.array([beta(alpha, key=(number, "beta")) for number in range(4000)])
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    variance = 1 / (4 * (2 * alpha + 1))
    # Five standard errors.
    assert abs(drawn.mean() - 0.5) < 5 * np.sqrt(variance / len(drawn))
    assert drawn.var() == pytest.approx(variance, rel=0.1)
