"""The command that makes shards: ``wds make-shards``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wds import pack_options as opt
from wds.console import AsJson, Jobs, Progress, human_bytes, print_json, print_line, print_note, print_warning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardkit import FakeSource, FolderSource, Manifest, PackConfig, ShardPlan

__all__ = ["make_shards"]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the layout and write nothing.")]

# So many skipped files are named; the manifest and --json have all.
_NAMED = 5
# Options that belong to one kind of source.
_OF_FAKE_PICTURES = ("classes", "size", "sizes", "quality", "labels")
_OF_A_FOLDER = ("val_share", "shuffle", "on_error")
_JOBS = min(os.cpu_count() or 1, 8)


def make_shards(
    ctx: typer.Context,
    count: opt.Count = None,
    out: opt.Out = Path("shards"),
    prefix: opt.Prefix = None,
    samples_per_shard: opt.SamplesPerShard = None,
    split: opt.Split = "train",
    seed: opt.Seed = 0,
    on_exists: opt.OnExists = "fail",
    from_folder: opt.FromFolder = None,
    val_share: opt.ValShare = None,
    shuffle: opt.Shuffle = True,
    on_error: opt.OnError = "stop",
    classes: opt.Classes = 1000,
    size: opt.Size = "500x375",
    sizes: opt.Sizes = "varied",
    quality: opt.Quality = 95,
    labels: opt.Labels = "signal",
    jobs: Jobs = _JOBS,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make shards of fake ImageNet pictures, or pack an image folder."""
    from shardkit import FakeImageNet, FakeSource, PackConfig, ShardSize, open_folder, plan_shards

    _refuse(ctx, _OF_FAKE_PICTURES if from_folder is not None else _OF_A_FOLDER)
    source: FakeSource | FolderSource
    if from_folder is not None:
        source = open_folder(from_folder, split=split, seed=seed, val_share=val_share, shuffle=shuffle)
        per_shard = samples_per_shard or (None if count else 1000)
    else:
        per_shard = samples_per_shard or 100
        num_samples, count = (count or 4) * per_shard, None
        pictures = FakeImageNet(
            num_samples=num_samples,
            num_classes=classes,
            split=split,
            seed=seed,
            size=_size(size),
            sizes=sizes,
            quality=quality,
            labels=labels,
        )
        source = FakeSource(pictures)
    prefix = prefix or f"imagenet-{split}"
    plan = plan_shards(
        source, prefix=prefix, num_shards=count, size=None if per_shard is None else ShardSize(samples=per_shard)
    )
    config = PackConfig(folder=out, prefix=prefix, jobs=jobs, on_exists=on_exists, on_error=on_error)
    show = _show_plan if dry_run else _pack
    show(source, plan, config=config, as_json=as_json)


def _pack(source: FakeSource | FolderSource, plan: Sequence[ShardPlan], *, config: PackConfig, as_json: bool) -> None:
    """Pack, with progress on stderr, and say what was made."""
    from shardkit import pack

    progress = Progress("shards", total=len(plan), quiet=as_json)
    try:
        manifest = pack(source, plan, config=config, on_shard=lambda _: progress.advance())
    finally:
        progress.close()
    if all(name.isdigit() for name in manifest.classes) and len(manifest.classes) > 10:
        print_warning(f"class names are numbers, sorted as text: {', '.join(manifest.classes[:4])}, ..")
    if ignored := getattr(source, "ignored", 0):
        print_warning(f"{ignored} files of the folder are no pictures by their names and were left out")
    if manifest.skipped:
        more = "; .." if len(manifest.skipped) > _NAMED else ""
        print_warning(f"skipped {len(manifest.skipped)} files: {'; '.join(manifest.skipped[:_NAMED])}{more}")
    if as_json:
        print_json(_as_document(manifest, config))
    else:
        _print_manifest(manifest, config)


def _print_manifest(manifest: Manifest, config: PackConfig) -> None:
    last = manifest.shards[-1].name
    print_line(f"{len(manifest.shards)} shards, {config.folder / manifest.shards[0].name} to {last}")
    print_line(
        f"{manifest.num_samples} samples, {len(manifest.classes)} classes {manifest.class_order}, "
        f"{human_bytes(manifest.num_bytes)}, digest {manifest.digest}"
    )
    print_note(f"Look at one: wds inspect {config.folder / manifest.shards[0].name}")


def _as_document(manifest: Manifest, config: PackConfig) -> dict[str, object]:
    return {
        "manifest": str(config.manifest_path),
        "shards": [str(config.folder / shard.name) for shard in manifest.shards],
        "samples": manifest.num_samples,
        "bytes": manifest.num_bytes,
        "classes": len(manifest.classes),
        "digest": manifest.digest,
        "skipped": list(manifest.skipped),
    }


def _show_plan(
    source: FakeSource | FolderSource, plan: Sequence[ShardPlan], *, config: PackConfig, as_json: bool
) -> None:
    """Print the exact layout, and what is in its way."""
    from shardkit import existing_output

    in_the_way = [str(path) for path in existing_output(config)]
    if as_json:
        shards = [{"name": shard.name, "samples": len(shard.samples)} for shard in plan]
        print_json({"folder": str(config.folder), "shards": shards, "existing": in_the_way})
        return
    for shard in plan:
        print_line(f"{config.folder / shard.name}  {len(shard.samples)} samples")
    print_line(f"{config.manifest_path}  {len(source)} samples in {len(plan)} shards, {len(source.classes)} classes")
    if in_the_way:
        print_note(f"{len(in_the_way)} files of this prefix are there already; --on-exists {config.on_exists}")


def _refuse(ctx: typer.Context, names: Sequence[str]) -> None:
    """Refuse options that would change nothing here. Raises: typer.BadParameter: naming the first that was given."""
    for name in names:
        given = ctx.get_parameter_source(name)
        if given is not None and given.name == "COMMANDLINE":
            where = "fake pictures, not of a folder" if names is _OF_FAKE_PICTURES else "an image folder: --from-folder"
            raise typer.BadParameter(f"is an option of {where}", param_hint=f"--{name.replace('_', '-')}")


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no size. Write it like 500x375", param_hint="--size")
    return int(match[1]), int(match[2])
