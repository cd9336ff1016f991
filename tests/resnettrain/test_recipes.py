from __future__ import annotations

import json
import subprocess
import sys

import pytest

import resnettrain
from resnettrain import RECIPES, ConfigError, recipe, to_mapping
from wdsloader import SOURCE_URLS

SEED = {
    "recipe": "seed",
    "seed": 0,
    "data": {
        "urls": [SOURCE_URLS],
        "val_urls": [],
        "cache_dir": "_cache",
        "cache_ignore_query": [],
        "allow_commands": False,
        "pipeline": "source",
        "batch_size": 64,
        "num_workers": 4,
        "exact": False,
        "on_error": "stop",
        "max_skipped": 0.01,
    },
    "model": {"name": "resnet50", "num_classes": 1000, "image_size": 224},
    "optim": {
        "lr": 0.01,
        "lr_per_256": 0.1,
        "momentum": 0.9,
        "weight_decay": 5e-4,
        "nesterov": False,
        "no_decay_1d": False,
    },
    "schedule": {"kind": "constant", "epochs": 1, "warmup_epochs": 0.0, "stop_rule": "exceed"},
    "augment": {"scale": [0.08, 1.0], "ratio": [3 / 4, 4 / 3], "flip": True},
    "loss": {"label_smoothing": 0.0},
    "runtime": {"device": "auto", "precision": "fp32", "channels_last": False},
    "checkpoint": {"every_epochs": 1, "keep": 3},
    "log": {"every_s": 5.0, "window_steps": 100, "min_steps": 5, "at_epoch_end": False},
}


def test_seed_is_the_source_value_for_value() -> None:
    assert to_mapping(recipe("seed")) == SEED


def test_default_has_warmup_cosine_smoothing_and_no_decay_on_one_dimension() -> None:
    config = recipe("default")
    assert config.schedule.kind == "cosine"
    assert config.schedule.warmup > 0
    assert config.loss.label_smoothing == 0.1
    assert config.optim.no_decay_1d
    assert (config.runtime.precision, config.runtime.channels_last) == ("auto", None)


def test_no_recipe_claims_a_figure_that_nobody_measured() -> None:
    assert all(recipe.published is None and recipe.measured is None for recipe in RECIPES.values())


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
