"""The command that shows the whole way on the CPU: ``wds demo``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wds.console import print_error, print_line
from wds.run_view import RunView
from wds.text import counted

if TYPE_CHECKING:
    from resnettrain import EvalResult, TrainResult

__all__ = ["demo"]

Out = Annotated[Path | None, typer.Option("--out", "-o", show_default="runs/TIME-demo", help="Folder for it all.")]
Labels = Annotated[
    Literal["signal", "shuffled"],
    typer.Option("--labels", help="`shuffled` makes the control set, which cannot be learnt."),
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be made, and make nothing.")]

_CLASSES = 10
_TRAIN_SAMPLES, _VAL_SAMPLES = 1000, 200
_EPOCHS = 6
# What a network that has learnt these classes reaches; below it something is broken.
_GOOD_TOP1 = 0.95


def demo(out: Out = None, labels: Labels = "signal", dry_run: DryRun = False) -> None:
    """Make shards, check them, train a small network on them, evaluate it. About two minutes on two cores."""
    from resnettrain import RunFolderError, new_run_dir

    folder = out or new_run_dir("demo")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunFolderError(f"{folder}: is not empty. Name another folder with --out")
    if dry_run:
        print_line(f"{folder}/shards  {_TRAIN_SAMPLES} train and {_VAL_SAMPLES} val pictures of {_CLASSES} classes")
        print_line(f"{folder}/train  a network trained on them for {_EPOCHS} epochs")
        return
    spent: dict[str, float] = {}
    begin = time.monotonic()
    _make(folder / "shards", labels=labels)
    spent["making shards"], begin = time.monotonic() - begin, time.monotonic()
    _check(folder / "shards")
    spent["checking them"], begin = time.monotonic() - begin, time.monotonic()
    result = _train(folder)
    spent["training"], begin = time.monotonic() - begin, time.monotonic()
    figures = _evaluate(folder)
    spent["evaluating"] = time.monotonic() - begin
    _print_end(folder, spent, result=result)
    if figures.top1 < _GOOD_TOP1 and labels == "signal":
        print_error(f"top-1 is below {_GOOD_TOP1}: something is broken, please report it")
        raise typer.Exit(1)


def _make(folder: Path, *, labels: Literal["signal", "shuffled"]) -> None:
    """Make the two sets; the shuffled labels of the control are for training only."""
    from shardkit import FakeImageNet, FakeSource, PackConfig, ShardSize, pack, plan_shards

    for split, num_samples in (("train", _TRAIN_SAMPLES), ("val", _VAL_SAMPLES)):
        pictures = FakeImageNet(
            num_samples=num_samples,
            num_classes=_CLASSES,
            split="train" if split == "train" else "val",
            size=(128, 96),
            labels=labels if split == "train" else "signal",
        )
        prefix = f"imagenet-{split}"
        source = FakeSource(pictures)
        plan = plan_shards(source, prefix=prefix, size=ShardSize(samples=250 if split == "train" else 100))
        config = PackConfig(folder=folder, prefix=prefix)
        manifest = pack(source, plan, config=config, on_shard=lambda _: None)
        print_line(
            f"made    {counted(len(manifest.shards), 'shard')} of {prefix}, {counted(manifest.num_samples, 'sample')}"
        )


def _check(folder: Path) -> None:
    from shardkit import CheckOptions, check_shards, expand_patterns

    reports = list(check_shards(expand_patterns([str(folder)]), CheckOptions(complete=True)))
    findings = [finding for report in reports for finding in report.findings]
    print_line(f"checked {counted(len(reports), 'shard')}: every picture decodes, {counted(len(findings), 'finding')}")
    if findings:
        raise typer.Exit(1)


def _train(folder: Path) -> TrainResult:
    import resnettrain

    settings = resnettrain.resolve_config(
        flags={
            "data.urls": [str(folder / "shards" / "imagenet-train.manifest.json")],
            "data.val_urls": [str(folder / "shards" / "imagenet-val.manifest.json")],
            "data.batch_size": 50,
            "model.name": "tiny",
            "model.image_size": 64,
            "optim.lr": 0.1,
            "schedule.epochs": _EPOCHS,
            "run_dir": folder / "train",
        }
    )
    view = RunView()
    try:
        result = resnettrain.train(settings, progress=view)
    finally:
        view.close()
    print_line(
        f"trained {counted(result.updates, 'step')} of {settings.data.batch_size}, {result.images_per_s:.0f} images/s"
    )
    if result.outcome == "interrupted":
        raise typer.Exit(128 + (result.signal or 2))
    return result


def _evaluate(folder: Path) -> EvalResult:
    from resnettrain import evaluate_checkpoint

    figures = evaluate_checkpoint(folder / "train", [str(folder / "shards" / "imagenet-val.manifest.json")])
    print_line(f"validation top-1 {figures.top1:.4f} on {counted(figures.count, 'sample')}, each counted once")
    return figures


def _print_end(folder: Path, spent: dict[str, float], *, result: TrainResult) -> None:
    """Say where the time went, and what to try next."""
    print_line()
    print_line("Where the time went")
    spent = {**spent, "starting torch": spent["training"] - result.seconds, "training": result.seconds}
    for what, seconds in spent.items():
        print_line(f"  {what:14} {seconds:6.1f} s")
    computing_s = result.seconds - result.wait_s - result.val_s - result.save_s
    print_line(
        f"  of training: {computing_s:.1f} s computing, {result.wait_s:.1f} s waiting for data, "
        f"{result.val_s:.1f} s validating, {result.save_s:.1f} s saving"
    )
    print_line()
    print_line("Try next")
    wds = _own_command()
    print_line(f"  {wds} inspect {folder}/shards/imagenet-train-000000.tar")
    shards = f"{folder}/shards/imagenet-train-<000000..000003>.tar"
    print_line(f"  {wds} train --urls '{shards}' --model tiny --image-size 64")
    print_line(f"  {wds} make-shards --from-folder YOUR_PICTURES")


def _own_command() -> str:
    """Return what to type for this command: its path where it lies below the working folder, as nox installs it."""
    path = Path(sys.argv[0]).absolute()
    if path.name != "wds":
        return "python -m wds"
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else "wds"
