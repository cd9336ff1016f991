from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resnettrain import Schedule, lr_at, make_schedule, recipe, resolve_config

COSINE = Schedule(kind="cosine", peak_lr=0.4, warmup_samples=1000, total_samples=5000)


@pytest.mark.parametrize(
    ("samples", "lr"), [(0, 0.04), (500, 0.22), (1000, 0.4), (3000, 0.2), (5000, 0.0), (6000, 0.0)]
)
def test_cosine_has_these_values(samples: int, lr: float) -> None:
    assert lr_at(samples, schedule=COSINE) == pytest.approx(lr)


@given(samples=st.integers(min_value=0, max_value=4999))
def test_lr_is_continuous_rises_in_the_warmup_and_falls_after_it(samples: int) -> None:
    now, following = lr_at(samples, schedule=COSINE), lr_at(samples + 1, schedule=COSINE)
    assert abs(following - now) < 0.4 * 2 / 1000
    assert following > now if samples < 1000 else following < now


@given(samples=st.integers(min_value=0, max_value=10**9))
def test_seed_keeps_its_lr_for_ever(samples: int) -> None:
    assert lr_at(samples, schedule=make_schedule(recipe("seed"), epoch_samples=128192)) == 0.01


def test_a_cap_does_not_change_the_curve() -> None:
    capped = resolve_config(flags={"schedule.max_samples": 64})
    assert make_schedule(capped, epoch_samples=1000) == make_schedule(recipe("default"), epoch_samples=1000)


def test_without_a_known_length_the_lr_stays_at_its_peak() -> None:
    schedule = make_schedule(recipe("default"), epoch_samples=None)
    assert {lr_at(samples, schedule=schedule) for samples in (0, 10**6, 10**9)} == {schedule.peak_lr}
