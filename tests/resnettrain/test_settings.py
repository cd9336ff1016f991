from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resnettrain import (
    RECIPES,
    ConfigError,
    TrainConfig,
    from_toml,
    read_toml,
    recipe,
    resolve_config,
    to_toml,
    with_overrides,
)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_comes_back_from_toml_as_it_was(name: str) -> None:
    assert from_toml(to_toml(recipe(name))) == recipe(name)


@given(
    lr=st.floats(min_value=1e-9, max_value=1e9),
    urls=st.lists(st.text(max_size=20), max_size=3),
    flip=st.booleans(),
    max_samples=st.none() | st.integers(min_value=1, max_value=2**62),
)
def test_settings_come_back_from_toml_as_they_were(
    lr: float, urls: list[str], flip: bool, max_samples: int | None
) -> None:
    flags = {"optim.lr": lr, "data.urls": urls, "augment.flip": flip, "schedule.max_samples": max_samples}
    config = resolve_config(flags=flags)
    assert from_toml(to_toml(config)) == config


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("optim.lrr=1", "optim.lr"),
        ("optimm.lr=1", "optim"),
        ("lr=1", "optim.lr"),
        ("augment.scales=[0.1, 1]", "augment.scale"),
        ("batch_size=3", "data.batch_size"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(override: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown key. Did you mean '{nearest}'"):
        with_overrides(TrainConfig(), [override])


@pytest.mark.parametrize(
    "override",
    [
        "optim.lr='0.1'",
        "optim.lr=true",
        "optim.lr=0,1",
        "schedule.epochs=1.5",
        "schedule.epochs=true",
        "augment.flip=1",
        "augment.scale=[0.1]",
        "augment.scale=0.1",
        "schedule.kind='cosin'",
        "data.urls=[1]",
        "model.name=3",
        "augment=1",
        "optim.lr",
        "=1",
    ],
)
def test_a_value_of_the_wrong_type_is_refused(override: str) -> None:
    with pytest.raises(ConfigError):
        with_overrides(TrainConfig(), [override])


def test_override_values_are_read_as_toml() -> None:
    config = with_overrides(TrainConfig(), ["augment.scale=[0.35,1]", "optim.lr=1e-1", "augment.flip=false"])
    assert config.augment.scale == (0.35, 1.0)
    assert config.optim.lr == 0.1
    assert not config.augment.flip


def test_a_bare_word_is_a_string() -> None:
    config = with_overrides(TrainConfig(), ["schedule.kind=constant", "runtime.device=cuda:0"])
    assert (config.schedule.kind, config.runtime.device) == ("constant", "cuda:0")


def test_a_setting_that_may_be_left_open_takes_none() -> None:
    capped = resolve_config(overrides=["schedule.max_samples=9", "model.init=a.pt", "data.cache_dir=cache"])
    opened = with_overrides(capped, ["schedule.max_samples=none", "model.init=none", 'data.cache_dir="none"'])
    assert (opened.schedule.max_samples, opened.model.init, opened.data.cache_dir) == (None, None, None)
    assert with_overrides(capped, ["augment.policy=none"]).augment.policy == "none"
    with pytest.raises(ConfigError, match=r"schedule\.max_samples: expected a whole number or none, got 'no'"):
        with_overrides(capped, ["schedule.max_samples=no"])
    with pytest.raises(ConfigError, match=r"schedule\.epochs: expected a whole number, got 'none'"):
        with_overrides(capped, ["schedule.epochs=none"])


def test_one_batch_is_left_as_it_is_unless_something_else_was_said() -> None:
    plain = resolve_config(recipe_name="rsb_a3", flags={"data.one_batch": True})
    augment = plain.augment
    assert (augment.scale, augment.ratio, augment.flip, augment.policy) == ((1.0, 1.0), (1.0, 1.0), False, "none")
    assert (augment.mixup, augment.cutmix, augment.erasing, plain.loss.label_smoothing) == (0.0, 0.0, 0.0, 0.0)
    said = resolve_config(overrides=["data.one_batch=true", "augment.mixup=0.2", "loss.label_smoothing=0.1"])
    assert (said.augment.mixup, said.loss.label_smoothing, said.augment.flip) == (0.2, 0.1, False)


def test_flags_beat_overrides_beat_the_file_beats_the_recipe(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('recipe = "seed"\n[optim]\nlr = 0.2\nmomentum = 0.5\nweight_decay = 0.3\n')
    config = resolve_config(file=file, overrides=["optim.lr=0.3", "optim.momentum=0.6"], flags={"optim.lr": 0.4})
    assert (config.optim.lr, config.optim.momentum, config.optim.weight_decay) == (0.4, 0.6, 0.3)
    assert config.schedule.kind == "constant"


def test_a_named_recipe_beats_the_one_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('recipe = "seed"\n')
    assert resolve_config(recipe_name="default", file=file) == recipe("default")


def test_a_flag_that_was_not_given_changes_nothing() -> None:
    assert resolve_config(flags={"optim.lr": None}) == recipe("default")


def test_a_resumed_run_keeps_its_recipe() -> None:
    with pytest.raises(ConfigError, match="begun with 'default'"):
        resolve_config(base=recipe("default"), recipe_name="seed")


def test_a_file_that_is_not_toml_is_an_error_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("optim = ")
    with pytest.raises(ConfigError, match=r"run\.toml: not TOML"):
        read_toml(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path / "none.toml")


def test_settings_that_only_fit_together_can_be_said_in_any_order() -> None:
    pair = ["optim.momentum=0.0", "optim.nesterov=false"]
    for overrides in (pair, pair[::-1]):
        config = with_overrides(TrainConfig(), overrides)
        assert (config.optim.momentum, config.optim.nesterov) == (0.0, False)
    flags = {"runtime.micro_batches": 48, "data.batch_size": 96}
    assert resolve_config(flags=flags).runtime.micro_batches == 48
    # The later one of two for the same key wins, a flag over an override.
    assert with_overrides(TrainConfig(), ["optim.lr=1", "optim.lr=2"]).optim.lr == 2.0
    assert resolve_config(overrides=["data.batch_size=4"], flags={"data.batch_size": 8}).data.batch_size == 8


def test_a_recipe_is_no_setting_that_can_be_overridden() -> None:
    with pytest.raises(ConfigError, match="a recipe is chosen by --recipe"):
        resolve_config(overrides=["recipe=seed"])


def test_a_file_that_is_no_text_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(b"seed = 1 # \xff")
    with pytest.raises(ConfigError, match=r"run\.toml: not TOML: no UTF-8 at byte 11"):
        read_toml(tmp_path / "run.toml")
