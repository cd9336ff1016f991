"""The command that indexes shards that others made: ``wds index``."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wds.checks import Patterns
from wds.console import (
    JOBS,
    AsJson,
    Jobs,
    Progress,
    human_bytes,
    print_error,
    print_json,
    print_line,
    print_note,
    print_warning,
)
from wds.patterns import shards_to_read, without_stdin
from wds.text import counted, masked

if TYPE_CHECKING:
    from shardkit import Catalog, IndexedShard

__all__ = ["index"]


class Export(StrEnum):
    """The tools whose index can be written."""

    DALI = "dali"
    WIDS = "wids"
    SIZES = "sizes"


Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        file_okay=False,
        show_default="beside the shards",
        help="Folder for the indexes; remote shards need one.",
    ),
]
WithManifest = Annotated[
    bool, typer.Option("--manifest/--no-manifest", help="Make the manifest, which says what the whole set is.")
]
Prefix = Annotated[
    str | None, typer.Option("--prefix", show_default="from the shards' names", help="The manifest's name begins so.")
]
ClassNames = Annotated[
    str | None,
    typer.Option(
        "--classes",
        metavar="FILE|N",
        show_default="none",
        help="A file of class names, one a line in the order of their numbers; or how many classes there are.",
    ),
]
Split = Annotated[
    str | None, typer.Option("--split", show_default="train", help="What the manifest says they are for.")
]
Check = Annotated[bool, typer.Option("--check", help="Compare the checksums of all shards, not just size and time.")]
Table = Annotated[
    Path | None, typer.Option("--table", metavar="FILE", help="Write a Parquet table too, with one row a sample.")
]
Exports = Annotated[
    list[Export] | None,
    typer.Option("--export", help="Write the index of another tool too; may be given again."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read the shards and write nothing.")]


def index(
    patterns: Patterns,
    out: Out = None,
    manifest: WithManifest = True,
    prefix: Prefix = None,
    classes: ClassNames = None,
    split: Split = None,
    check: Check = False,
    table: Table = None,
    export: Exports = None,
    jobs: Jobs = JOBS,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Index shards that others made. Only shards whose index is missing or stale are read.

    Exit 1: a shard cannot be indexed; the indexes of the others are written, nothing of the whole set is.
    """
    from shardkit import CatalogOptions, catalog_shards, read_classes

    locations, manifests = shards_to_read(without_stdin(patterns), all_there=True)
    options = CatalogOptions(
        folder=out,
        manifest=manifest,
        prefix=prefix,
        classes=None if classes is None else read_classes(classes),
        split=split,
        known=tuple(manifests.values()),
        table=table,
        exports=frozenset(wanted.value for wanted in export or ()),
        check=check,
        write=not dry_run,
        jobs=jobs,
    )
    progress = Progress("shards", total=len(locations), quiet=as_json)

    def show(shard: IndexedShard) -> None:
        progress.advance()
        for warning in shard.warnings:
            print_warning(warning)
        if not as_json and shard.outcome != "failed":
            dali = "" if shard.dali_path is None else f"; {shard.dali_path.name}"
            print_line(f"{shard.index_path}  {counted(shard.num_samples, 'sample')}, {shard.outcome}{dali}")

    try:
        catalog = catalog_shards(locations, options, on_shard=show)
    finally:
        progress.close()
    if as_json:
        print_json(_as_document(catalog))
    else:
        _print_summary(catalog)
    if catalog.failed:
        raise typer.Exit(1)


def _print_summary(catalog: Catalog) -> None:
    for shard in catalog.failed:
        print_error(shard.error)
    for found in catalog.findings:
        print_warning(f"{found.shard}: {found.message} ({found.rule}). {found.remedy}")
    for path in catalog.manifests:
        if path not in catalog.written and path.exists():
            print_line(f"{path}  kept")
    unlabelled = sum(shard.labels.get(-1, 0) for shard in catalog.shards)
    if any(label >= 0 for shard in catalog.shards for label in shard.labels) and unlabelled:
        print_warning(
            f"{counted(unlabelled, 'sample has/samples have')} no whole number as label: wds validate says which"
        )
    if catalog.nameless:
        print_note("The manifest has no class names: nobody knows them here. To give them: --classes FILE")
    for path in catalog.written:
        print_line(f"{path}  written")
    counts = Counter(shard.outcome for shard in catalog.shards)
    samples = sum(shard.num_samples for shard in catalog.shards)
    size = human_bytes(sum(shard.num_bytes for shard in catalog.shards))
    outcomes = ", ".join(f"{counts[o]} {o}" for o in ("made", "renewed", "kept", "failed") if counts[o])
    print_line(f"{counted(len(catalog.shards), 'shard')}, {counted(samples, 'sample')}, {size}: {outcomes}")
    if catalog.failed:
        print_error(
            f"{len(catalog.failed)} of {counted(len(catalog.shards), 'shard')} cannot be indexed; of the whole "
            "set nothing was "
            "written. See what is wrong with them: wds validate"
        )


def _as_document(catalog: Catalog) -> dict[str, object]:
    return {
        "indexes": [
            {
                "shard": masked(shard.shard),
                "index": str(shard.index_path),
                "dali": None if shard.dali_path is None else str(shard.dali_path),
                "outcome": shard.outcome,
                "samples": shard.num_samples,
                "bytes": shard.num_bytes,
                "xxh3_128": shard.checksum,
                "labels": {str(label): count for label, count in shard.labels.items()},
                "warnings": [masked(warning) for warning in shard.warnings],
                "error": masked(shard.error),
            }
            for shard in catalog.shards
        ],
        "findings": [
            {"rule": f.rule, "severity": f.severity, "shard": masked(f.shard), "message": masked(f.message)}
            for f in catalog.findings
        ],
        "manifests": [str(path) for path in catalog.manifests],
        "written": [str(path) for path in catalog.written],
    }
