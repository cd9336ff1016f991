from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from resnettrain import (
    ConfigError,
    DataMismatchError,
    Event,
    NonFiniteLossError,
    RunEnded,
    RunFolderError,
    RunStarted,
    TrainReport,
    ValReport,
    list_checkpoints,
    read_checkpoint,
    read_metrics,
    train,
    with_overrides,
)
from tests.helpers.checkpoints import learnt
from tests.helpers.damaged import write_with_bad_pictures
from tests.helpers.http_server import serve
from tests.helpers.picture_sets import PictureSet, make_picture_set, tiny_config
from tests.helpers.syncs import Syncs
from wdsloader import ConfigError as LoaderConfigError
from wdsloader import SampleError


@pytest.mark.slow
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


def test_the_start_tells_how_many_samples_fill_no_batch(train_set: PictureSet, tmp_path: Path) -> None:
    events: list[Event] = []
    train(tiny_config(train_set, tmp_path / "run", schedule__max_updates=1), progress=events.append)
    (begun,) = (event for event in events if isinstance(event, RunStarted))
    assert (begun.dataset_samples, begun.epoch_batches, begun.left_out) == (101, 6, 5)


def test_labels_beyond_the_classes_are_refused_before_the_first_step(train_set: PictureSet, tmp_path: Path) -> None:
    with pytest.raises(DataMismatchError, match=r"labels 0\.\.3 are outside 0\.\.2.*model\.num_classes=4"):
        train(tiny_config(train_set, tmp_path / "run", model__num_classes=3))
    assert not (tmp_path / "run").exists()


def test_training_and_validation_of_different_classes_are_refused(train_set: PictureSet, tmp_path: Path) -> None:
    """CLS-03."""
    val = make_picture_set(tmp_path / "val", counts=(6,), split="val", num_classes=3)
    with pytest.raises(DataMismatchError, match="different class lists"):
        train(tiny_config(train_set, tmp_path / "run", val=val))


def test_a_shard_in_both_sets_is_refused(train_set: PictureSet, tmp_path: Path) -> None:
    with pytest.raises(DataMismatchError, match="both trained on and validated on"):
        train(tiny_config(train_set, tmp_path / "run", val=train_set))
    assert not (tmp_path / "run").exists()


def test_fewer_samples_than_a_batch_are_refused_with_both_numbers(train_set: PictureSet, tmp_path: Path) -> None:
    with pytest.raises(LoaderConfigError, match=r"no whole batch in 101 samples: a global batch has 102"):
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


@pytest.mark.parametrize("setting", ["augment.flip=false", "data.lanes=4", "data.exact=true", "data.decode=gpu"])
def test_a_setting_that_the_sources_pipeline_passes_over_is_refused(
    train_set: PictureSet, tmp_path: Path, setting: str
) -> None:
    config = tiny_config(train_set, tmp_path / "run", data__pipeline="source")
    with pytest.raises(ConfigError, match=setting.partition("=")[0].removesuffix(".flip")):
        train(with_overrides(config, [setting]))


def test_no_shards_are_refused(train_set: PictureSet, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no shards are named"):
        train(tiny_config(train_set, tmp_path / "run", data__urls=[]))


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


class Reads(TorchDispatchMode):
    """Counts what `.item()`, `bool()` and `.tolist()` call."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += func.name() == "aten::_local_scalar_dense"
        return func(*args, **(kwargs or {}))


@pytest.mark.slow
def test_no_step_waits_for_the_device(train_set: PictureSet, tmp_path: Path) -> None:
    counts = []
    for run, updates in (("short", 2), ("long", 5)):
        with Reads() as reads:
            train(tiny_config(train_set, tmp_path / run, schedule__max_updates=updates, log__every_s=1e6))
        counts.append(reads.count)
    assert 0 < counts[0] == counts[1]


@pytest.mark.slow
def test_only_the_newest_checkpoints_are_kept(train_set: PictureSet, tmp_path: Path) -> None:
    config = tiny_config(train_set, tmp_path / "run", checkpoint__every_updates=1, checkpoint__keep=2)
    train(with_overrides(config, ["schedule.max_updates=4"]))
    names = [path.name for path in list_checkpoints(tmp_path / "run")]
    assert names == ["samples-00000000000048.pt", "samples-00000000000064.pt"]


@pytest.mark.parametrize(("minutes", "saved"), [(1e-9, [16, 32, 48]), (0, [48])])
def test_a_checkpoint_is_made_between_two_steps_as_soon_as_the_last_one_is_that_old(
    train_set: PictureSet, tmp_path: Path, minutes: float, saved: list[int]
) -> None:
    config = tiny_config(train_set, tmp_path / "run", checkpoint__every_minutes=minutes, model__image_size=8)
    result = train(with_overrides(config, ["schedule.max_updates=3"]))
    assert [read_checkpoint(path)["progress"]["samples"] for path in list_checkpoints(result.run_dir)] == saved


def test_a_checkpoint_that_falls_due_during_the_validation_is_made_after_it(
    train_set: PictureSet, tmp_path: Path
) -> None:
    val = make_picture_set(tmp_path / "val", counts=(20,), split="val")
    due = {"checkpoint__every_minutes": 1e-9, "checkpoint__every_epochs": 2, "data__batch_size": 96}
    config = tiny_config(train_set, tmp_path / "run", val=val, model__image_size=8, checkpoint__keep=9, **due)
    saved: list[tuple[int, int]] = []

    def note(event: Event) -> None:
        if isinstance(event, ValReport):
            saved.append((event.samples, len(list_checkpoints(tmp_path / "run"))))

    train(with_overrides(config, ["checkpoint.background=false"]), progress=note)
    newest = [read_checkpoint(path)["progress"] for path in list_checkpoints(tmp_path / "run")]
    assert [(part["samples"], part["epoch"], part["batch"]) for part in newest] == [(96, 1, 0), (192, 2, 0)]
    assert saved == [(96, 1), (192, 2)]


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


def test_an_epoch_without_a_whole_batch_is_an_error_and_no_training(train_set: PictureSet, tmp_path: Path) -> None:
    config = tiny_config(train_set, tmp_path / "run", model__num_classes=4, data__batch_size=102)
    with serve(train_set.manifest.parent) as server:
        urls = tuple(f"{server.url}/{shard.name}" for shard in train_set.shards)
        with pytest.raises(DataMismatchError, match="not one whole batch of 102"):
            train(replace(config, data=replace(config.data, urls=urls)))


def test_shards_that_do_not_say_their_classes_give_the_model_a_thousand_with_a_line(
    train_set: PictureSet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copies = [shutil.copy(shard, tmp_path) for shard in train_set.shards]
    config = tiny_config(
        train_set, tmp_path / "run", data__urls=[str(copy) for copy in copies], schedule__max_samples=16
    )
    with caplog.at_level(logging.INFO, logger="resnettrain"):
        result = train(config)
    assert "no class list: the model gets 1000" in caplog.text
    assert learnt(result.checkpoint)["model"]["fc.bias"].shape == (1000,)


@pytest.mark.slow
def test_a_run_reads_as_few_values_from_the_device_however_many_steps_it_has(
    train_set: PictureSet, tmp_path: Path
) -> None:
    counts = []
    for batch_size in (8, 32):
        config = tiny_config(
            train_set,
            tmp_path / str(batch_size),
            data__batch_size=batch_size,
            schedule__epochs=1,
            model__image_size=8,
            log__every_s=1e9,
            ema__decay=0.9,
            augment__mixup=0.2,
            augment__policy="trivial",
            optim__clip_norm=1.0,
            runtime__micro_batches=2,
        )
        with Syncs(("aten::_local_scalar_dense", "aten::is_nonzero")) as syncs:
            assert train(config).updates == 96 // batch_size
        counts.append(len(syncs.found))
    assert counts[0] == counts[1]


# ------------------------------------------------------------------------------------------------------------- failures


def test_what_fails_is_the_last_line_of_its_run(tmp_path: Path) -> None:
    shard = write_with_bad_pictures(tmp_path / "a.tar", 8, bad=range(8))
    config = tiny_config(
        PictureSet(manifest=shard, shards=(shard,)), tmp_path / "run", data__batch_size=4, model__num_classes=1000
    )
    with pytest.raises(SampleError) as failed:
        train(config)
    (end,) = read_metrics(tmp_path / "run")
    assert (end["kind"], end["outcome"], end["samples"], end["error"]) == ("end", "failed", 0, str(failed.value))


def test_a_listener_that_fails_is_the_end_of_the_run(train_set: PictureSet, tmp_path: Path) -> None:
    def listen(event: Event, /) -> None:
        if isinstance(event, TrainReport):
            raise ValueError("the listener\n  has had enough of http://me:secret@host/a")

    with pytest.raises(ValueError, match="the listener"):
        train(tiny_config(train_set, tmp_path / "run"), progress=listen)
    end = read_metrics(tmp_path / "run")[-1]
    assert (end["outcome"], end["samples"], end["loss"]) == ("failed", 16, None)
    assert end["error"].startswith("the listener has had enough of http://")
    assert "secret" not in end["error"]


def test_an_end_that_is_recorded_stays_the_end(train_set: PictureSet, tmp_path: Path) -> None:
    def listen(event: Event, /) -> None:
        if isinstance(event, RunEnded):
            raise ValueError("too late")

    with pytest.raises(ValueError, match="too late"):
        train(tiny_config(train_set, tmp_path / "run", schedule__max_updates=1), progress=listen)
    ends = [record["outcome"] for record in read_metrics(tmp_path / "run") if record["kind"] == "end"]
    assert ends == ["capped"]
