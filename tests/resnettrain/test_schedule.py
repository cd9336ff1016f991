from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resnettrain import RECIPES, Schedule, lr_at, make_schedule, recipe, resolution_at, resolve_config
from resnettrain.schedule import resolutions

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


# Of every recipe: (epoch, share of the peak, side of the training pictures). The first is before the first update.
TABLE: dict[str, list[tuple[float, float, int]]] = {
    "seed": [(0, 1.0, 224), (0.5, 1.0, 224), (1, 1.0, 224)],
    "default": [(0, 0.1, 224), (1, 0.55, 224), (2, 1.0, 224), (9, 0.5, 224), (16, 0.0, 224)],
    "ffcv16": [(0, 1e-4, 160), (2, 1.0, 160), (9, 0.5, 160), (11, 5 / 14, 160), (12, 4 / 14, 192), (16, 0.0, 192)],
    "ffcv32": [(0, 1e-4, 160), (2, 1.0, 160), (17, 0.5, 160), (24, 8 / 30, 160), (26, 0.2, 192), (32, 0.0, 192)],
    "ffcv88": [(0, 1e-4, 160), (2, 1.0, 160), (45, 0.5, 160), (65, 23 / 86, 160), (76, 12 / 86, 192), (88, 0.0, 192)],
    "torchvision_v1": [(0, 1.0, 224), (29.99, 1.0, 224), (30, 0.1, 224), (60, 0.01, 224), (89, 0.01, 224)],
    "torchvision_v2": [(0, 0.01, 176), (5, 1.0, 176), (302.5, 0.5, 176), (600, 0.0, 176)],
    "rsb_a3": [(0, 1.25e-2, 160), (5, 1.0, 160), (52.5, 0.5, 160), (100, 0.0, 160)],
    "fine-tune": [(0, 0.1, 224), (0.5, 1.0, 224), (5.25, 0.5, 224), (10, 0.0, 224)],
}
EPOCH = 100_000


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_has_this_rate_and_this_size_at_each_moment(name: str) -> None:
    config = recipe(name)
    schedule = make_schedule(config, epoch_samples=EPOCH)
    for epoch, share, side in TABLE[name]:
        rate = lr_at(round(epoch * EPOCH), schedule=schedule)
        assert rate == pytest.approx(share * config.peak_lr, rel=1e-6, abs=1e-9 * config.peak_lr)
        assert resolution_at(int(epoch), config=config) == side
    assert TABLE[name][-1][0] in (config.schedule.epochs, config.schedule.epochs - 1)


@pytest.mark.parametrize("name", sorted(RECIPES))
@given(data=st.data())
def test_a_recipe_warms_up_steadily_and_never_jumps_but_where_it_says_so(name: str, data: st.DataObject) -> None:
    config = recipe(name)
    schedule = make_schedule(config, epoch_samples=EPOCH)
    total = config.schedule.epochs * EPOCH
    samples = data.draw(st.integers(min_value=0, max_value=total - 1))
    now, following = lr_at(samples, schedule=schedule), lr_at(samples + 1, schedule=schedule)
    if samples < schedule.warmup_samples:
        assert following > now
    elif config.schedule.kind != "constant":
        assert following <= now
    steps_down = config.schedule.kind == "step" and (samples + 1) % schedule.step_samples == 0
    assert steps_down or abs(following - now) < schedule.peak_lr * 1e-4


@given(
    start=st.integers(min_value=8, max_value=256),
    growth=st.integers(min_value=0, max_value=256),
    ramp=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    multiple=st.integers(min_value=1, max_value=64),
)
def test_pictures_only_grow_from_the_first_size_to_the_last(
    start: int, growth: int, ramp: tuple[int, int], multiple: int
) -> None:
    flags = {
        "model.image_size": start + growth,
        "resolution.start_size": start,
        "resolution.ramp_start": min(ramp),
        "resolution.ramp_end": max(ramp),
        "resolution.multiple": multiple,
        "schedule.epochs": 24,
    }
    config = resolve_config(flags=flags)
    sides = [resolution_at(epoch, config=config) for epoch in range(24)]
    assert sides == sorted(sides)
    assert sides[max(ramp)] == sides[-1] == start + growth
    assert min(ramp) == max(ramp) or sides[min(ramp)] == start
    assert resolutions(config) == sorted(set(sides))
