"""The command that writes samples of shards into other shards: ``wds reshard``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from wds import reshard_options as opt
from wds.checks import JOBS, Patterns
from wds.console import AsJson, Jobs, Progress, human_bytes, print_json, print_line, print_note, print_warning
from wds.patterns import local_shards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardkit import Manifest, PackConfig, Recode, ShardPlan, ShardsSource

__all__ = ["reshard"]

# So many skipped samples are named; the manifest and --json have all.
_NAMED = 5


def reshard(
    patterns: Patterns,
    out: opt.Out,
    prefix: opt.Prefix = "resharded",
    shard_size: opt.ShardSizeText = None,
    count: opt.Count = None,
    shuffle: opt.Shuffle = False,
    seed: opt.Seed = 0,
    split: opt.Split = None,
    labels: opt.Labels = None,
    keys: opt.Keys = None,
    drop_keys: opt.DropKeys = None,
    min_bytes: opt.MinBytes = None,
    max_bytes: opt.MaxBytes = None,
    min_side: opt.MinSide = None,
    max_side: opt.MaxSide = None,
    sample: opt.Sample = None,
    relabel: opt.Relabel = None,
    drop_unmapped: opt.DropUnmapped = False,
    rekey: opt.Rekey = False,
    max_size: opt.MaxSize = None,
    quality: opt.Quality = None,
    crop_ready: opt.CropReady = False,
    on_exists: opt.OnExists = "fail",
    on_error: opt.OnError = "stop",
    jobs: Jobs = JOBS,
    dry_run: opt.DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Write the samples of shards into new shards: split, merge, filter, sample, relabel, re-encode, shuffle.

    Bytes are kept as they are unless re-encoding is asked for. Gzip is unpacked. Killed, it goes on with --on-exists
    resume, and ends with the same bytes.
    """
    from shardkit import (
        PackConfig,
        Selection,
        ShardSize,
        open_shards,
        parse_labels,
        parse_shard_size,
        plan_shards,
        require_apart,
    )

    if count is not None and shard_size is not None:
        raise typer.BadParameter("give either --shard-size or --count")
    size = None if count is not None else ShardSize(samples=10_000)
    size = size if shard_size is None else parse_shard_size(shard_size)
    selection = Selection(
        labels=None if labels is None else parse_labels(labels), keys=keys, drop_keys=drop_keys,
        min_bytes=min_bytes, max_bytes=max_bytes, min_side=min_side, max_side=max_side, fraction=sample,
        relabel=relabel, drop_unmapped=drop_unmapped, rekey=rekey, shuffle=shuffle, seed=seed,
    )  # fmt: skip
    config = PackConfig(
        folder=out, prefix=prefix, jobs=jobs, on_exists=on_exists, on_error=on_error,
        recode=_recode(max_size, quality, crop_ready),
    )  # fmt: skip
    paths = local_shards(patterns, all_there=True)
    require_apart(paths, config)
    with tempfile.TemporaryDirectory() as scratch:
        # A dry run leaves the output folder alone, even where it must unpack.
        unpack_to = Path(scratch) if dry_run else out
        with open_shards(paths, selection, unpack_to=unpack_to, prefix=prefix, split=split, jobs=jobs) as source:
            for note in source.notes:
                print_warning(note)
            plan = plan_shards(source, prefix=prefix, num_shards=count, size=size)
            (_show_plan if dry_run else _pack)(source, plan, config=config, as_json=as_json)


def _recode(max_size: int | None, quality: int | None, crop_ready: bool) -> Recode | None:
    from shardkit import Recode

    if max_size is None and quality is None and not crop_ready:
        return None
    return Recode(max_size_px=max_size, quality=quality, crop_ready=crop_ready)


def _pack(source: ShardsSource, plan: Sequence[ShardPlan], *, config: PackConfig, as_json: bool) -> None:
    """Write the shards, with progress on stderr, and say what was made."""
    from shardkit import pack

    progress = Progress("shards", total=len(plan), quiet=as_json)
    try:
        manifest = pack(source, plan, config=config, on_shard=lambda _: progress.advance())
    finally:
        progress.close()
    if manifest.skipped:
        more = "; .." if len(manifest.skipped) > _NAMED else ""
        print_warning(f"skipped {len(manifest.skipped)} samples: {'; '.join(manifest.skipped[:_NAMED])}{more}")
    if as_json:
        print_json(_as_document(manifest, source, config=config))
        return
    first, last = config.folder / manifest.shards[0].name, manifest.shards[-1].name
    print_line(f"{len(source.shards)} shards -> {len(manifest.shards)} shards, {first} to {last}")
    print_line(
        f"{manifest.num_samples} of {_num_before(source)} samples, {human_bytes(manifest.num_bytes)}, "
        f"digest {manifest.digest}"
    )


def _as_document(manifest: Manifest, source: ShardsSource, *, config: PackConfig) -> dict[str, object]:
    return {
        "manifest": str(config.manifest_path),
        "shards": [str(config.folder / shard.name) for shard in manifest.shards],
        "samples": manifest.num_samples,
        "samples_before": _num_before(source),
        "bytes": manifest.num_bytes,
        "classes": len(manifest.classes),
        "digest": manifest.digest,
        "skipped": list(manifest.skipped),
        "notes": list(source.notes),
    }


def _show_plan(source: ShardsSource, plan: Sequence[ShardPlan], *, config: PackConfig, as_json: bool) -> None:
    """Print the exact layout, and what is in its way."""
    from shardkit import existing_output

    in_the_way = [str(path) for path in existing_output(config)]
    if as_json:
        shards = [{"name": shard.name, "samples": len(shard.samples)} for shard in plan]
        document = {"folder": str(config.folder), "shards": shards, "existing": in_the_way, "notes": list(source.notes)}
        print_json({**document, "samples_before": _num_before(source)})
        return
    for shard in plan:
        print_line(f"{config.folder / shard.name}  {len(shard.samples)} samples")
    print_line(f"{config.manifest_path}  {len(source)} of {_num_before(source)} samples in {len(plan)} shards")
    if in_the_way:
        print_note(f"{len(in_the_way)} files of this prefix are there already; --on-exists {config.on_exists}")


def _num_before(source: ShardsSource) -> int:
    return sum(shard.num_samples for shard in source.shards)
