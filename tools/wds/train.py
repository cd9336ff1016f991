"""The command that trains: ``wds train``."""

from __future__ import annotations

import dataclasses
import os
from functools import partial
from typing import TYPE_CHECKING

import typer

from wds import train_options as opt
from wds.console import AsJson, print_json, print_line, print_note
from wds.eval_view import eval_document
from wds.patterns import expand_existing, without_stdin
from wds.ranks import launch_ranks, this_rank
from wds.report import print_verdict
from wds.run_settings import found_to_resume
from wds.run_view import RunView
from wds.text import counted

if TYPE_CHECKING:
    from resnettrain import Rank, Resume, TrainConfig, TrainResult

__all__ = ["train"]


def train(
    patterns: opt.MorePatterns = None,
    urls: opt.Urls = None,
    val_urls: opt.ValUrls = None,
    recipe: opt.RecipeName = None,
    model: opt.Model = None,
    image_size: opt.ImageSize = None,
    init: opt.Init = None,
    epochs: opt.Epochs = None,
    batch_size: opt.BatchSize = None,
    global_batch_size: opt.GlobalBatchSize = None,
    lr: opt.LearningRate = None,
    workers: opt.Workers = None,
    max_steps: opt.MaxSteps = None,
    max_updates: opt.MaxUpdates = None,
    max_hours: opt.MaxHours = None,
    nproc: opt.NumRanks = None,
    cache_dir: opt.CacheDir = None,
    cache_limit: opt.CacheLimit = None,
    allow_commands: opt.AllowCommands = None,
    run_dir: opt.RunDir = None,
    resume: opt.Resume = None,
    seed: opt.Seed = None,
    exact: opt.Exact = None,
    on_error: opt.OnError = None,
    max_skipped: opt.MaxSkipped = None,
    decode: opt.Decode = None,
    device: opt.Device = None,
    synthetic: opt.Synthetic = False,
    overfit_one_batch: opt.OneBatch = None,
    profile: opt.Profile = None,
    tensorboard: opt.Tensorboard = None,
    config: opt.ConfigFile = None,
    overrides: opt.Set = None,
    dry_run: opt.DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Train a classifier from shards; ResNet-50 unless told otherwise.

    Precedence: flag, then --set, then --config, then the recipe; with --resume, the run's own settings in its place.
    """
    given = locals()
    from resnettrain import ConfigError, resolve_config

    flags = opt.settings_by_flag(given)
    flags["data.pipeline"] = "synthetic" if synthetic else None
    if not dry_run and nproc is not None:
        if resume is None:
            # What is wrong with them is told before ranks are started, each of which imports torch.
            resolve_config(recipe_name=recipe, file=config, overrides=overrides or (), flags=flags)
        launch_ranks(nproc)
    place = this_rank()
    flags["data.urls"] = without_stdin([*(urls or []), *(patterns or [])]) or None
    flags["data.val_urls"] = without_stdin(val_urls or []) or None
    start, base = found_to_resume(resume, run_dir=run_dir)
    settings = resolve_config(recipe_name=recipe, file=config, overrides=overrides or (), flags=flags, base=base)
    if batch_size is not None and settings.data.global_batch_size is not None:
        raise ConfigError("--batch-size: data.global_batch_size is given too, and says what it is. Give one of them")
    act = _show if dry_run else partial(_run, resume=start, place=place)
    act(settings, as_json=as_json)


def _show(settings: TrainConfig, *, as_json: bool) -> None:
    """Print the settings as they would be used."""
    from resnettrain import to_mapping, to_toml

    if as_json:
        print_json(to_mapping(settings))
    else:
        print_line(to_toml(settings).rstrip())


def _run(settings: TrainConfig, *, resume: Resume, place: Rank, as_json: bool) -> None:
    """Train, show how it goes, say how it ended, and exit with 128 + signal where a signal ended it."""
    import resnettrain

    # What can be refused without torch is refused before it is imported.
    resnettrain.require_runnable(settings, world_size=place.world_size)
    for named in filter(None, (settings.data.urls, settings.data.val_urls)):
        expand_existing(named, on_error=settings.data.on_error)
    if settings.runtime.profile is not None:
        _quiet_profiler()
    if settings.runtime.deterministic:
        # Older torch (2.14 no more) refuses a matrix product on CUDA without it; it is read where CUDA starts.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    by_source = settings.data.pipeline == "source"
    view = RunView(source_format=by_source and not as_json, quiet=as_json)
    try:
        result = resnettrain.train(settings, progress=view, resume=resume, place=place)
    finally:
        view.close()
    if place.is_first:
        _print_ending(result, as_json=as_json)
    if result.outcome == "interrupted":
        way_on = "This recipe cannot be resumed." if by_source else f"Go on: wds train --resume {result.run_dir}"
        print_note(f"Stopped by a signal. {way_on}")
        raise typer.Exit(128 + (result.signal or 2))


def _quiet_profiler() -> None:
    """Keep the profiler's own log off stderr where there is no GPU: that is an error to it, and a start news."""
    import torch

    if not torch.cuda.is_available():
        # Above its highest level. It reads it when the first profile begins; that a trace was written is seen to apart.
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")


def _print_ending(result: TrainResult, *, as_json: bool) -> None:
    """Print what came out, and what the run's own records say of it."""
    from resnettrain import read_metrics, read_toml, verdict

    classes = None if result.val is None else result.val.classes
    judged = verdict(
        read_metrics(result.run_dir),
        config=read_toml(result.run_dir / "config.toml"),
        confusion=None if classes is None else classes.confusion.tolist(),
    )
    if as_json:
        print_json({**_as_document(result), "verdict": [dataclasses.asdict(one) for one in judged]})
        return
    _print_result(result)
    print_verdict(judged)


def _print_result(result: TrainResult) -> None:
    print_line(
        f"{result.outcome}: {counted(result.samples, 'sample')}, {counted(result.updates, 'update')} in "
        f"{result.seconds:.1f} s, "
        f"{result.images_per_s:.1f} images/s, {result.wait_share:.0%} waiting for data "
        f"({result.compute_images_per_s:.1f} images/s without)"
    )
    if result.loss is not None and result.top1 is not None:
        print_line(f"train: loss {result.loss:.4f}, top-1 {result.top1:.4f} over the last steps")
    if result.val is not None:
        print_line(
            f"validation: top-1 {result.val.top1:.4f}, top-5 {result.val.top5:.4f}, loss {result.val.loss:.4f} "
            f"on {counted(result.val.count, 'sample')}"
        )
    if result.skipped:
        from wdsloader import causes_in_words

        num_skipped = counted(sum(result.skipped.values()), "sample")
        print_line(f"skipped: {num_skipped} could not be delivered: {causes_in_words(result.skipped)}")
    if result.checkpoint is not None:
        print_line(f"checkpoint: {result.checkpoint}")


def _as_document(result: TrainResult) -> dict[str, object]:
    return {
        "outcome": result.outcome,
        "run_dir": str(result.run_dir),
        "checkpoint": None if result.checkpoint is None else str(result.checkpoint),
        "samples": result.samples,
        "updates": result.updates,
        "loss": result.loss,
        "top1": result.top1,
        "val": None if result.val is None else eval_document(result.val),
        "skipped": dict(result.skipped),
        "seconds": result.seconds,
        "images_per_s": result.images_per_s,
        "compute_images_per_s": result.compute_images_per_s,
        "wait_s": result.wait_s,
    }
