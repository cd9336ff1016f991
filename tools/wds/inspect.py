"""The command that shows what shards hold: ``wds inspect``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from wds.checks import (
    DEFAULT_MAX_PIXELS,
    JOBS,
    AllowCommands,
    Classes,
    Decode,
    MaxPixels,
    Patterns,
    Strict,
    as_document,
    check,
    exit_on,
    print_findings,
    visible_name,
)
from wds.console import AsJson, Jobs, print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardkit import Extent, ShardSummary

__all__ = ["inspect"]

_BAR_WIDTH = 40


def inspect(
    patterns: Patterns,
    classes: Classes = None,
    decode: Decode = True,
    max_pixels: MaxPixels = DEFAULT_MAX_PIXELS,
    strict: Strict = False,
    allow_commands: AllowCommands = False,
    jobs: Jobs = JOBS,
    as_json: AsJson = False,
) -> None:
    """Show what shards hold and every problem found. `-` reads one shard from standard input."""
    from shardkit import CheckOptions

    options = CheckOptions(
        num_classes=classes, decode=decode, max_pixels=max_pixels, jobs=jobs, allow_commands=allow_commands
    )
    reports, across = check(patterns, options, quiet=as_json)
    if as_json:
        print_json(as_document(reports, across))
    else:
        for report in reports:
            _print_summary(report.summary)
            print_findings(report.findings)
        print_findings(across)
    exit_on(reports, across, strict=strict)


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
    print_line(f"  first keys  {', '.join(visible_name(key) for key in summary.first_keys)}")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{visible_name(name)} {count}" for name, count in counts.items()) or "none"


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
