"""The command that mends damaged shards: ``wds repair``."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wds.checks import DEFAULT_MAX_PIXELS, Classes, LocalPatterns, MaxPixels, NoDecode, visible_name
from wds.console import JOBS, AsJson, Jobs, Progress, print_json, print_line, print_note
from wds.patterns import local_shards
from wds.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardkit import Change, RepairConfig, RepairReport

__all__ = ["repair"]

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="DIR", file_okay=False, help="Folder for the repaired shards, named as they are."
    ),
]
InPlace = Annotated[bool, typer.Option("--in-place", help="Replace the shards instead; what is dropped is kept.")]
Doubles = Annotated[
    Literal["drop", "rename"],
    typer.Option(help="A whole sample whose key is taken, with other bytes: to the quarantine, or under a new key."),
]
OnExists = Annotated[Literal["fail", "overwrite"], typer.Option(help="Where a shard of that name is in DIR already.")]
CopyGood = Annotated[bool, typer.Option("--copy-good", help="Write shards to DIR too that need no repair.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done and write nothing.")]

# So many changes of one kind are listed for a shard; --json and the quarantine's report have all.
_LISTED = 5


def repair(
    patterns: LocalPatterns,
    out: Out = None,
    in_place: InPlace = False,
    doubles: Doubles = "drop",
    classes: Classes = None,
    no_decode: NoDecode = False,
    max_pixels: MaxPixels = DEFAULT_MAX_PIXELS,
    on_exists: OnExists = "fail",
    copy_good: CopyGood = False,
    jobs: Jobs = JOBS,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Write damaged shards anew: whole samples as they are, the rest to DIR/quarantine with a report.

    Nothing vanishes, and the result validates clean. Exit 1: of some shard nothing could be saved or written.
    """
    from shardkit import RepairConfig, carry_manifests, repair_shards

    if (out is None) != in_place:
        raise typer.BadParameter("give either --out DIR or --in-place")
    config = RepairConfig(
        folder=out, doubles=doubles, num_classes=classes, decode=not no_decode, max_pixels=max_pixels,
        on_exists=on_exists, copy_good=copy_good, dry_run=dry_run,
    )  # fmt: skip
    paths = ["-"] if list(patterns) == ["-"] else local_shards(patterns, all_there=True)
    progress = Progress("shards", total=len(paths), quiet=as_json)
    reports = []
    try:
        for report in repair_shards(paths, config, jobs=jobs):
            reports.append(report)
            progress.advance()
            if not as_json:
                progress.close()
                _print_report(report)
    finally:
        progress.close()
    manifests = [str(path) for path in carry_manifests(reports, config)]
    if as_json:
        shards = [_as_document(report) for report in reports]
        print_json({"shards": shards, "manifests": manifests, "dry_run": dry_run})
    else:
        _print_verdict(reports, dry_run=dry_run)
        _print_set(reports, config, manifests=manifests)
    if not all(report.saved for report in reports):
        raise typer.Exit(1)


def _print_report(report: RepairReport) -> None:
    if report.error is not None:
        print_line(f"{report.shard}: left as it was: {report.error}")
    elif not report.saved:
        print_line(f"{report.shard}: no whole sample, nothing could be saved")
    elif not report.changes:
        written = f", copied to {report.output}" if report.output else ""
        print_line(f"{report.shard}: nothing to repair, {counted(report.num_samples, 'sample')}{written}")
    else:
        written = f" -> {report.output}" if report.output else ""
        print_line(f"{report.shard}{written}: {counted(report.num_samples, 'whole sample')}")
    seen: Counter[tuple[str, str]] = Counter()
    totals = Counter((change.action, change.rule) for change in report.changes)
    for change in report.changes:
        kind = (change.action, change.rule)
        seen[kind] += 1
        if seen[kind] <= _LISTED:
            print_line(f"  {change.action:11} {change.rule}  {_where(change)}{change.message}")
        if seen[kind] == _LISTED < totals[kind]:
            print_line(f"              and {totals[kind] - _LISTED} more")
    if report.quarantine:
        print_line(f"  what was dropped, with a report: {report.quarantine}")


def _where(change: Change) -> str:
    where = "" if change.member is None else f"'{visible_name(change.member)}' "
    where += "" if change.offset is None else f"at byte {change.offset} "
    return f"{where.strip()}: " if where else ""


def _print_verdict(reports: Sequence[RepairReport], *, dry_run: bool) -> None:
    repaired = sum(report.saved and bool(report.changes) for report in reports)
    good = sum(report.saved and not report.changes for report in reports)
    failed = sum(report.error is not None for report in reports)
    lost = len(reports) - repaired - good - failed
    actions = Counter(change.action for report in reports if report.saved for change in report.changes)
    done = "to repair" if dry_run else "repaired"
    print_line(
        f"{counted(len(reports), 'shard')}: {repaired} {done}, {good} good, {lost} without a whole sample"
        f"{f', {failed} left as they were' if failed else ''}; "
        f"{counted(actions['quarantined'], 'member')} quarantined"
    )
    if dry_run:
        print_note("A dry run: nothing was written")


def _print_set(reports: Sequence[RepairReport], config: RepairConfig, *, manifests: Sequence[str]) -> None:
    """Say what is not in the new folder, and where the manifest of the set is, or comes from."""
    if config.folder is None or config.dry_run:
        return
    for path in manifests:
        print_line(f"{path}  written")
    left_out = sum(report.saved and report.output is None for report in reports)
    if left_out:
        print_note(f"{counted(left_out, 'good shard')} not in {config.folder}: --copy-good puts all of them there")
    if any(report.output for report in reports) and not any(config.folder.glob("*.manifest.json")):
        print_note(f"No manifest of them in {config.folder}: wds index {shlex.quote(str(config.folder))} makes one")


def _as_document(report: RepairReport) -> Mapping[str, object]:
    from shardkit import change_document

    return {
        "shard": visible_name(report.shard),
        "output": report.output,
        "quarantine": report.quarantine,
        "samples": report.num_samples,
        "saved": report.saved,
        "error": report.error,
        "changes": [change_document(change) for change in report.changes],
    }
