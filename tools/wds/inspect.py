"""The commands that look at shards: ``wds inspect``, ``wds validate`` and ``wds index``."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wds.console import AsJson, Jobs, Progress, human_bytes, print_json, print_line
from wds.patterns import local_shards

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardkit import CheckOptions, Extent, Finding, ShardReport, ShardSummary

__all__ = ["index", "inspect", "validate"]

Patterns = Annotated[
    list[str],
    typer.Argument(metavar="PATTERN...", help="Names, {000000..000003}, <000000..000003>, globs, @list, folders."),
]
Classes = Annotated[
    int | None, typer.Option("--classes", min=1, show_default="as the manifest says", help="Labels must lie in 0..N-1.")
]
Decode = Annotated[bool, typer.Option("--decode/--no-decode", help="Unpack every picture, or read its header only.")]
MaxPixels = Annotated[int, typer.Option(min=1, help="Larger pictures are refused before they are unpacked.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read the shards and write nothing.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 on warnings and notes too.")]

_JOBS = min(os.cpu_count() or 1, 8)
# As shardkit.MAX_PIXELS, which is not imported just to show the help.
_MAX_PIXELS = 89_478_485
# So many findings of one rule are listed for a shard; --json has all.
_LISTED = 5
_BAR_WIDTH = 40


def inspect(
    patterns: Patterns,
    classes: Classes = None,
    decode: Decode = True,
    max_pixels: MaxPixels = _MAX_PIXELS,
    strict: Strict = False,
    jobs: Jobs = _JOBS,
    as_json: AsJson = False,
) -> None:
    """Show what shards hold and every problem found. `-` reads one shard from standard input."""
    from shardkit import CheckOptions

    options = CheckOptions(num_classes=classes, decode=decode, max_pixels=max_pixels, jobs=jobs)
    reports, across = _check(patterns, options, quiet=as_json)
    if as_json:
        print_json(_as_document(reports, across))
    else:
        for report in reports:
            _print_summary(report.summary)
            _print_findings(report.findings)
        _print_findings(across)
    _exit_on(reports, across, strict=strict)


def validate(
    patterns: Patterns,
    classes: Classes = None,
    decode: Decode = True,
    max_pixels: MaxPixels = _MAX_PIXELS,
    strict: Strict = False,
    jobs: Jobs = _JOBS,
    as_json: AsJson = False,
) -> None:
    """Check shards against all rules and the manifest beside them. `-` reads one shard from standard input."""
    from shardkit import CheckOptions

    options = CheckOptions(num_classes=classes, decode=decode, max_pixels=max_pixels, jobs=jobs, complete=True)
    reports, across = _check(patterns, options, quiet=as_json)
    if as_json:
        print_json(_as_document(reports, across))
    else:
        for report in reports:
            if report.findings:
                print_line(report.summary.shard)
                _print_findings(report.findings)
        _print_findings(across)
        _print_verdict(reports, across)
    _exit_on(reports, across, strict=strict)


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


def _check(
    patterns: Sequence[str], options: CheckOptions, *, quiet: bool
) -> tuple[list[ShardReport], tuple[Finding, ...]]:
    """Check the shards that the patterns name; return the report of each, and what is wrong with them together."""
    from shardkit import check_shards, check_together

    paths = ["-"] if list(patterns) == ["-"] else local_shards(patterns)
    progress = Progress("shards", total=len(paths), quiet=quiet)
    reports = []
    try:
        for report in check_shards(paths, options):
            reports.append(report)
            progress.advance()
    finally:
        progress.close()
    return reports, tuple(check_together(reports))


def _exit_on(reports: Sequence[ShardReport], across: Sequence[Finding], *, strict: bool) -> None:
    """End with 1 if something is wrong."""
    findings = [*across, *(finding for report in reports for finding in report.findings)]
    if any(finding.severity == "error" or strict for finding in findings):
        raise typer.Exit(1)


def _print_summary(summary: ShardSummary) -> None:
    print_line(summary.shard)
    stored = "" if summary.num_bytes is None else f", {summary.num_bytes:,} bytes"
    print_line(
        f"  samples     {summary.samples}, {summary.whole} whole{stored}{', gzip' if summary.compressed else ''}"
    )
    print_line(f"  members     {_counts(summary.extensions)}")
    print_line(f"  pictures    {_counts(summary.formats)}; {_counts(summary.modes)}")
    if summary.widths is not None and summary.heights is not None and summary.picture_bytes is not None:
        print_line(f"  width       {_extent(summary.widths)} pixels")
        print_line(f"  height      {_extent(summary.heights)} pixels")
        print_line(f"  bytes       {_extent(summary.picture_bytes)} a picture")
    if summary.labels:
        print_line(f"  labels      {min(summary.labels)}..{max(summary.labels)}, {len(summary.labels)} different")
        for line in _histogram(summary.labels):
            print_line(f"    {line}")
    print_line(f"  first keys  {', '.join(_visible(key) for key in summary.first_keys)}")


def _print_findings(findings: Sequence[Finding]) -> None:
    """Print findings, the first few of each rule."""
    counted: Counter[str] = Counter()
    totals = Counter(finding.rule for finding in findings)
    for finding in findings:
        counted[finding.rule] += 1
        if counted[finding.rule] <= _LISTED:
            where = "" if finding.member is None else f"'{_visible(finding.member)}' "
            where += "" if finding.offset is None else f"at byte {finding.offset} "
            colon = ": " if where else ""
            print_line(f"  {finding.severity:7} {finding.rule}  {where.strip()}{colon}{finding.message}")
        if counted[finding.rule] == min(totals[finding.rule], _LISTED):
            more = totals[finding.rule] - _LISTED
            print_line(f"          {f'and {more} more. ' if more > 0 else ''}{finding.remedy}.")


def _print_verdict(reports: Sequence[ShardReport], across: Sequence[Finding]) -> None:
    severities = Counter(f.severity for f in [*across, *(f for report in reports for f in report.findings)])
    samples = sum(report.summary.samples for report in reports)
    whole = sum(report.summary.whole for report in reports)
    num_bytes = sum(report.summary.num_bytes or 0 for report in reports)
    found = ", ".join(f"{severities[s]} {s}s" for s in ("error", "warning", "note"))
    print_line(f"{len(reports)} shards, {samples} samples, {whole} whole, {human_bytes(num_bytes)}: {found}")


def _as_document(reports: Sequence[ShardReport], across: Sequence[Finding]) -> dict[str, object]:
    """Return the reports as JSON values; names that are not UTF-8 are escaped."""
    shards = []
    for report in reports:
        summary = dataclasses.asdict(report.summary)
        summary["first_keys"] = [_visible(key) for key in report.summary.first_keys]
        shards.append({**summary, "findings": [_finding(finding) for finding in report.findings]})
    return {"shards": shards, "findings": [_finding(finding) for finding in across]}


def _finding(finding: Finding) -> dict[str, object]:
    document = dataclasses.asdict(finding)
    document["member"] = None if finding.member is None else _visible(finding.member)
    return document


def _visible(name: str) -> str:
    from shardkit import printable

    return printable(name)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{_visible(name)} {count}" for name, count in counts.items()) or "none"


def _extent(extent: Extent) -> str:
    return f"{extent.smallest:,} to {extent.largest:,}, mean {extent.mean:,.0f}"


def _histogram(labels: Mapping[int, int]) -> list[str]:
    """Return a bar for each label, or for each tenth of the range where there are many."""
    first, last = min(labels), max(labels)
    step = 1 if len(labels) <= 10 else max(1, -(-(last - first + 1) // 10))
    bins: Counter[int] = Counter()
    for label, count in labels.items():
        bins[label if step == 1 else first + (label - first) // step * step] += count
    most = max(bins.values())
    lines = []
    for start, count in sorted(bins.items()):
        name = str(start) if step == 1 else f"{start}..{min(start + step - 1, last)}"
        lines.append(f"{name:>12} {count:>7} {'#' * round(_BAR_WIDTH * count / most)}")
    return lines
