from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from resnettrain import (
    CheckpointError,
    ConfigError,
    Event,
    TrainReport,
    TrainResult,
    find_checkpoint,
    list_checkpoints,
    read_metrics,
    resume_config,
    to_toml,
    train,
    with_overrides,
)
from resnettrain.checkpoint import read_checkpoint, write_checkpoint
from tests.helpers.checkpoints import assert_equal, learnt, losses
from tests.helpers.picture_sets import PictureSet, make_picture_set, tiny_config
from wdsloader import ConfigError as LoaderConfigError

# Forks a run for each (number of workers, folder) and has it killed when the report of 144 samples comes.
KILLED_RUNS = """
import os, signal, sys
from pathlib import Path
from resnettrain import TrainReport, read_toml, train, with_values

def kill(event):
    if isinstance(event, TrainReport) and event.samples == 144:
        signal.raise_signal(signal.SIGKILL)

if __name__ == "__main__":
    config = read_toml(Path(sys.argv[1]))
    for workers in (0, 2):
        child = os.fork()
        if child == 0:
            run_dir = str(Path(sys.argv[2]) / str(workers))
            train(with_values(config, {"run_dir": run_dir, "data": {"num_workers": workers}}), progress=kill)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


# Of two ranks, with the random numbers of one.
TOO_FEW = {"world_size": 2, "torch": torch.zeros(1, 1), "cuda": None, "norms": None}


def at_samples(samples: int, act: Callable[[], object]) -> Callable[[Event], None]:
    """Return a progress that acts when the report of a certain sample count comes."""

    def progress(event: Event) -> None:
        if isinstance(event, TrainReport) and event.samples == samples:
            act()

    return progress


@pytest.fixture(scope="module")
def alone(train_set: PictureSet, val_set: PictureSet, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    """A run of two epochs without workers that nothing disturbed."""
    torch.set_num_threads(1)
    return train(tiny_config(train_set, tmp_path_factory.mktemp("alone") / "run", val=val_set))


@pytest.fixture(scope="module")
def killed(train_set: PictureSet, val_set: PictureSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two runs, `0` and `2` by their workers, killed in the middle of their second epoch."""
    folder = tmp_path_factory.mktemp("killed")
    config = tiny_config(train_set, folder, val=val_set, checkpoint__every_updates=4, checkpoint__background=False)
    (folder / "config.toml").write_text(to_toml(config))
    arguments = [str(folder / "config.toml"), str(folder)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED_RUNS, *arguments], timeout=120, check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.split() == ["-9", "-9"]
    return folder


@pytest.mark.parametrize(("num_workers", "workers_then"), [(0, 2), (2, 0)])
def test_a_run_killed_in_mid_epoch_and_resumed_with_other_workers_ends_with_the_same_bits(
    killed: Path, alone: TrainResult, num_workers: int, workers_then: int
) -> None:
    run_dir = killed / str(num_workers)
    path, content = find_checkpoint(run_dir)
    assert (content["progress"]["samples"], content["progress"]["batch"]) == (128, 2)
    config = with_overrides(resume_config(path), [f"data.num_workers={workers_then}"])
    resumed = train(config, resume=run_dir)
    assert (resumed.outcome, resumed.run_dir) == ("completed", run_dir)
    assert_equal(learnt(resumed.checkpoint), learnt(alone.checkpoint))
    assert losses(resumed.run_dir) == losses(alone.run_dir)


@pytest.mark.slow
@pytest.mark.parametrize("samples", [16, 80, 96, 112])
def test_an_interrupted_run_goes_on_with_the_same_bits_from_any_step(
    train_set: PictureSet, val_set: PictureSet, alone: TrainResult, tmp_path: Path, samples: int
) -> None:
    config = tiny_config(train_set, tmp_path / "stopped", val=val_set)
    stopped = train(config, progress=at_samples(samples, lambda: signal.raise_signal(signal.SIGTERM)))
    assert (stopped.outcome, stopped.signal, stopped.samples) == ("interrupted", signal.SIGTERM, samples)
    resumed = train(resume_config(tmp_path / "stopped"), resume=tmp_path / "stopped")
    assert_equal(learnt(resumed.checkpoint), learnt(alone.checkpoint))
    assert losses(resumed.run_dir) == losses(alone.run_dir)


def test_a_signal_during_the_validation_is_heard_and_the_validation_made_on_resume(
    train_set: PictureSet, val_set: PictureSet, tmp_path: Path
) -> None:
    # The report at the end of an epoch comes right before its validation.
    config = tiny_config(train_set, tmp_path / "run", val=val_set, log__every_s=1e6)
    stopped = train(config, progress=at_samples(96, lambda: signal.raise_signal(signal.SIGINT)))
    assert (stopped.outcome, stopped.samples, stopped.val) == ("interrupted", 96, None)
    train(resume_config(tmp_path / "run"), resume=tmp_path / "run")
    assert [line["samples"] for line in read_metrics(tmp_path / "run") if line["kind"] == "val"] == [96, 192]


PARTS = {"model": "tiny", "num_classes": 4, "image_size": 32, "global_batch": 16, "digest": None, "classes": None}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        *(
            ("model", None),
            ("optimizer", 5),
            ("ranks", {}),
            ("ranks", {"world_size": 2, "torch": torch.zeros(1, 1), "cuda": None, "norms": None}),
            ("ranks", {"world_size": 1, "torch": torch.zeros(1, 3), "cuda": None, "norms": None}),
            ("progress", {"samples": "x"}),
            ("loader", None),
            ("ema", 5),
            ("scaler", 5),
            ("window", torch.zeros(3)),
            ("window", torch.zeros(2, 2, dtype=torch.int8)),
        ),
        *(("window", [1]), ("identity", {"model": "tiny"}), ("config", None), ("config", {"x": 1})),
        ("identity", {**PARTS, "global_batch": "x"}),
        ("identity", {**PARTS, "classes": 5}),
        *(("metrics_lines", "x"), ("metrics_lines", -1), ("version", None), ("loader", {"version": 2})),
    ],
)
def test_a_checkpoint_whose_parts_are_not_what_a_run_writes_is_refused_in_words(
    alone: TrainResult, train_set: PictureSet, tmp_path: Path, part: str, value: object
) -> None:
    assert alone.checkpoint is not None
    content = {**read_checkpoint(alone.checkpoint), part: value}
    damaged = tmp_path / "damaged.pt"
    write_checkpoint(damaged, {name: found for name, found in content.items() if found is not None})
    with pytest.raises((CheckpointError, LoaderConfigError), match=part):
        train(tiny_config(train_set, tmp_path / "run", schedule__epochs=3), resume=damaged)


def test_a_checkpoint_moved_elsewhere_begins_a_new_run_folder(train_set: PictureSet, tmp_path: Path) -> None:
    first = train(tiny_config(train_set, tmp_path / "first", schedule__max_samples=32))
    assert first.checkpoint is not None
    moved = first.checkpoint.rename(tmp_path / "moved.pt")
    config = tiny_config(train_set, tmp_path / "second", schedule__max_samples=64)
    second = train(config, resume=moved)
    assert (second.run_dir, second.samples) == (tmp_path / "second", 64)
    assert [line["samples"] for line in read_metrics(tmp_path / "second")] == [48, 64, 64]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model__name": "resnet18"}, CheckpointError, "another model: tiny there, resnet18 here"),
        ({"model__num_classes": 9}, CheckpointError, "another num_classes: 4 there, 9 here"),
        ({"data__batch_size": 8}, ConfigError, "give --batch-size 16"),
        ({"seed": 7}, LoaderConfigError, "seed"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(
    train_set: PictureSet, tmp_path: Path, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    train(tiny_config(train_set, tmp_path / "run", schedule__max_samples=16))
    with pytest.raises(error, match=message):
        train(tiny_config(train_set, tmp_path / "run", **change), resume=tmp_path / "run")


def test_a_checkpoint_of_other_shards_is_refused(train_set: PictureSet, tmp_path: Path) -> None:
    train(tiny_config(train_set, tmp_path / "run", schedule__max_samples=16))
    other = make_picture_set(tmp_path / "other", counts=(50, 51))
    with pytest.raises(CheckpointError, match="another training shards"):
        train(tiny_config(other, tmp_path / "run"), resume=tmp_path / "run")


@pytest.mark.slow
def test_a_run_resumed_from_an_earlier_checkpoint_leaves_no_later_one_of_the_old_way(
    train_set: PictureSet, tmp_path: Path
) -> None:
    config = tiny_config(train_set, tmp_path / "run", checkpoint__every_updates=1, schedule__max_samples=64)
    first = train(config)
    earlier = list_checkpoints(first.run_dir)[0]
    stop = at_samples(48, lambda: signal.raise_signal(signal.SIGTERM))
    train(with_overrides(config, ["optim.lr=0.01", "checkpoint.keep=1"]), resume=earlier, progress=stop)
    assert find_checkpoint(first.run_dir)[1]["progress"]["samples"] == 48


def test_a_missing_checkpoint_is_an_error_and_nothing_is_made(train_set: PictureSet, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no such checkpoint"):
        train(tiny_config(train_set, tmp_path / "run"), resume=tmp_path / "none.pt")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_model_with_dropout_goes_on_with_the_same_bits(train_set: PictureSet, tmp_path: Path) -> None:
    config = with_overrides(tiny_config(train_set, tmp_path / "alone"), ["model.name=mobilenet_v3_small"])
    alone = train(config)
    stop = at_samples(48, lambda: signal.raise_signal(signal.SIGTERM))
    stopped = train(replace(config, run_dir=tmp_path / "stopped"), progress=stop)
    resumed = train(resume_config(stopped.run_dir), resume=stopped.run_dir)
    assert_equal(learnt(resumed.checkpoint), learnt(alone.checkpoint))


# What a run can do beyond the plain one, and whether it changes what a step finds when it goes on.
EVERYTHING: dict[str, Any] = {
    "augment__alternating_flip": True,
    "augment__policy": "trivial",
    "augment__mixup": 0.2,
    "augment__cutmix": 1.0,
    "augment__erasing": 0.5,
    "ema__decay": 0.9,
    "ema__every": 2,
    "optim__clip_norm": 1.0,
    "runtime__micro_batches": 2,
    "resolution__start_size": 24,
    "resolution__ramp_end": 1,
    "resolution__multiple": 8,
    "model__antialias": True,
}


OTHERWISE: dict[str, Any] = {
    "optim__kind": "lamb",
    "loss__kind": "bce",
    "augment__cutmix": 1.0,
    "ema__decay": 0.9,
    "runtime__precision": "bf16",
    "runtime__micro_batches": 4,
}


@pytest.mark.slow
@pytest.mark.parametrize("flags", [EVERYTHING, OTHERWISE], ids=["everything", "lamb and bf16"])
def test_a_run_with_all_that_a_step_can_do_goes_on_with_the_same_bits(
    flags: dict[str, Any], train_set: PictureSet, tmp_path: Path
) -> None:
    whole = train(tiny_config(train_set, tmp_path / "whole", **flags))
    # In the middle of the second of two epochs, and after an update that the average does not follow.
    capped = train(tiny_config(train_set, tmp_path / "part", schedule__max_updates=9, **flags))
    assert capped.outcome == "capped"
    for workers in (0, 2):
        rest = tiny_config(train_set, tmp_path / f"rest{workers}", data__num_workers=workers, **flags)
        resumed = train(rest, resume=capped.checkpoint)
        assert_equal(learnt(whole.checkpoint), learnt(resumed.checkpoint))
        assert losses(tmp_path / "whole") == losses(tmp_path / "part")[:-1] + losses(tmp_path / f"rest{workers}")


@pytest.mark.slow
def test_the_scale_of_fp16_goes_on_where_it_stood(train_set: PictureSet, tmp_path: Path) -> None:
    flags: dict[str, Any] = {"runtime__precision": "fp16", "model__image_size": 8, "schedule__epochs": 1}
    capped = train(tiny_config(train_set, tmp_path / "run", schedule__max_updates=2, **flags))
    assert capped.checkpoint is not None
    content = read_checkpoint(capped.checkpoint)
    steps = content["scaler"]["_growth_tracker"]
    write_checkpoint(capped.checkpoint, {**content, "scaler": {**content["scaler"], "scale": 256.0}})
    resumed = train(
        tiny_config(train_set, tmp_path / "run", schedule__max_updates=3, **flags), resume=capped.checkpoint
    )
    assert resumed.checkpoint is not None
    scaler = read_checkpoint(resumed.checkpoint)["scaler"]
    assert (scaler["scale"], scaler["_growth_tracker"]) == (256.0, steps + 1)


@pytest.mark.slow
def test_an_average_that_is_switched_on_later_begins_with_the_weights(train_set: PictureSet, tmp_path: Path) -> None:
    capped = train(tiny_config(train_set, tmp_path / "run", schedule__max_updates=2))
    assert capped.checkpoint is not None
    assert read_checkpoint(capped.checkpoint)["ema"] is None
    flags: dict[str, Any] = {"schedule__max_updates": 3, "ema__decay": 0.5, "ema__warmup": False}
    resumed = train(tiny_config(train_set, tmp_path / "run", **flags), resume=capped.checkpoint)
    before = read_checkpoint(capped.checkpoint)["model"]
    assert resumed.checkpoint is not None
    after = read_checkpoint(resumed.checkpoint)
    mean = (before["fc.weight"] + after["model"]["fc.weight"]) / 2
    torch.testing.assert_close(after["ema"]["fc.weight"], mean)
