"""The command that writes samples of shards into other shards: ``wds reshard``."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from wds import pack_options as opt
from wds import pack_view
from wds.checks import LocalPatterns
from wds.console import JOBS, AsJson, Jobs, print_note, print_warning
from wds.patterns import local_shards
from wds.recoding import picture_changes
from wds.text import counted

if TYPE_CHECKING:
    from shardkit import PackConfig, Selection, ShardSize

__all__ = ["reshard"]


def reshard(
    patterns: LocalPatterns,
    out: opt.Out,
    prefix: opt.ReshardPrefix = "resharded",
    shard_size: opt.ReshardShardSize = None,
    count: opt.ReshardCount = None,
    shuffle: opt.ReshardShuffle = False,
    seed: opt.ReshardSeed = 0,
    split: opt.ReshardSplit = None,
    labels: opt.ReshardLabels = None,
    keys: opt.Keys = None,
    drop_keys: opt.DropKeys = None,
    min_bytes: opt.MinBytes = None,
    max_bytes: opt.MaxBytes = None,
    min_side: opt.MinSide = None,
    max_side: opt.MaxSide = None,
    share: opt.Share = None,
    relabel: opt.Relabel = None,
    drop_unmapped: opt.DropUnmapped = False,
    rekey: opt.Rekey = False,
    max_size: opt.MaxSize = None,
    quality: opt.ReshardQuality = None,
    crop_ready: opt.CropReady = False,
    on_exists: opt.OnExists = "fail",
    on_error: opt.ReshardOnError = "stop",
    jobs: Jobs = JOBS,
    dry_run: opt.DryRun = False,
    plan_only: opt.PlanOnly = False,
    as_json: AsJson = False,
) -> None:
    """Write the samples of shards into new shards: split, merge, filter, sample, relabel, re-encode, shuffle.

    Bytes are kept unless re-encoding is asked for; gzip is unpacked. Killed, it goes on: --on-exists resume.
    """
    from shardkit import PackConfig, Selection, parse_labels

    selection = Selection(
        labels=None if labels is None else parse_labels(labels), keys=keys, drop_keys=drop_keys,
        min_bytes=min_bytes, max_bytes=max_bytes, min_side=min_side, max_side=max_side, share=share,
        relabel=relabel, drop_unmapped=drop_unmapped, rekey=rekey, shuffle=shuffle, seed=seed,
    )  # fmt: skip
    recode, transform = picture_changes(max_size=max_size, quality=quality, crop_ready=crop_ready)
    config = PackConfig(
        folder=out, prefix=prefix, jobs=jobs, on_exists=on_exists, on_error=on_error, recode=recode,
        transform=transform,
    )  # fmt: skip
    task = _Task(
        paths=local_shards(patterns, all_there=True), selection=selection, size=_size(shard_size, count=count),
        count=count, split=split, config=config, as_json=as_json,
    )  # fmt: skip
    task.run(dry=dry_run, plan_only=plan_only)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What was asked for: from which shards, which samples, in which layout."""

    paths: list[str]
    selection: Selection
    size: ShardSize | None
    count: int | None
    split: str | None
    config: PackConfig
    as_json: bool

    def run(self, *, dry: bool, plan_only: bool) -> None:
        """Open the shards and write the new ones; or show the layout, or write it down."""
        from shardkit import open_shards, pack, plan_shards, prepare, require_apart

        config = self.config
        require_apart(self.paths, config)
        with ExitStack() as stack:
            # A dry run leaves the output folder alone, even where it must unpack.
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory())) if dry else config.folder
            opened = open_shards(
                self.paths,
                self.selection,
                unpack_to=None if plan_only else scratch,
                prefix=config.prefix,
                split=self.split,
                jobs=config.jobs,
            )
            source = stack.enter_context(opened)
            for note in source.notes:
                print_warning(note)
            plan = plan_shards(source, prefix=config.prefix, num_shards=self.count, size=self.size)
            if dry:
                pack_view.layout(source, plan, config=config, as_json=self.as_json)
                return
            if plan_only:
                pack_view.planned(prepare(source, plan, config=config), plan, as_json=self.as_json)
                return
            with pack_view.packing(config, total=len(plan), quiet=self.as_json) as on_shard:
                manifest = pack(source, plan, config=config, on_shard=on_shard)
        pack_view.result(manifest, config, ignored=(), as_json=self.as_json)
        num_before = sum(shard.num_samples for shard in source.shards)
        print_note(
            f"{manifest.num_samples} of {counted(num_before, 'sample')} of {counted(len(source.shards), 'shard')}"
        )


def _size(text: str | None, *, count: int | None) -> ShardSize | None:
    """Return the size of a shard, None where their number is given."""
    from shardkit import ShardSize, parse_shard_size

    if count is not None:
        if text is not None:
            raise typer.BadParameter("give either --shard-size or --count")
        return None
    return ShardSize(samples=opt.DEFAULT_SHARD_SAMPLES) if text is None else parse_shard_size(text)
