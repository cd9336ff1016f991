"""The command that evaluates what was trained: ``wds eval``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wds import train_options as opt
from wds.console import AsJson, print_json, print_note
from wds.eval_view import eval_document, print_eval
from wds.patterns import expand_existing, without_stdin
from wds.ranks import launch_ranks, this_rank
from wds.report import OnExists, require_writable
from wds.run_settings import found_in
from wds.run_view import RunView
from wds.text import masked

if TYPE_CHECKING:
    from resnettrain import ClassFigures, EvalResult, Rank, TrainConfig

__all__ = ["evaluate"]

Checkpoint = Annotated[
    Path, typer.Argument(metavar="CHECKPOINT", help="A checkpoint file, or a run folder for its newest.")
]


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
    from resnettrain import resolve_config

    path, of_run = found_in(checkpoint)
    shows_classes = of_run.eval.classes if per_class is None else per_class
    flags = opt.settings_by_flag(given) | {"eval.flip": flip, "eval.classes": shows_classes or confusion is not None}
    settings = resolve_config(base=of_run, flags=flags)
    named = _named([*(urls or []), *(patterns or [])], checkpoint=checkpoint, settings=settings)
    if confusion is not None:
        require_writable(confusion, suffix=".png", replace=on_exists == "overwrite")
    result = _evaluated(path, named, settings=settings, place=place, quiet=as_json)
    if not place.is_first:
        return
    shown = result if shows_classes else dataclasses.replace(result, classes=None)
    if as_json:
        print_json({"checkpoint": str(checkpoint), "urls": [masked(url) for url in named], **eval_document(shown)})
    else:
        print_eval(shown)
    if confusion is not None and result.classes is not None:
        _write_confusion(result.classes, confusion, replace=on_exists == "overwrite")


def _named(patterns: Sequence[str], *, checkpoint: Path, settings: TrainConfig) -> list[str]:
    """Return the shards that were named, else those of the run's own validation; some of them are there.

    Raises: ConfigError: there are none.
    """
    from resnettrain import ConfigError

    named = without_stdin(patterns) or list(settings.data.val_urls)
    if not named:
        raise ConfigError(f"{checkpoint}: the run had no validation shards. Give --urls PATTERN.")
    # What can be refused without the rest of torch is refused before it is imported.
    expand_existing(named, on_error=settings.data.on_error)
    return named


def _evaluated(checkpoint: Path, urls: Sequence[str], *, settings: TrainConfig, place: Rank, quiet: bool) -> EvalResult:
    """Evaluate, and show how it goes."""
    from resnettrain import evaluate_checkpoint

    view = RunView(quiet=quiet)
    try:
        return evaluate_checkpoint(checkpoint, urls, overrides=settings, progress=view, place=place)
    finally:
        view.close()


def _write_confusion(classes: ClassFigures, path: Path, *, replace: bool) -> None:
    from resnettrain import confusion_picture
    from shardkit import write_atomically

    write_atomically(path, confusion_picture(classes), replace=replace)
    print_note(f"wrote {path}")
