"""The command that indexes shards that others made: ``wds index``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wds.checks import Patterns
from wds.console import AsJson, print_json, print_line
from wds.patterns import local_shards

__all__ = ["index"]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Read the shards and write nothing.")]


def index(patterns: Patterns, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Index local shards that others made: counts, labels and byte offsets, beside each shard."""
    from shardkit import build_index, index_path_of, write_index

    indexed = []
    for path in local_shards(patterns, all_there=True):
        made = build_index(Path(path))
        if not dry_run:
            write_index(made, Path(index_path_of(path)))
        indexed.append({"index": index_path_of(path), "samples": made.num_samples, "bytes": made.num_bytes})
        if not as_json:
            print_line(f"{index_path_of(path)}  {made.num_samples} samples")
    if as_json:
        print_json({"indexes": indexed})
