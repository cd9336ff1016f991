"""The commands that train and evaluate: ``wds train`` and ``wds eval``."""

from __future__ import annotations

import dataclasses
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wds import train_options as opt
from wds.console import AsJson, print_json, print_line, print_note
from wds.patterns import expand_existing, without_stdin
from wds.ranks import launch_ranks, this_rank
from wds.report import OnExists, print_verdict, require_writable
from wds.run_view import RunView
from wds.text import counted, masked

if TYPE_CHECKING:
    from resnettrain import ClassFigures, EvalResult, Rank, TrainConfig, TrainResult

__all__ = ["evaluate", "train"]

# What --resume says to find the checkpoint, or that there is none, by itself.
_AUTO = Path("auto")
Checkpoint = Annotated[
    Path, typer.Argument(metavar="CHECKPOINT", help="A checkpoint file, or a run folder for its newest.")
]


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
    if not dry_run:
        launch_ranks(nproc)
    place = this_rank()
    from resnettrain import ConfigError, resolve_config

    flags = opt.settings_by_flag(given)
    flags["data.pipeline"] = "synthetic" if synthetic else None
    flags["data.urls"] = without_stdin([*(urls or []), *(patterns or [])]) or None
    flags["data.val_urls"] = without_stdin(val_urls or []) or None
    base = _settings_of(resume, run_dir=run_dir)
    settings = resolve_config(recipe_name=recipe, file=config, overrides=overrides or (), flags=flags, base=base)
    if batch_size is not None and settings.data.global_batch_size is not None:
        raise ConfigError("--batch-size: data.global_batch_size is given too, and says what it is. Give one of them")
    act = _show if dry_run else partial(_run, resume=resume, place=place)
    act(settings, as_json=as_json)


def evaluate(
    checkpoint: Checkpoint,
    patterns: opt.MorePatterns = None,
    urls: opt.EvalUrls = None,
    batch_size: opt.EvalBatchSize = None,
    workers: opt.EvalWorkers = None,
    cache_dir: opt.CacheDir = None,
    cache_limit: opt.CacheLimit = None,
    allow_commands: opt.AllowCommands = None,
    on_error: opt.OnError = None,
    decode: opt.Decode = None,
    device: opt.Device = None,
    flip: opt.Flip = None,
    per_class: opt.PerClass = None,
    confusion: opt.Confusion = None,
    on_exists: OnExists = "fail",
    nproc: opt.NumRanks = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a checkpoint on shards, every sample exactly once; on the run's own validation set without --urls."""
    given = locals()
    launch_ranks(nproc)
    place = this_rank()
    from resnettrain import ConfigError, resolve_config

    of_run = _settings_in(checkpoint)
    shows_classes = of_run.eval.classes if per_class is None else per_class
    flags = opt.settings_by_flag(given) | {"eval.flip": flip, "eval.classes": shows_classes or confusion is not None}
    settings = resolve_config(base=of_run, flags=flags)
    named = without_stdin([*(urls or []), *(patterns or [])]) or list(settings.data.val_urls)
    if not named:
        raise ConfigError(f"{checkpoint}: the run had no validation shards. Give --urls PATTERN.")
    expand_existing(named, on_error=settings.data.on_error)
    if confusion is not None:
        require_writable(confusion, suffix=".png", replace=on_exists == "overwrite")
    from resnettrain import evaluate_checkpoint

    view = RunView(quiet=as_json)
    try:
        result = evaluate_checkpoint(checkpoint, named, overrides=settings, progress=view, place=place)
    finally:
        view.close()
    if not place.is_first:
        return
    shown = result if shows_classes else dataclasses.replace(result, classes=None)
    if as_json:
        print_json({"checkpoint": str(checkpoint), "urls": [masked(url) for url in named], **_figures(shown)})
    else:
        _print_figures(shown)
    if confusion is not None and result.classes is not None:
        _write_confusion(result.classes, confusion, replace=on_exists == "overwrite")


def _write_confusion(classes: ClassFigures, path: Path, *, replace: bool) -> None:
    from resnettrain import confusion_picture
    from shardkit import write_atomically

    write_atomically(path, confusion_picture(classes), replace=replace)
    print_note(f"wrote {path}")


def _settings_of(resume: Path | None, *, run_dir: Path | None) -> TrainConfig | None:
    """Return the settings of the run that is to go on; without one, torch stays out."""
    if resume is None:
        return None
    if resume != _AUTO:
        return _settings_in(resume)
    from resnettrain import ConfigError, list_checkpoints

    if run_dir is None:
        raise ConfigError("--resume auto goes on in a run folder: name it with --run-dir")
    return _settings_in(run_dir) if list_checkpoints(run_dir) else None


def _settings_in(checkpoint: Path) -> TrainConfig:
    """Return the settings of a run, but no leave to run commands: the checkpoint may be anybody's."""
    from resnettrain import ConfigError

    if not checkpoint.exists():
        raise ConfigError(f"{checkpoint}: there is no such checkpoint or run folder")
    from resnettrain import resume_config

    settings = resume_config(checkpoint)
    return dataclasses.replace(settings, data=dataclasses.replace(settings.data, allow_commands=False))


def _show(settings: TrainConfig, *, as_json: bool) -> None:
    """Print the settings as they would be used."""
    from resnettrain import to_mapping, to_toml

    if as_json:
        print_json(to_mapping(settings))
    else:
        print_line(to_toml(settings).rstrip())


def _run(settings: TrainConfig, *, resume: Path | None, place: Rank, as_json: bool) -> None:
    """Train, show how it goes, say how it ended, and exit with 128 + signal where a signal ended it."""
    import resnettrain

    if not settings.data.urls and settings.data.pipeline != "synthetic":
        raise resnettrain.ConfigError("no shards are named. Give --urls PATTERN")
    # What can be refused without torch is refused before it is imported.
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
        start: Path | Literal["auto"] | None = "auto" if resume == _AUTO else resume
        result = resnettrain.train(settings, progress=view, resume=start, place=place)
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
        "val": None if result.val is None else _figures(result.val),
        "skipped": dict(result.skipped),
        "seconds": result.seconds,
        "images_per_s": result.images_per_s,
        "compute_images_per_s": result.compute_images_per_s,
        "wait_s": result.wait_s,
    }


def _figures(result: EvalResult) -> dict[str, object]:
    figures: dict[str, object] = {
        "top1": result.top1,
        "top5": result.top5,
        "loss": result.loss,
        "count": result.count,
    }
    if result.flip is not None:
        figures["flip"] = {"top1": result.flip.top1, "top5": result.flip.top5, "loss": result.flip.loss}
    if result.classes is not None:
        classes = result.classes
        figures["classes"] = {
            "names": None if classes.names is None else list(classes.names),
            "count": classes.counts.tolist(),
            "correct1": classes.correct1.tolist(),
            "correct5": classes.correct5.tolist(),
            "confusion": classes.confusion.tolist(),
        }
    return figures


def _print_figures(result: EvalResult) -> None:
    print_line(
        f"top-1 {result.top1:.4f}  top-5 {result.top5:.4f}  loss {result.loss:.4f}  {counted(result.count, 'sample')}"
    )
    if result.flip is not None:
        flip = result.flip
        print_line(f"with mirror images: top-1 {flip.top1:.4f}  top-5 {flip.top5:.4f}  loss {flip.loss:.4f}")
    if result.classes is not None:
        _print_classes(result.classes)


def _print_classes(classes: ClassFigures) -> None:
    """Print a line for each class, with the class that most of its samples were taken for in error."""
    names = [f"{number}" if classes.names is None else f"{number} {classes.names[number]}"
             for number in range(len(classes.confusion))]  # fmt: skip
    rows = zip(classes.confusion.tolist(), classes.counts.tolist(), classes.correct5.tolist(), strict=True)
    for number, (taken_for, count, correct5) in enumerate(rows):
        correct1, taken_for[number] = taken_for[number], 0
        most = max(taken_for)
        shares = f"top-1 {correct1 / count:.4f}  top-5 {correct5 / count:.4f}" if count else "none there"
        mistaken = f"  {most} taken for {names[taken_for.index(most)]}" if most else ""
        print_line(f"class {names[number]}: {shares}  {counted(count, 'sample')}{mistaken}")
