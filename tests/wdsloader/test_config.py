from __future__ import annotations

from typing import Any

import pytest

from wdsloader.config import AugmentConfig, LoaderConfig
from wdsloader.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: must be an integer of at least 1"),
        ({"batch_size": 2**24 + 1}, "batch_size=16777217: must be at most 16777216"),
        ({"batch_size": 8, "image_size": 65501}, "image_size=65501: must be at most 65500"),
        ({"batch_size": 8.0}, "batch_size=8.0: must be an integer"),
        ({"batch_size": 8, "num_workers": -1}, "num_workers=-1: must be an integer of at least 0"),
        ({"batch_size": 8, "tail": "keep"}, "tail='keep': choose one of drop, pad, ragged"),
        ({"batch_size": 8, "lanes": 0}, "lanes=0: must be an integer of at least 1"),
        ({"batch_size": 8, "num_epochs": 0}, "num_epochs=0"),
        ({"batch_size": 8, "on_error": "pass"}, "on_error='pass': choose one of stop, skip"),
        ({"batch_size": 8, "labels": "some"}, "labels='some': choose one of required, optional"),
        ({"batch_size": 8, "max_skipped": -1}, r"max_skipped=-1: must be a count \(an integer from 0 up\) or a share"),
        ({"batch_size": 8, "max_skipped": 1.5}, "max_skipped=1.5"),
        ({"batch_size": 8, "max_skipped": float("nan")}, "max_skipped=nan"),
        ({"batch_size": 8, "resampled": True}, "say in epoch_samples how many"),
        ({"batch_size": 8, "epoch_samples": 80}, "epoch_samples=80 goes with resampled=True"),
        ({"batch_size": 8, "shuffle": False, "cut": "run"}, "shuffle=False is the order as listed"),
    ],
)
def test_a_setting_out_of_range_is_named_with_its_value(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LoaderConfig(**settings)


@pytest.mark.parametrize(("name", "pair"), [("scale", (0.0, 1.0)), ("scale", (0.5, 1.1)), ("ratio", (2.0, 1.0))])
def test_a_crop_range_out_of_order_is_refused(name: str, pair: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match=f"{name}="):
        AugmentConfig(**{name: pair})  # type: ignore[arg-type]  # one of two fields


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        LoaderConfig(batch_size=8).seed = 1  # type: ignore[misc]  # that it is frozen is the claim
