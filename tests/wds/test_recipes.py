from __future__ import annotations

import json
import tomllib

import pytest

from resnettrain import RECIPES, recipe, to_mapping
from tests.helpers.cli import invoke


def test_list_names_every_recipe_and_whose_its_figures_are() -> None:
    ended = invoke("recipes", "list")
    assert ended.code == 0
    assert all(f"{name} " in ended.stdout for name in RECIPES)
    assert "published elsewhere: top-1 76.59 %" in ended.stdout
    assert "measured here" not in ended.stdout
    document = json.loads(invoke("recipes", "list", "--json").stdout)
    figures = {entry["name"]: entry["published_elsewhere"] for entry in document["recipes"]}
    assert figures["default"] is None
    assert figures["rsb_a3"]["top1_percent"] == 78.05


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_what_show_prints_is_a_file_for_config(name: str) -> None:
    assert tomllib.loads(invoke("recipes", "show", name).stdout) == to_mapping(recipe(name))
    assert json.loads(invoke("recipes", "show", name, "--json").stdout)["config"] == to_mapping(recipe(name))


def test_show_of_an_unknown_recipe_is_wrong_use_and_names_the_nearest() -> None:
    ended = invoke("recipes", "show", "rsb_a2")
    assert ended.code == 2
    assert "Did you mean 'rsb_a3'" in ended.stderr
