"""The command that makes shards: ``wds make-shards``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from wds import pack_options as opt
from wds import pack_view
from wds.console import JOBS, AsJson, Jobs
from wds.pack_sources import FAKE_QUALITY, SourceOptions, chosen_kind, opened, refuse_others, was_given
from wds.recoding import picture_changes
from wds.reshard import reshard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardkit import PackConfig, Recode, ShardPlan, Source, Transform

__all__ = ["make_shards"]


def make_shards(
    ctx: typer.Context,
    count: opt.Count = None,
    out: opt.Out = Path("shards"),
    prefix: opt.Prefix = None,
    shard_size: opt.ShardSizeText = None,
    split: opt.Split = "train",
    seed: opt.Seed = 0,
    on_exists: opt.OnExists = "fail",
    from_folder: opt.FromFolder = None,
    from_table: opt.FromTable = None,
    from_ilsvrc: opt.FromIlsvrc = None,
    from_shards: opt.FromShards = None,
    val_share: opt.ValShare = None,
    shuffle: opt.Shuffle = True,
    on_error: opt.OnError = "stop",
    image_column: opt.ImageColumn = None,
    label_column: opt.LabelColumn = None,
    key_column: opt.KeyColumn = None,
    root: opt.Root = None,
    ground_truth: opt.GroundTruth = None,
    synsets: opt.Synsets = None,
    max_size: opt.MaxSize = None,
    quality: opt.Quality = None,
    crop_ready: opt.CropReady = False,
    classes: opt.Classes = 1000,
    size: opt.Size = "500x375",
    sizes: opt.Sizes = "varied",
    labels: opt.Labels = "signal",
    jobs: Jobs = JOBS,
    dry_run: opt.DryRun = False,
    plan_only: opt.PlanOnly = False,
    as_json: AsJson = False,
) -> None:
    """Make shards of fake ImageNet pictures, or pack your own."""
    from shardkit import PackConfig

    options = SourceOptions(
        from_folder=from_folder, from_table=from_table, from_ilsvrc=from_ilsvrc, from_shards=from_shards, split=split,
        seed=seed, val_share=val_share, shuffle=shuffle, image_column=image_column, label_column=label_column,
        key_column=key_column, root=root, ground_truth=ground_truth, synsets=synsets, classes=classes, size=size,
        sizes=sizes, labels=labels, quality=quality,
    )  # fmt: skip
    refuse_others(ctx, chosen_kind(options))
    if from_shards:
        reshard(
            from_shards, out=out, prefix=prefix or f"imagenet-{split}", count=count, shard_size=shard_size,
            shuffle=shuffle, seed=seed, split=split if was_given(ctx, "split") else None, max_size=max_size,
            quality=quality, crop_ready=crop_ready, on_exists=on_exists, on_error=on_error, jobs=jobs, dry_run=dry_run,
            plan_only=plan_only, as_json=as_json,
        )  # fmt: skip
        return
    source, plan, prefix = _planned(options, prefix=prefix, count=count, shard_size=shard_size)
    recode, transform = _changes(options, max_size=max_size, crop_ready=crop_ready)
    config = PackConfig(
        folder=out, prefix=prefix, jobs=jobs, on_exists=on_exists, on_error=on_error, recode=recode,
        transform=transform,
    )  # fmt: skip
    show = pack_view.layout if dry_run else _prepare if plan_only else _pack
    show(source, plan, config=config, as_json=as_json)


def _planned(
    options: SourceOptions, *, prefix: str | None, count: int | None, shard_size: str | None
) -> tuple[Source, Sequence[ShardPlan], str]:
    """Open the source and lay it out; return the prefix too, which depends on the source."""
    from shardkit import ShardSize, parse_shard_size, plan_shards

    kind = chosen_kind(options)
    size = parse_shard_size(shard_size) if shard_size else ShardSize(samples=kind.default_shard_samples)
    source, num_shards = opened(kind, options, count=count, size=size)
    prefix = prefix or f"imagenet-{source.split}"
    if num_shards is not None and shard_size is None:
        return source, plan_shards(source, prefix=prefix, num_shards=num_shards), prefix
    return source, plan_shards(source, prefix=prefix, num_shards=num_shards, size=size), prefix


def _changes(
    options: SourceOptions, *, max_size: int | None, crop_ready: bool
) -> tuple[Recode | None, Transform | None]:
    """Return what becomes of the pictures. Fake ones have their quality when they are made."""
    quality = options.quality
    if chosen_kind(options).option is None:
        quality = (quality or FAKE_QUALITY) if crop_ready else None
    return picture_changes(max_size=max_size, quality=quality, crop_ready=crop_ready)


def _pack(source: Source, plan: Sequence[ShardPlan], *, config: PackConfig, as_json: bool) -> None:
    """Pack, with progress on stderr, and say what was made."""
    from shardkit import pack

    with pack_view.packing(config, total=len(plan), quiet=as_json) as on_shard:
        manifest = pack(source, plan, config=config, on_shard=on_shard)
    pack_view.result(manifest, config, ignored=getattr(source, "ignored", ()), as_json=as_json)


def _prepare(source: Source, plan: Sequence[ShardPlan], *, config: PackConfig, as_json: bool) -> None:
    """Write the plan and stop."""
    from shardkit import prepare

    pack_view.planned(prepare(source, plan, config=config), plan, as_json=as_json)
