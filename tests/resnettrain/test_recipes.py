from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import resnettrain
from resnettrain import RECIPES, ConfigError, recipe, to_mapping
from wdsloader import SOURCE_URLS

GOLDEN = Path(__file__).parents[1] / "golden" / "recipes.json"


def resolved() -> dict[str, object]:
    return {name: to_mapping(recipe(name)) for name in RECIPES}


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_is_value_for_value_what_it_was(name: str) -> None:
    """A new file, `python -m tests.resnettrain.test_recipes`, is a breaking change: say so in the changelog."""
    assert resolved()[name] == json.loads(GOLDEN.read_text())[name]


def test_every_recipe_is_stored_and_no_other() -> None:
    assert json.loads(GOLDEN.read_text()).keys() == RECIPES.keys()


def test_seed_is_the_source_in_what_decides_its_updates() -> None:
    config = recipe("seed")
    assert (config.data.urls, config.data.batch_size, config.data.num_workers) == ((SOURCE_URLS,), 64, 4)
    optim = config.optim
    assert (optim.kind, optim.lr, optim.momentum, optim.weight_decay) == ("sgd", 0.01, 0.9, 5e-4)
    assert (optim.nesterov, optim.no_decay_1d, optim.clip_norm) == (False, False, None)
    assert (config.schedule.kind, config.schedule.epochs, config.schedule.stop_rule) == ("constant", 1, "exceed")
    assert (config.loss.kind, config.loss.label_smoothing, config.runtime.precision) == ("cross_entropy", 0.0, "fp32")
    assert (config.ema.decay, config.augment.policy, config.augment.mixup, config.augment.cutmix) == (
        None,
        "none",
        0,
        0,
    )


@pytest.mark.parametrize(
    ("name", "global_batch", "peak_lr"),
    [("ffcv16", 4096, 1.7), ("torchvision_v1", 256, 0.1), ("torchvision_v2", 1024, 0.5), ("rsb_a3", 2048, 0.008)],
)
def test_at_the_published_batch_the_rate_is_the_published_one(name: str, global_batch: int, peak_lr: float) -> None:
    config = recipe(name)
    assert replace(config, data=replace(config.data, batch_size=global_batch)).peak_lr == pytest.approx(peak_lr)


def test_the_average_of_torchvision_v2_forgets_as_fast_as_theirs() -> None:
    ema = recipe("torchvision_v2").ema
    assert ema.decay is not None
    assert 1 - ema.decay**ema.every == pytest.approx((1 - 0.99998) * 1024 * 32 / 600, rel=1e-3)


def test_every_recipe_says_where_it_comes_from_and_none_claims_what_nobody_measured() -> None:
    for known in RECIPES.values():
        assert known.source
        assert known.notes
        assert known.measured is None
        if known.published is not None:
            assert 70 < known.published.top1 < 82
            assert str(known.build().schedule.epochs) in known.published.protocol


def test_default_has_warmup_cosine_smoothing_and_no_decay_on_one_dimension() -> None:
    config = recipe("default")
    assert config.schedule.kind == "cosine"
    assert config.schedule.warmup > 0
    assert config.loss.label_smoothing == 0.1
    assert config.optim.no_decay_1d
    assert (config.runtime.precision, config.runtime.channels_last) == ("auto", None)


def test_an_unknown_recipe_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'seed'"):
        recipe("sed")


def test_settings_recipes_and_schedule_import_neither_torch_nor_numpy() -> None:
    code = (
        "import json, sys, resnettrain; resnettrain.resolve_config(overrides=['optim.lr=1']);"
        "print(json.dumps([m for m in ('torch', 'numpy', 'PIL', 'pydantic', 'wdsloader') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("name", resnettrain.__all__)
def test_every_public_name_is_there_and_no_module(name: str) -> None:
    assert type(getattr(resnettrain, name)).__name__ != "module"


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(resolved(), indent=1, sort_keys=True) + "\n")
