from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn, optim
from torch.utils._python_dispatch import TorchDispatchMode

from resnettrain import (
    CheckpointError,
    ConfigError,
    DataMismatchError,
    Event,
    NonFiniteLossError,
    RunFolderError,
    RunStarted,
    TrainReport,
    TrainResult,
    ValReport,
    build_model,
    feed,
    find_checkpoint,
    list_checkpoints,
    read_checkpoint,
    read_metrics,
    resolve_config,
    resume_config,
    source_line,
    to_toml,
    train,
    with_overrides,
)
from tests.helpers.http_server import serve
from tests.helpers.picture_sets import PictureSet, make_picture_set, tiny_config
from wdsloader import ConfigError as LoaderConfigError
from wdsloader import SourceConfig, source_loader

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


def at_samples(samples: int, act: Callable[[], object]) -> Callable[[Event], None]:
    """Return a progress that acts when the report of a certain sample count comes."""

    def progress(event: Event) -> None:
        if isinstance(event, TrainReport) and event.samples == samples:
            act()

    return progress


def learnt(checkpoint: Path | None) -> dict[str, Any]:
    """Return what must be equal bit for bit: weights, buffers, momentum, RNG, position."""
    assert checkpoint is not None
    content = read_checkpoint(checkpoint)
    return {key: content[key] for key in ("model", "optimizer", "rng", "progress", "loader")}


def assert_equal(one: Any, other: Any) -> None:
    """Compare nested values, tensors bit for bit."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_equal(first, second)
    else:
        assert one == other


def losses(run_dir: Path) -> list[tuple[str, int, float]]:
    return [(line["kind"], line["samples"], line["loss"]) for line in read_metrics(run_dir)]


@pytest.fixture(scope="module")
def alone(train_set: PictureSet, val_set: PictureSet, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    """A run of two epochs without workers that nothing disturbed."""
    torch.set_num_threads(1)
    return train(tiny_config(train_set, tmp_path_factory.mktemp("alone") / "run", val=val_set))


# ------------------------------------------------------------------------------------------------------------ learning


def test_it_overfits_eight_pictures(tmp_path: Path) -> None:
    eight = make_picture_set(tmp_path / "eight", counts=(8,))
    fixed = ["augment.scale=[1,1]", "augment.ratio=[1,1]", "augment.flip=false", "loss.label_smoothing=0"]
    config = tiny_config(eight, tmp_path / "run", data__batch_size=8, schedule__epochs=60, checkpoint__every_epochs=60)
    result = train(with_overrides(config, [*fixed, "log.window_steps=1"]))
    assert result.loss is not None
    assert result.loss < 0.01


def test_the_first_loss_is_that_of_guessing(train_set: PictureSet, tmp_path: Path) -> None:
    result = train(tiny_config(train_set, tmp_path / "run", schedule__max_samples=16, loss__label_smoothing=0.0))
    assert result.loss == pytest.approx(1.386, rel=0.25)


# -------------------------------------------------------------------------------------------------------------- resume


@pytest.fixture(scope="module")
def killed(train_set: PictureSet, val_set: PictureSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two runs, `0` and `2` by their workers, killed in the middle of their second epoch."""
    folder = tmp_path_factory.mktemp("killed")
    config = tiny_config(train_set, folder, val=val_set, checkpoint__every_updates=4)
    (folder / "config.toml").write_text(to_toml(config))
    arguments = [str(folder / "config.toml"), str(folder)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED_RUNS, *arguments], timeout=120, check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.split() == ["-9", "-9"]
    return folder


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_run_killed_in_mid_epoch_and_resumed_ends_with_the_same_bits(
    killed: Path, alone: TrainResult, num_workers: int
) -> None:
    run_dir = killed / str(num_workers)
    path, content = find_checkpoint(run_dir)
    assert (content["progress"]["samples"], content["progress"]["batch"]) == (128, 2)
    resumed = train(resume_config(path), resume=run_dir)
    assert (resumed.outcome, resumed.run_dir) == ("completed", run_dir)
    assert_equal(learnt(resumed.checkpoint), learnt(alone.checkpoint))
    assert losses(resumed.run_dir) == losses(alone.run_dir)


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


def test_a_missing_checkpoint_is_an_error_and_nothing_is_made(train_set: PictureSet, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no such checkpoint"):
        train(tiny_config(train_set, tmp_path / "run"), resume=tmp_path / "none.pt")
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------------------------------------------------- refusals


def test_labels_beyond_the_classes_are_refused_before_the_first_step(train_set: PictureSet, tmp_path: Path) -> None:
    with pytest.raises(DataMismatchError, match=r"labels 0\.\.3 are outside 0\.\.2.*model\.num_classes=4"):
        train(tiny_config(train_set, tmp_path / "run", model__num_classes=3))
    assert not (tmp_path / "run").exists()


def test_training_and_validation_of_different_classes_are_refused(train_set: PictureSet, tmp_path: Path) -> None:
    val = make_picture_set(tmp_path / "val", counts=(6,), split="val", num_classes=3)
    with pytest.raises(DataMismatchError, match="different class lists"):
        train(tiny_config(train_set, tmp_path / "run", val=val))


def test_fewer_samples_than_a_batch_are_refused_with_both_numbers(train_set: PictureSet, tmp_path: Path) -> None:
    with pytest.raises(LoaderConfigError, match=r"101 samples, a global batch of 102"):
        train(tiny_config(train_set, tmp_path / "run", data__batch_size=102))


def test_a_run_folder_in_use_is_refused(train_set: PictureSet, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match="is not empty"):
        train(tiny_config(train_set, tmp_path))


def test_a_seed_run_cannot_be_resumed(train_set: PictureSet, tmp_path: Path) -> None:
    train(tiny_config(train_set, tmp_path / "run", schedule__max_samples=16))
    config = tiny_config(train_set, tmp_path / "run", data__pipeline="source")
    with pytest.raises(ConfigError, match="cannot be resumed"):
        train(config, resume=tmp_path / "run")


def test_no_shards_are_refused(train_set: PictureSet, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no shards are named"):
        train(tiny_config(train_set, tmp_path / "run", data__urls=[]))


# ------------------------------------------------------------------------------------------------------------ the loop


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(
    train_set: PictureSet, tmp_path: Path
) -> None:
    config = tiny_config(train_set, tmp_path / "run", optim__lr=1e30, checkpoint__every_updates=1, log__every_s=1e6)
    with pytest.raises(NonFiniteLossError, match=r"epoch 1, sample \d+ of the run: the loss is (nan|inf|-inf).*Keys"):
        train(config)
    weights = learnt(list_checkpoints(tmp_path / "run")[-1])["model"]
    assert all(bool(torch.isfinite(value).all()) for value in weights.values())


@pytest.mark.parametrize(
    ("flags", "samples"),
    [
        ({"schedule__max_samples": 16}, 16),
        ({"schedule__max_samples": 17}, 32),
        ({"schedule__max_samples": 16, "schedule__stop_rule": "exceed"}, 32),
        ({"schedule__max_updates": 3}, 48),
    ],
)
def test_a_cap_ends_the_run_after_these_samples(
    train_set: PictureSet, tmp_path: Path, flags: dict[str, Any], samples: int
) -> None:
    result = train(tiny_config(train_set, tmp_path / "run", **flags))
    assert (result.outcome, result.samples) == ("capped", samples)


def test_no_step_waits_for_the_device(train_set: PictureSet, tmp_path: Path) -> None:
    class Reads(TorchDispatchMode):
        """Counts what `.item()`, `bool()` and `.tolist()` call."""

        count = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            if func.name() == "aten::_local_scalar_dense":
                Reads.count += 1
            return func(*args, **(kwargs or {}))

    counts = []
    for run, updates in (("short", 2), ("long", 5)):
        Reads.count = 0
        with Reads():
            train(tiny_config(train_set, tmp_path / run, schedule__max_updates=updates, log__every_s=1e6))
        counts.append(Reads.count)
    assert counts[0] == counts[1]


def test_only_the_newest_checkpoints_are_kept(train_set: PictureSet, tmp_path: Path) -> None:
    flags = {"checkpoint__every_updates": 1, "checkpoint__keep": 2, "schedule__max_updates": 4}
    train(tiny_config(train_set, tmp_path / "run", **flags))
    names = [path.name for path in list_checkpoints(tmp_path / "run")]
    assert names == ["samples-00000000000048.pt", "samples-00000000000064.pt"]


def test_the_run_folder_tells_the_run(train_set: PictureSet, val_set: PictureSet, tmp_path: Path) -> None:
    events: list[Event] = []
    result = train(tiny_config(train_set, tmp_path / "run", val=val_set), progress=events.append)
    lines = read_metrics(tmp_path / "run")
    assert [(line["kind"], line["samples"]) for line in lines] == [
        *(("train", samples) for samples in range(16, 97, 16)),
        ("val", 96),
        *(("train", samples) for samples in range(112, 193, 16)),
        ("val", 192),
        ("end", 192),
    ]
    assert isinstance(events[0], RunStarted)
    assert (events[0].num_classes, events[0].epoch_batches, events[0].total_samples) == (4, 6, 192)
    reports = [event for event in events if isinstance(event, TrainReport)]
    assert [report.loss for report in reports] == [line["loss"] for line in lines if line["kind"] == "train"]
    assert all(0 <= report.wait_share <= 1 and report.images_per_s > 0 for report in reports)
    vals = [event for event in events if isinstance(event, ValReport)]
    assert [val.count for val in vals] == [101, 101]
    assert result.best_top1 == max(val.top1 for val in vals)
    assert "num_classes = 4" in (tmp_path / "run" / "config.toml").read_text()


def test_without_steps_enough_no_report_is_made(train_set: PictureSet, tmp_path: Path) -> None:
    result = train(tiny_config(train_set, tmp_path / "run", log__min_steps=5, schedule__max_updates=5))
    assert [line["kind"] for line in read_metrics(tmp_path / "run")] == ["end"]
    assert result.loss is not None


def test_bf16_trains_on_the_cpu_as_well(train_set: PictureSet, tmp_path: Path) -> None:
    config = tiny_config(train_set, tmp_path / "run", runtime__precision="bf16", runtime__channels_last=True)
    result = train(with_overrides(config, ["schedule.max_updates=2"]))
    assert result.loss is not None
    assert {value.dtype for value in learnt(result.checkpoint)["model"].values()} == {torch.float32, torch.int64}


def test_shards_without_a_manifest_are_trained_on_at_a_constant_lr_with_a_warning(
    train_set: PictureSet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tiny_config(train_set, tmp_path / "run", model__num_classes=4, schedule__epochs=1)
    with serve(train_set.manifest.parent) as server, caplog.at_level(logging.WARNING):
        urls = [f"{server.url}/{shard.name}" for shard in train_set.shards]
        result = train(replace(config, data=replace(config.data, urls=tuple(urls))))
    assert "the learning rate stays at its peak" in caplog.text
    assert {line["lr"] for line in read_metrics(result.run_dir) if line["kind"] == "train"} == {0.05}
    assert result.samples >= 96


# ---------------------------------------------------------------------------------------------------------------- seed


def source_lines(batches: list[tuple[Tensor, Tensor]], *, model: nn.Module, max_steps: int) -> list[str]:
    """Return what the source's loop prints over these batches with a report at every step, statement by statement."""
    printed: list[str] = []
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    losses: deque[float] = deque(maxlen=100)
    accuracies: deque[float] = deque(maxlen=100)
    steps = 0
    for i, (inputs, labels) in enumerate(batches):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        pred = outputs.cpu().detach().argmax(dim=1, keepdim=True)
        correct = pred.eq(labels.cpu().view_as(pred)).sum().item()
        losses.append(loss.item())
        accuracies.append(correct / float(len(labels)))
        steps += len(inputs)
        if len(losses) > 5:
            printed.append(f"[1, {i + 1}] loss: {np.mean(losses):.5f} correct: {np.mean(accuracies):.5f}")
        if steps > max_steps:
            break
    return printed


@pytest.mark.filterwarnings("ignore:.*shardshuffle")
def test_the_seed_recipe_prints_what_the_source_prints(
    train_set: PictureSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = tuple(map(str, train_set.shards))
    source = SourceConfig(urls=urls, batch_size=8, num_workers=0, cache_dir=None, epoch_batches=9, image_size=32)
    # The source draws anew each time, so one drawing is recorded and given to both loops.
    batches = list(source_loader(source))
    monkeypatch.setattr(feed, "source_loader", lambda config: batches)
    flags = {"data.urls": list(urls), "data.batch_size": 8, "model.name": "tiny", "model.image_size": 32}
    never = {"data.cache_dir": tmp_path, "run_dir": tmp_path / "run", "log.every_s": 0.0, "schedule.max_samples": 56}
    events: list[Event] = []
    result = train(resolve_config(recipe_name="seed", flags={**flags, **never}), progress=events.append)
    model = build_model("tiny", num_classes=1000, seed=0)
    expected = source_lines(batches, model=model, max_steps=56)
    assert [source_line(event) for event in events if isinstance(event, TrainReport)] == expected
    assert (len(expected), result.samples) == (3, 64)
