"""The command that makes the shards of a written plan, or a part of them: ``wds run-plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wds import pack_view
from wds.console import JOBS, AsJson, Jobs, print_json, print_line
from wds.pack_options import DryRun
from wds.recoding import transform_named
from wds.text import counted

if TYPE_CHECKING:
    from shardkit import Slice, WrittenPlan

__all__ = ["run_plan"]

PlanFile = Annotated[
    Path, typer.Argument(metavar="PLAN", help="The plan that wds make-shards --plan-only wrote, in its folder.")
]
Part = Annotated[
    str, typer.Option("--slice", metavar="N/OF", help="The part to make, such as 3/16, the third of sixteen.")
]


def run_plan(
    plan: PlanFile, part: Part = "1/1", jobs: Jobs = JOBS, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Make the shards of a plan beside it, or a part of them; whoever makes the last writes the manifest."""
    import shardkit

    slice_of_it = shardkit.parse_slice(part)
    try:
        written = shardkit.read_plan(plan)
    except FileNotFoundError:
        prefix = plan.name.removesuffix(shardkit.PLAN_SUFFIX)
        config = shardkit.PackConfig(folder=plan.parent, prefix=prefix)
        if prefix == plan.name or not config.manifest_path.exists():
            reason = f"{plan}: no such plan. wds make-shards --plan-only writes one"
            raise typer.BadParameter(reason) from None
        # Finished: the manifest has taken the plan's place.
        pack_view.result(shardkit.read_manifest(config.manifest_path), config, ignored=(), as_json=as_json)
        return
    source = shardkit.reopen_source(written.recipe)
    config = written.config(plan.parent, jobs=jobs, transform=transform_named(written.transform))
    shards = slice_of_it.shards(written)
    if dry_run:
        pack_view.layout_of_part(source, shards, config=config, as_json=as_json)
        return
    with pack_view.packing(config, total=len(shards), resume=(), quiet=as_json) as on_shard:
        manifest = shardkit.run_plan(source, written, config=config, part=slice_of_it, on_shard=on_shard)
    if manifest is None:
        _print_part(slice_of_it, written, folder=plan.parent, as_json=as_json)
    else:
        pack_view.result(manifest, config, ignored=getattr(source, "ignored", ()), as_json=as_json)


def _print_part(part: Slice, plan: WrittenPlan, *, folder: Path, as_json: bool) -> None:
    """Say that this part is done, and how much of the whole is there."""
    missing = [shard.name for shard in plan.shards if not (folder / shard.name).exists()]
    made = len(part.shards(plan))
    if as_json:
        print_json({"slice": f"{part.number}/{part.of}", "shards": made, "missing": missing, "manifest": None})
        return
    there = len(plan.shards) - len(missing)
    print_line(
        f"slice {part.number}/{part.of}: {counted(made, 'shard is/shards are')} made; of the whole, {there} of "
        f"{len(plan.shards)}"
    )
