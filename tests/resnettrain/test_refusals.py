from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from resnettrain import ConfigError, RuntimeConfig, TrainConfig, require_exporter, require_runnable, with_values


def config(**data: object) -> TrainConfig:
    return with_values(TrainConfig(), {"data": {"urls": ["a.tar"], **data}})


def test_made_up_pictures_take_no_shards_and_other_runs_need_some() -> None:
    require_runnable(config(urls=[], pipeline="synthetic"), world_size=1)
    with pytest.raises(ConfigError, match=r"data\.pipeline: made-up pictures"):
        require_runnable(config(pipeline="synthetic"), world_size=1)
    with pytest.raises(ConfigError, match=r"data\.urls: no shards are named"):
        require_runnable(config(urls=[]), world_size=1)


def test_the_sources_pipeline_has_one_rank_and_its_own_way() -> None:
    require_runnable(config(pipeline="source"), world_size=1)
    with pytest.raises(ConfigError, match=r"the source's own has one rank"):
        require_runnable(config(pipeline="source"), world_size=2)
    with pytest.raises(ConfigError, match=r"data\.lanes, data\.exact: the source's pipeline has its own way"):
        require_runnable(config(pipeline="source", lanes=3, exact=True), world_size=1)


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime", "onnxscript"])
def test_a_format_whose_package_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else "here")
    require_exporter("safetensors")
    require_exporter("torch-export")
    with pytest.raises(ConfigError, match=f"and {missing} is not installed"):
        require_exporter("onnx")


def test_a_format_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"format: 'zip' is none of safetensors, torch-export, onnx"):
        require_exporter("zip")  # type: ignore[arg-type]


def test_events_without_tensorboard_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    wanted = with_values(config(), {"log": {"tensorboard": True}})
    with pytest.raises(ConfigError, match=r"log\.tensorboard: tensorboard is not installed"):
        require_runnable(wanted, world_size=1)
    require_runnable(replace(wanted, log=TrainConfig().log), world_size=1)


@pytest.mark.parametrize("device", ["auto", "cpu", "cpu:0", "cuda", "cuda:7"])
def test_devices_for_training_are_told_by_their_names(device: str) -> None:
    assert RuntimeConfig(device=device).device == device
    with pytest.raises(ConfigError, match=r"runtime\.device: '.*' is no device for training"):
        RuntimeConfig(device=f"{device}x")
