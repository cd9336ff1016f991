from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from wdsloader.errors import ConfigError
from wdsloader.state import LoaderState

STATE = LoaderState(digest="d1", seed=3, epoch=2, position=640, lanes=64, spans_per_lane=4, block=32, batch=128)


def test_a_state_is_a_small_dict_of_plain_values() -> None:
    state = STATE.to_dict()
    assert state == {
        "version": 2, "resampled": None, "cut": "epoch", "digest": "d1", "seed": 3, "epoch": 2, "position": 640,
        "lanes": 64, "spans_per_lane": 4, "block": 32, "batch": 128,
    }  # fmt: skip
    assert LoaderState.from_dict(state) == STATE


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"version 3.*reads versions 1 and 2"):
        LoaderState.from_dict(STATE.to_dict() | {"version": 3})


def test_a_dict_that_is_no_state_is_refused_with_the_keys_at_fault() -> None:
    with pytest.raises(ConfigError, match="batch"):
        LoaderState.from_dict({name: value for name, value in STATE.to_dict().items() if name != "batch"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("epoch", "x"), ("epoch", -1), ("position", -8), ("position", 1.5), ("lanes", None), ("batch", 0)),
        *(("seed", True), ("resampled", 0), ("digest", 5), ("cut", "day"), ("cut", [])),
    ],
)
def test_a_state_with_a_value_that_no_loader_writes_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"damaged loader state: .*{name}="):
        LoaderState.from_dict(STATE.to_dict() | {name: value})


@pytest.mark.parametrize("state", [None, 5, "epoch", [("epoch", 1)]])
def test_what_is_no_dict_is_refused_as_a_state(state: Any) -> None:
    with pytest.raises(ConfigError, match="not a loader state"):
        LoaderState.from_dict(state)


def test_other_data_is_refused_with_both_digests() -> None:
    with pytest.raises(ConfigError, match="digest d1, here d2"):
        replace(STATE, digest="d2").require_same_order(STATE, source="the saved state")


@pytest.mark.parametrize(("name", "value"), [("seed", 4), ("lanes", 32), ("spans_per_lane", 1), ("block", 1)])
def test_another_order_is_refused_with_the_value_to_set(name: str, value: int) -> None:
    other = replace(STATE, **{name: value})  # type: ignore[arg-type]  # every one of them is an int
    with pytest.raises(ConfigError, match=f"Set {name}={getattr(STATE, name)}"):
        other.require_same_order(STATE, source="the saved state")


def test_a_shuffled_state_does_not_fit_the_order_as_listed() -> None:
    with pytest.raises(ConfigError, match="shuffle=True"):
        replace(STATE, lanes=0, spans_per_lane=1, block=1).require_same_order(STATE, source="the saved state")


def test_a_state_of_version_1_is_read_as_what_it_was() -> None:
    old = {name: value for name, value in STATE.to_dict().items() if name not in ("resampled", "cut")}
    assert LoaderState.from_dict(old | {"version": 1}) == STATE


def test_an_epoch_with_replacement_is_another_order() -> None:
    drawn = replace(STATE, resampled=1000)
    with pytest.raises(
        ConfigError, match="resampled=True with epoch_samples=1000, this loader every sample once an epoch"
    ):
        STATE.require_same_order(drawn, source="the saved state")
