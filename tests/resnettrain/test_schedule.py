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


def test_without_a_warmup_the_first_update_has_the_peak_and_the_last_one_more_than_nothing() -> None:
    schedule = make_schedule(
        resolve_config(flags={"optim.lr": 0.4, "schedule.epochs": 1, "schedule.warmup_epochs": 0.0}), epoch_samples=1024
    )
    assert (schedule.warmup_samples, schedule.total_samples) == (0, 1024)
    assert lr_at(0, schedule=schedule) == 0.4
    assert 0 < lr_at(1024 - 64, schedule=schedule) < 0.01


def test_an_epoch_of_one_has_an_eighth_of_warmup_and_ends_at_nothing() -> None:
    schedule = make_schedule(resolve_config(flags={"optim.lr": 0.4, "schedule.epochs": 1}), epoch_samples=1024)
    assert schedule.warmup_samples == 128
    assert [lr_at(samples, schedule=schedule) for samples in (0, 128)] == pytest.approx([0.04, 0.4])
    assert lr_at(1024, schedule=schedule) == pytest.approx(0)


def test_a_cap_does_not_change_the_curve() -> None:
    capped = resolve_config(flags={"schedule.max_samples": 64})
    assert make_schedule(capped, epoch_samples=1000) == make_schedule(recipe("default"), epoch_samples=1000)


def test_without_a_known_length_the_lr_stays_at_its_peak() -> None:
    schedule = make_schedule(recipe("default"), epoch_samples=None)
    assert {lr_at(samples, schedule=schedule) for samples in (0, 10**6, 10**9)} == {schedule.peak_lr}
