"""Reports on shards -> lines of text: a table of several shards, a summary with histograms, findings by rule."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from typing import TYPE_CHECKING

from wds.checks import origin_words
from wds.console import human_bytes, print_line
from wds.screen import Column, Screen, table
from wds.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardkit import Extent, Finding, Severity, ShardReport, ShardSummary

__all__ = ["print_reports"]

# So many findings of one rule are listed; --json has all.
_LISTED = 5
# Up to so many classes each has a bar; of more, the fullest and the emptiest are named.
_EACH_CLASS = 12
_NAMED_CLASSES = 5
_TENTHS = 10
# The reason why a shard cannot be read may be long; it is among the findings too.
_FOUND_WIDTH = 40
_COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow", "note": "blue"}
_UNREADABLE = "WDS000"


def print_reports(
    reports: Sequence[ShardReport], across: Sequence[Finding], *, classes: Sequence[str], screen: Screen
) -> None:
    """Print a table where there are several shards, all of them together, and the findings by rule.

    Args: classes: names by number, where they are known.
    """
    from shardkit import combined

    if len(reports) == 1:
        report = reports[0]
        print_line(_shown(report.summary.shard))
        if _reason_unreadable(report) is None:
            _print_all(summary_lines(report.summary, classes=classes, screen=screen), screen)
    else:
        _print_table(reports, screen)
        print_line()
        print_line(f"{len(reports)} shards together")
        together = combined([report.summary for report in reports])
        # Of one gzip shard among many, the findings tell.
        together = dataclasses.replace(together, compressed=all(report.summary.compressed for report in reports))
        _print_all(summary_lines(together, classes=classes, screen=screen), screen)
    findings = [*(finding for report in reports for finding in report.findings), *across]
    if findings:
        print_line()
    for severity, lines in finding_lines(findings, screen=screen, num_shards=len(reports)):
        for line in screen.wrapped(lines[0], indent=16):
            print_line(line, colour=_COLOURS[severity])
        _print_all(lines[1:], screen, indent=4)


def summary_lines(summary: ShardSummary, *, classes: Sequence[str], screen: Screen) -> list[str]:
    """Return what a shard, or several together, hold."""
    stored = "" if summary.num_bytes is None else f", {counted(summary.num_bytes, 'byte', spec=',')}"
    broken = f"; {summary.broken:,} broken" if summary.broken else ""
    lines = [
        f"  samples     {summary.samples:,}, {summary.whole:,} whole{stored}{', gzip' if summary.compressed else ''}",
        f"  members     {_counts(summary.extensions)}",
        f"  pictures    {_counts(summary.formats)}{f'; {_counts(summary.modes)}' if summary.modes else ''}{broken}",
    ]
    if summary.widths is not None and summary.heights is not None:
        lines += [f"  width       {_extent(summary.widths)} pixels", f"  height      {_extent(summary.heights)} pixels"]
        if len(summary.pixel_bins) > 1:
            lines += screen.bars([(_pixel_bin(first), count) for first, count in summary.pixel_bins.items()])
    if summary.picture_bytes is not None:
        lines.append(f"  bytes       {_extent(summary.picture_bytes)} a picture")
        if len(summary.byte_bins) > 1:
            lines += screen.bars([(_byte_bin(first), count) for first, count in summary.byte_bins.items()])
    if summary.labels:
        lines += _label_lines(summary.labels, classes=classes, screen=screen)
    if summary.first_keys:
        lines.append(screen.cut(f"  first keys  {', '.join(map(_shown, summary.first_keys))}", width=screen.width))
    return lines


def finding_lines(findings: Sequence[Finding], *, screen: Screen, num_shards: int) -> list[tuple[Severity, list[str]]]:
    """Return (severity, lines) of each rule broken: its effect, its first findings, what to do; errors first."""
    from shardkit import RULES

    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    order = list(_COLOURS)
    groups = []
    for rule, found in sorted(by_rule.items(), key=lambda item: (order.index(item[1][0].severity), item[0])):
        severity, shards = found[0].severity, {finding.shard for finding in found}
        within = f" in {len(shards)} of {num_shards} shards" if num_shards > 1 else ""
        times = f"{len(found):,} times" if len(found) > 1 else "once"
        lines = [f"{severity:7} {rule}  {times}{within}. {RULES[rule].effect}"]
        lines += [f"  {_where(f, screen, named=num_shards > 1)}{f.message}{origin_words(f)}" for f in found[:_LISTED]]
        more = f"and {len(found) - _LISTED:,} more. " if len(found) > _LISTED else ""
        lines.append(f"  {more}What to do: {found[0].remedy}.")
        groups.append((severity, lines))
    return groups


def _print_all(lines: Sequence[str], screen: Screen, *, indent: int = 14) -> None:
    for line in lines:
        for part in screen.wrapped(line, indent=indent):
            print_line(part)


def _print_table(reports: Sequence[ShardReport], screen: Screen) -> None:
    """Print a row for each shard, under their common folder; what could not be read says so."""
    names = [report.summary.shard for report in reports]
    folder = names[0].rpartition("/")[0] + "/" if "/" in names[0] else ""
    if folder and all(name.startswith(folder) and "/" not in name[len(folder) :] for name in names):
        print_line(_shown(folder))
        names = [name[len(folder) :] for name in names]
    summaries = [report.summary for report in reports]
    read = [_reason_unreadable(report) is None for report in reports]
    columns = [
        Column("shard", tuple(map(_shown, names))),
        _numbers("samples", [s.samples for s in summaries], read),
        _numbers("whole", [s.whole for s in summaries], read),
        Column("size", tuple("-" if s.num_bytes is None else human_bytes(s.num_bytes) for s in summaries), right=True),
        Column("found", tuple(screen.cut(_found(report), width=_FOUND_WIDTH) for report in reports)),
        _numbers("classes", [len(s.labels) for s in summaries], read),
        Column("pictures", tuple(_counts(s.formats) if ok else "-" for s, ok in zip(summaries, read, strict=True))),
        Column("width", tuple(_short_extent(s.widths) for s in summaries), right=True),
        Column("height", tuple(_short_extent(s.heights) for s in summaries), right=True),
        Column("bytes a picture", tuple(_short_extent(s.picture_bytes) for s in summaries), right=True),
        Column("members", tuple(_counts(s.extensions) if ok else "-" for s, ok in zip(summaries, read, strict=True))),
    ]
    lines = table(columns, screen)
    print_line(lines[0])
    for line, report in zip(lines[1:], reports, strict=True):
        severities = {finding.severity for finding in report.findings}
        print_line(
            line, colour=next((colour for s, colour in _COLOURS.items() if s in severities and s != "note"), None)
        )


def _found(report: ShardReport) -> str:
    """Return the findings of a shard, counted by severity; why it could not be read, where it could not."""
    reason = _reason_unreadable(report)
    if reason is not None:
        return reason
    counts = Counter(finding.severity for finding in report.findings)
    return ", ".join(f"{counts[s]} {s}{'s' * (counts[s] > 1)}" for s in _COLOURS if counts[s]) or "nothing"


def _reason_unreadable(report: ShardReport) -> str | None:
    """Return why nothing of the shard was read, None where something was."""
    for finding in report.findings:
        if finding.rule == _UNREADABLE:
            return finding.message.removeprefix("cannot be read: ")
    return None


def _where(finding: Finding, screen: Screen, *, named: bool) -> str:
    parts = [os.path.basename(_shown(finding.shard))] if named else []
    if finding.member is not None:
        parts.append(f"'{screen.cut(_shown(finding.member), width=max(screen.width // 2, 24))}'")
    if finding.offset is not None:
        parts.append(f"at byte {finding.offset}")
    return f"{' '.join(parts)}: " if parts else ""


def _label_lines(labels: Mapping[int, int], *, classes: Sequence[str], screen: Screen) -> list[str]:
    """Return a bar for each class, or for each tenth of the range, with the fullest and the emptiest named."""
    first, last = min(labels), max(labels)
    absent = sum(number not in labels for number in range(len(classes)))
    lacks = f", {absent:,} of the manifest's without a sample" if absent else ""
    lines = [f"  labels      {first}..{last}, {len(labels):,} different{lacks}"]
    if len(labels) <= _EACH_CLASS:
        numbers = sorted({*labels, *(range(len(classes)) if len(classes) <= _EACH_CLASS else ())})
        return lines + screen.bars([(_class(label, classes), labels.get(label, 0)) for label in numbers], side="<")
    step = -(-(last - first + 1) // _TENTHS)
    bins: Counter[int] = Counter()
    for label, count in labels.items():
        bins[first + (label - first) // step * step] += count
    lines += screen.bars([(f"{low}..{min(low + step - 1, last)}", count) for low, count in sorted(bins.items())])
    ranked = sorted(labels.items(), key=lambda item: (-item[1], item[0]))
    for title, few in (("most", ranked[:_NAMED_CLASSES]), ("fewest", ranked[: -_NAMED_CLASSES - 1 : -1])):
        named = ", ".join(f"{_class(label, classes)} {count:,}" for label, count in few)
        lines.append(screen.cut(f"  {title:11} {named}", width=screen.width))
    return lines


def _class(label: int, classes: Sequence[str]) -> str:
    return f"{label} {_shown(classes[label])}" if 0 <= label < len(classes) else str(label)


def _numbers(title: str, values: Sequence[int], read: Sequence[bool]) -> Column:
    return Column(title, tuple(f"{v:,}" if ok else "-" for v, ok in zip(values, read, strict=True)), right=True)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{_shown(name)} {count:,}" for name, count in counts.items()) or "none"


def _extent(extent: Extent) -> str:
    return f"{extent.smallest:,} to {extent.largest:,}, mean {extent.mean:,.0f}"


def _short_extent(extent: Extent | None) -> str:
    if extent is None:
        return "-"
    same = extent.smallest == extent.largest
    return f"{extent.smallest:,}" if same else f"{extent.smallest:,}-{extent.largest:,}"


def _pixel_bin(first: int) -> str:
    return f"{_pixels(first)} to {_pixels(2 * first)} pixels"


def _pixels(number: int) -> str:
    for unit, size in (("M", 1 << 20), ("k", 1 << 10)):
        if number >= size:
            return f"{number // size}{unit}"
    return str(number)


def _byte_bin(first: int) -> str:
    return f"{human_bytes(first)} to {human_bytes(2 * first)}".replace(".0 ", " ") if first else "empty"


def _shown(name: str) -> str:
    from shardkit import mask_url, printable

    return printable(mask_url(name))
