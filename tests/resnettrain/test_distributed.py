"""Several ranks are one run: the same weights as one process, one decision at one step, one end."""

from __future__ import annotations

import logging
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torchvision.models.resnet import ResNet

from resnettrain import (
    ConfigError,
    NonFiniteLossError,
    PeerError,
    Rank,
    TrainConfig,
    TrainResult,
    list_checkpoints,
    read_checkpoint,
    read_metrics,
    resume_config,
    train,
    with_overrides,
)
from resnettrain.distributed import Ranks, require_own_devices
from resnettrain.norm_stats import norm_stats, set_norm_stats
from tests.helpers.checkpoints import assert_equal, learnt
from tests.helpers.cli import wait_until
from tests.helpers.damaged import write_with_bad_pictures
from tests.helpers.picture_sets import PictureSet, make_picture_set, tiny_config
from tests.helpers.ranks import Died, run_ranks, started_ranks

# What is learnt of a batch of 16, whoever has which half of it.
LEARNING = ["ema.decay=0.9", "ema.warmup=false", "augment.mixup=0.2", "augment.erasing=0.3"]


def trained(place: Rank, config: TrainConfig, resume: Path | None = None) -> TrainResult:
    return train(config, resume=resume, place=place)


def trained_as_the_first_says(place: Rank, config: TrainConfig) -> TrainResult:
    """Train; all but the first rank come with another learning rate, which does not count."""
    return train(config if place.is_first else with_overrides(config, ["optim.lr=9"]), place=place)


def place_of_death(config: TrainConfig) -> Path:
    assert config.run_dir is not None
    return config.run_dir / "killed"


def hurt(place: Rank, config: TrainConfig, rank: int, step: int, how: str) -> TrainResult:
    """Train, and at a step of one rank have it spoil its answers, fail, or die."""
    calls = 0

    def hook(module: nn.Module, _inputs: Any, output: Tensor) -> Tensor | None:
        nonlocal calls
        if not isinstance(module, ResNet) or not module.training or output.is_meta:
            return None
        calls += 1
        if calls != step:
            return None
        if how == "inf":
            return output * float("inf")
        if how == "kill":
            place_of_death(config).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(f"the disk of rank {place.rank} is on fire")

    if place.rank == rank:
        register_module_forward_hook(hook)  # type: ignore[arg-type]  # it may return another output
    return train(config, place=place)


def without_times(result: TrainResult) -> TrainResult:
    return replace(result, seconds=0.0, wait_s=0.0, val_s=0.0, save_s=0.0, images_per_s=0.0, val=None)


def without_norms(content: dict[str, Any]) -> dict[str, Any]:
    """Return a checkpoint's content without what each rank has of its own."""
    content = {name: part for name, part in content.items() if name != "ranks"}
    for name in ("model", "ema"):
        part = content.get(name) or {}
        content[name] = {key: value for key, value in part.items() if "running" not in key and "batches" not in key}
    return content


# ------------------------------------------------------------------------------------------------- the same weights


@pytest.fixture(scope="module")
def pair(train_set: PictureSet, val_set: PictureSet, tmp_path_factory: pytest.TempPathFactory) -> list[TrainResult]:
    """Two epochs of two ranks with 8 samples each, as each of them saw it; a checkpoint is always due."""
    folder = tmp_path_factory.mktemp("pair")
    due = {"checkpoint__every_minutes": 1e-9, "checkpoint__keep": 99}
    config = tiny_config(train_set, folder / "run", val=val_set, data__batch_size=8, **due)
    found = run_ranks(trained_as_the_first_says, with_overrides(config, LEARNING), world_size=2, folder=folder)
    assert all(isinstance(result, TrainResult) for result in found), found
    return found


def test_two_ranks_learn_bit_for_bit_what_one_process_learns_in_two_micro_batches(
    train_set: PictureSet, pair: list[TrainResult], tmp_path: Path
) -> None:
    config = tiny_config(train_set, tmp_path / "run", data__batch_size=16)
    alone = train(with_overrides(config, [*LEARNING, "runtime.micro_batches=2"]))
    one, two = without_norms(learnt(alone.checkpoint)), without_norms(learnt(pair[0].checkpoint))
    del one["progress"], two["progress"]  # the accuracy of the validation
    assert_equal(one, two)
    lines = [[line for line in read_metrics(run.run_dir) if line["kind"] == "train"] for run in (alone, pair[0])]
    assert [line["lr"] for line in lines[0]] == [line["lr"] for line in lines[1]]
    assert [line["loss"] for line in lines[0]] == pytest.approx([line["loss"] for line in lines[1]], rel=1e-6)


def test_the_statistics_of_normalization_in_a_checkpoint_are_the_mean_of_the_ranks(pair: list[TrainResult]) -> None:
    assert pair[0].checkpoint is not None
    content = read_checkpoint(pair[0].checkpoint)
    norms = content["ranks"]["norms"]
    assert not torch.equal(norms[0], norms[1])
    common = [value for part in ("model", "ema") for key, value in content[part].items() if "running" in key]
    assert torch.equal(torch.cat(common).flatten(), norms.to(torch.float64).mean(dim=0).float())


def test_a_checkpoint_that_a_rank_asks_for_by_its_clock_is_made_by_all_at_one_step(pair: list[TrainResult]) -> None:
    """Asked for at one boundary of steps, agreed on at the next; at the end of an epoch there is one anyway."""
    saved = [read_checkpoint(path)["progress"]["samples"] for path in list_checkpoints(pair[0].run_dir)]
    assert saved[:4] == [16, 48, 80, 96]


def test_all_ranks_report_the_same_and_the_first_alone_writes(pair: list[TrainResult]) -> None:
    first, second = (without_times(result) for result in pair)
    assert first == second
    assert (pair[0].samples, pair[0].updates, pair[0].outcome) == (192, 12, "completed")
    assert [line["samples"] for line in read_metrics(pair[0].run_dir) if line["kind"] == "val"] == [96, 192]
    assert pair[0].val is not None
    assert pair[1].val is not None
    assert replace(pair[0].val, seconds=0.0) == replace(pair[1].val, seconds=0.0)


def test_statistics_come_back_as_they_were() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 2, 1), nn.BatchNorm1d(2))
    before = torch.arange(10.0)
    set_norm_stats([model], before)
    assert torch.equal(norm_stats([model]), before)
    assert norm_stats([nn.Linear(2, 2)]).numel() == 0


@pytest.mark.usefixtures("lone_rank")
def test_a_distributed_model_leaves_each_rank_the_statistics_of_its_own_batches() -> None:
    """Else those of the first rank would be everybody's at every step, and their mean that of no data."""
    wrapped: Any = Ranks(Rank(rank=0, local_rank=0, world_size=2)).wrap(
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2))
    )
    assert wrapped.modules_buffers
    assert not wrapped.will_sync_module_buffers()


@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_uneven_shards_give_every_rank_the_same_number_of_steps(tmp_path: Path, world_size: int) -> None:
    """DIST-01: 10, 10 and 3 samples in batches of 2 a rank."""
    shards = make_picture_set(tmp_path / "data", counts=(10, 10, 3))
    config = tiny_config(shards, tmp_path / "run", data__batch_size=2)
    results = run_ranks(trained, config, world_size=world_size, folder=tmp_path)
    steps = 2 * (23 // (2 * world_size))
    assert [(result.updates, result.samples) for result in results] == [(steps, steps * 2 * world_size)] * world_size


# ------------------------------------------------------------------------------------------------------- stop, go on


def test_a_signal_to_one_rank_stops_all_at_one_step_and_the_rest_is_bit_for_bit_the_same(
    train_set: PictureSet, tmp_path: Path
) -> None:
    config = with_overrides(tiny_config(train_set, tmp_path / "run", data__batch_size=8, schedule__epochs=50), LEARNING)
    ranks = started_ranks(trained, config, world_size=2, folder=tmp_path)
    log = tmp_path / "run" / "metrics.jsonl"
    assert wait_until(lambda: log.exists() and log.read_text().count("\n") > 1)
    os.kill(ranks.pids[1], signal.SIGUSR1)
    first, second = ranks.join()
    assert (first.outcome, first.signal, first.samples) == ("interrupted", signal.SIGUSR1, second.samples)
    assert second.signal == signal.SIGUSR1

    cap = f"schedule.max_updates={first.updates + 3}"
    resumed = run_ranks(trained, with_overrides(config, [cap]), tmp_path / "run", world_size=2, folder=tmp_path)
    elsewhere = replace(with_overrides(config, [cap]), run_dir=tmp_path / "alone")
    alone = run_ranks(trained, elsewhere, world_size=2, folder=tmp_path)
    assert isinstance(resumed[0], TrainResult), resumed
    assert_equal(learnt(resumed[0].checkpoint), learnt(alone[0].checkpoint))
    assert "ema" in learnt(alone[0].checkpoint)


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_ranks(
    train_set: PictureSet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tiny_config(train_set, tmp_path / "run", data__batch_size=8)
    alone = train(tiny_config(train_set, tmp_path / "alone", data__batch_size=16))
    capped = with_overrides(config, ["schedule.max_updates=4"])
    run_ranks(trained, capped, world_size=2, folder=tmp_path)
    with caplog.at_level(logging.INFO, logger="resnettrain"):
        fewer = train(with_overrides(capped, ["schedule.max_updates=7"]), resume=tmp_path / "run")
    assert "a batch is still 16: 1 rank with 16 each" in caplog.text
    assert fewer.samples == 7 * 16
    further = with_overrides(resume_config(tmp_path / "run"), ["schedule.max_updates=9"])
    (more, _) = run_ranks(trained, further, tmp_path / "run", world_size=2, folder=tmp_path)
    assert more.samples == 9 * 16
    last = with_overrides(resume_config(tmp_path / "run"), [f"schedule.max_samples={12 * 16}"])
    last = replace(last, schedule=replace(last.schedule, max_updates=None))
    run_ranks(trained, last, tmp_path / "run", world_size=2, folder=tmp_path)
    clock = [[(line["samples"], line["lr"]) for line in read_metrics(folder)[:12]] for folder in
             (tmp_path / "run", alone.run_dir)]  # fmt: skip
    assert clock[0] == clock[1]


# ----------------------------------------------------------------------------------------------------------- failures


def test_a_loss_of_one_rank_that_is_not_finite_stops_all_before_the_update(
    train_set: PictureSet, tmp_path: Path
) -> None:
    config = tiny_config(train_set, tmp_path / "run", data__batch_size=8, checkpoint__every_updates=1)
    first, second = run_ranks(hurt, config, 1, 3, "inf", world_size=2, folder=tmp_path)
    assert isinstance(first, NonFiniteLossError)
    assert isinstance(second, PeerError)
    assert "epoch 1, sample 32 of the run: the loss is" in str(first)
    assert str(first) in str(second)
    path = list_checkpoints(tmp_path / "run")[-1]
    assert read_checkpoint(path)["progress"]["samples"] == 32
    assert all(bool(torch.isfinite(value).all()) for value in read_checkpoint(path)["model"].values())


def test_where_a_rank_fails_the_others_end_with_its_error(train_set: PictureSet, tmp_path: Path) -> None:
    config = tiny_config(train_set, tmp_path / "run", data__batch_size=8)
    first, second = run_ranks(hurt, config, 1, 3, "fail", world_size=2, folder=tmp_path)
    assert isinstance(second, OSError)
    assert isinstance(first, PeerError)
    assert str(first) == "rank 1: the disk of rank 1 is on fire"


def test_where_a_rank_is_killed_the_others_end_within_half_a_minute(train_set: PictureSet, tmp_path: Path) -> None:
    config = tiny_config(train_set, tmp_path / "run", data__batch_size=8)
    first, second = run_ranks(hurt, config, 0, 3, "kill", world_size=2, folder=tmp_path)
    assert isinstance(first, Died)
    assert first.code == -signal.SIGKILL
    assert isinstance(second, PeerError)
    assert "another rank is gone" in str(second)
    assert time.time() - place_of_death(config).stat().st_mtime < 30


def test_bad_data_of_one_rank_ends_all_with_the_shard_and_the_key(tmp_path: Path) -> None:
    """TRN-11."""
    shard = write_with_bad_pictures(tmp_path / "one-bad.tar", 32, bad={7})
    config = tiny_config(PictureSet(manifest=shard, shards=(shard,)), tmp_path / "run", data__batch_size=4)
    errors = run_ranks(trained, with_overrides(config, ["model.num_classes=10"]), world_size=2, folder=tmp_path)
    assert sum(isinstance(error, PeerError) for error in errors) == 1
    assert all("one-bad.tar: '000007' at byte " in str(error) for error in errors)


def test_two_ranks_on_one_cuda_device_are_refused_by_their_numbers() -> None:
    with pytest.raises(ConfigError, match=r"runtime\.device: ranks 1 and 3 are on one CUDA device"):
        require_own_devices(["a", "b", None, "b"])
    require_own_devices(["a", "b", None, None])
