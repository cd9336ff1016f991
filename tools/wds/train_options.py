"""The options that ``wds train`` and ``wds eval`` share, each with its help."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "AllowCommands",
    "BatchSize",
    "CacheDir",
    "CacheLimit",
    "ConfigFile",
    "Confusion",
    "Decode",
    "Device",
    "DryRun",
    "Epochs",
    "EvalBatchSize",
    "EvalUrls",
    "EvalWorkers",
    "Exact",
    "Flip",
    "GlobalBatchSize",
    "ImageSize",
    "Init",
    "LearningRate",
    "MaxHours",
    "MaxSkipped",
    "MaxSteps",
    "MaxUpdates",
    "Model",
    "MorePatterns",
    "NumRanks",
    "OnError",
    "OneBatch",
    "PerClass",
    "Profile",
    "RecipeName",
    "Resume",
    "RunDir",
    "Seed",
    "Set",
    "Synthetic",
    "Tensorboard",
    "Urls",
    "ValUrls",
    "Workers",
    "settings_by_flag",
]

# Which setting a flag of `wds train` is.
_KEYS = {
    "batch_size": "data.batch_size",
    "global_batch_size": "data.global_batch_size",
    "workers": "data.num_workers",
    "cache_dir": "data.cache_dir",
    "cache_limit": "data.cache_limit",
    "allow_commands": "data.allow_commands",
    "exact": "data.exact",
    "on_error": "data.on_error",
    "decode": "data.decode",
    "max_skipped": "data.max_skipped",
    "model": "model.name",
    "image_size": "model.image_size",
    "init": "model.init",
    "lr": "optim.lr",
    "epochs": "schedule.epochs",
    "max_steps": "schedule.max_samples",
    "max_updates": "schedule.max_updates",
    "max_hours": "schedule.max_hours",
    "device": "runtime.device",
    "overfit_one_batch": "data.one_batch",
    "profile": "runtime.profile",
    "tensorboard": "log.tensorboard",
    "run_dir": "run_dir",
    "seed": "seed",
}


def settings_by_flag(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each flag of a command says by the name of the setting; what is no setting is left out."""
    return {_KEYS[name]: value for name, value in given.items() if name in _KEYS}


def _count_or_share(text: str) -> int | float:
    """Return a whole number as a count, one with a point as a share. Raises: typer.BadParameter."""
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a count (100) nor a share (0.01)") from None


_PATTERN = "names, {000000..001281}, <000000..001281>, globs, @list, a folder, a manifest; local, http(s) or s3"

Urls = Annotated[list[str] | None, typer.Option("--urls", metavar="PATTERN", help=f"Training shards: {_PATTERN}.")]
MorePatterns = Annotated[
    list[str] | None, typer.Argument(metavar="PATTERN", help="More shards, as a shell expands a glob.")
]
EvalUrls = Annotated[
    list[str] | None, typer.Option("--urls", metavar="PATTERN", help=f"Shards to evaluate on: {_PATTERN}.")
]
ValUrls = Annotated[
    list[str] | None, typer.Option("--val-urls", metavar="PATTERN", help="Validation shards; every sample counts once.")
]
RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        help="`default`, or another of those that `wds recipes list` lists. `seed` is the source's own loop and "
        "pipeline: shards are drawn with replacement, so an epoch of 2,003 batches repeats and misses samples, and no "
        "run resumes.",
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings in TOML, as in a run folder.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting, e.g. augment.scale=[0.35,1]; schedule.max_samples=none leaves one open. Repeatable.",
    ),
]
Model = Annotated[
    str | None, typer.Option("--model", help="A torchvision classification model, or `tiny`.  Default: resnet50.")
]
ImageSize = Annotated[
    int | None, typer.Option("--image-size", help="Side of the square input in pixels.  Default: 224.")
]
Init = Annotated[
    Path | None,
    typer.Option(
        "--init",
        metavar="FILE",
        help="Start from weights: a checkpoint, torchvision's .pth, .safetensors. The head is new for other classes.",
    ),
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", help="Times that every sample is seen.  Default: 16; 1 for `seed`.")
]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", help="Samples of each rank in an optimizer step.  Default: 64.")
]
EvalBatchSize = Annotated[
    int | None, typer.Option("--batch-size", show_default="the run's", help="Samples that each rank has at a time.")
]
GlobalBatchSize = Annotated[
    int | None, typer.Option("--global-batch-size", help="Samples of all ranks together, in place of --batch-size.")
]
NumRanks = Annotated[
    int | None,
    typer.Option("--nproc", metavar="N", min=1, help="Run as N ranks on this machine; torchrun can do more."),
]
LearningRate = Annotated[
    float | None, typer.Option("--lr", show_default="0.1 x batch / 256", help="Peak learning rate.")
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", help="Loader processes; 0 loads in the main one.  Default: one a core; 4 for `seed`."),
]
EvalWorkers = Annotated[
    int | None,
    typer.Option("--workers", show_default="the run's", help="Loader processes; 0 loads in the main one."),
]
MaxSteps = Annotated[
    int | None,
    typer.Option(
        "--max-steps",
        help="Stop after so many SAMPLES, as the source counts. `default` stops when they are reached, `seed` once "
        "they are exceeded.",
    ),
]
MaxUpdates = Annotated[int | None, typer.Option("--max-updates", help="Stop after so many optimizer steps.")]
MaxHours = Annotated[
    float | None, typer.Option("--max-hours", help="Save and stop after so many hours; the exit code is 0.")
]
CacheDir = Annotated[Path | None, typer.Option("--cache-dir", metavar="DIR", help="Keep fetched shards here.")]
CacheLimit = Annotated[
    str | None,
    typer.Option("--cache-limit", metavar="SIZE", help="Of --cache-dir: a size (200GiB) or a share of the disk (30%)."),
]
AllowCommands = Annotated[
    bool | None, typer.Option("--allow-commands", help="Run what `pipe:COMMAND` names, and read the shard it writes.")
]
RunDir = Annotated[
    Path | None, typer.Option("--run-dir", metavar="DIR", show_default="runs/TIME-RECIPE", help="Run folder.")
]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="PATH|auto",
        help="Go on from a checkpoint, or a run folder's newest. `auto`: from the newest in --run-dir, else begin.",
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Of weights, order and augmentation.")]
Flip = Annotated[
    bool | None, typer.Option("--flip", help="Also the figures of the mean over pictures and mirror images.")
]
PerClass = Annotated[
    bool | None, typer.Option("--per-class", help="Also every class by itself, and what it was taken for.")
]
Confusion = Annotated[
    Path | None,
    typer.Option("--confusion", metavar="FILE.png", help="Draw what the samples of each class were taken for."),
]
Exact = Annotated[
    bool | None, typer.Option("--exact", help="Refuse shards without an index rather than stream them inexactly.")
]
OnError = Annotated[
    str | None,
    typer.Option(
        "--on-error",
        metavar="<stop|skip>",
        help="What a sample or shard that cannot be delivered does: stop the run, or be masked and counted.  "
        "Default: stop.",
    ),
]
MaxSkipped = Annotated[
    float | None,
    typer.Option(
        "--max-skipped",
        metavar="N|SHARE",
        parser=_count_or_share,
        help="With --on-error skip: stop when an epoch has more of them; a count (100) or a share (0.01).  "
        "Default: 0.01.",
    ),
]
Decode = Annotated[
    str | None,
    typer.Option(
        "--decode",
        metavar="<cpu|gpu>",
        help="Where JPEGs are decoded: by the workers, or on the CUDA device, for few cores to a GPU.  Default: cpu.",
    ),
]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
Synthetic = Annotated[
    bool, typer.Option("--synthetic", help="Made-up pictures and no data: how fast computing alone is.")
]
OneBatch = Annotated[
    bool | None,
    typer.Option(
        "--overfit-one-batch",
        help="The first batch over and over: its loss has to come below 0.1, its top-1 to 1. Label smoothing, mixing, "
        "erasing, policies, flips and random crops are off unless you set them.",
    ),
]
Profile = Annotated[
    int | None,
    typer.Option("--profile", metavar="N", min=1, help="Write trace.json of N updates, after the first three."),
]
Tensorboard = Annotated[
    bool | None, typer.Option("--tensorboard", help="Write events for TensorBoard too, in the run folder.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the resolved settings as TOML and stop.")]
