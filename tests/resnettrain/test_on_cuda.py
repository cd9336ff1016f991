"""What only a machine with a CUDA device can tell of training: `pytest -m cuda` there, a minute or two."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from resnettrain import build_model, read_metrics, resolve_config, train
from resnettrain.feed import DeviceBatch
from resnettrain.numerics import Numerics
from resnettrain.state import TrainState
from resnettrain.step import make_step
from tests.helpers.checkpoints import assert_equal, learnt
from tests.helpers.picture_sets import PictureSet, tiny_config
from tests.helpers.syncs import waiting_is_an_error

pytestmark = pytest.mark.cuda

EVERYTHING: dict[str, Any] = {
    "optim__clip_norm": 1.0,
    "augment__policy": "trivial",
    "augment__mixup": 0.2,
    "augment__cutmix": 1.0,
    "augment__erasing": 0.5,
    "ema__decay": 0.9,
    "runtime__micro_batches": 2,
    "runtime__device": "cuda",
}


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("kind", ["sgd", "lamb"])
@pytest.mark.parametrize("policy", ["trivial", "rand"])
def test_no_step_waits_for_the_device(precision: str, kind: str, policy: str) -> None:
    flags = {**EVERYTHING, "augment__policy": policy, "optim__kind": kind, "runtime__precision": precision}
    config = resolve_config(flags={name.replace("__", "."): flag for name, flag in flags.items()})
    numerics = Numerics.of(config.runtime)
    step = make_step(config, numerics.place(build_model("tiny", num_classes=4, seed=0)), numerics=numerics)
    step.train()
    batch = DeviceBatch(
        images=torch.randint(0, 256, (8, 32, 32, 3), dtype=torch.uint8, device="cuda"),
        labels=torch.arange(8, device="cuda") % 4,
        weights=torch.ones(8, device="cuda"),
        keys=("key",) * 8,
        size=8,
        state=None,
    )
    state = TrainState()
    for number in range(8):
        if number < 2:
            step.run(batch, lr=0.01, state=state)
        else:
            with waiting_is_an_error():
                step.run(batch, lr=0.01, state=state)
        state.samples, state.updates = state.samples + 8, state.updates + 1
    step.guard.check()


@pytest.mark.parametrize("decode", ["cpu", "gpu"])
@pytest.mark.parametrize("kind", ["sgd", "lamb"])
def test_a_deterministic_run_that_is_resumed_learns_the_same_bits(
    train_set: PictureSet, val_set: PictureSet, tmp_path: Path, kind: str, decode: str
) -> None:
    flags = {**EVERYTHING, "optim__kind": kind, "runtime__deterministic": True, "data__decode": decode}
    whole = train(tiny_config(train_set, tmp_path / "whole", val=val_set, **flags))
    config = tiny_config(train_set, tmp_path / "cut", val=val_set, **flags)
    begun = train(replace(config, schedule=replace(config.schedule, max_updates=3)))
    assert (begun.outcome, begun.updates) == ("capped", 3)
    ended = train(config, resume=tmp_path / "cut")
    assert ended.samples == whole.samples
    assert_equal(learnt(ended.checkpoint), learnt(whole.checkpoint))


@pytest.mark.parametrize("mode", ["off", "default", "reduce-overhead"])
def test_pictures_that_grow_are_learnt_from_compiled_or_not(train_set: PictureSet, tmp_path: Path, mode: str) -> None:
    config = tiny_config(
        train_set,
        tmp_path / "run",
        runtime__device="cuda",
        runtime__compile=mode,
        resolution__start_size=16,
        resolution__multiple=16,
        resolution__ramp_start=1,
        resolution__ramp_end=1,
        data__num_workers=2,
    )
    assert train(config).outcome == "completed"
    losses = [line["loss"] for line in read_metrics(config.run_dir) if line["kind"] == "train"]  # type: ignore[arg-type]
    assert losses
    assert all(map(math.isfinite, losses))


def test_an_evaluation_from_the_cache_of_the_device_gives_the_figures_of_the_first(
    train_set: PictureSet, val_set: PictureSet, tmp_path: Path
) -> None:
    found = []
    for cache in ("on", "off"):
        flags = {"runtime__device": "cuda", "runtime__deterministic": True, "eval__cache": cache}
        result = train(tiny_config(train_set, tmp_path / cache, val=val_set, **flags))
        assert result.val is not None
        found.append((result.val.top1, result.val.loss, result.val.count))
    assert found[0] == found[1]
