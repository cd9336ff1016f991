"""One self-contained HTML page on shards: figures, findings, histograms, samples. It loads nothing from anywhere.

Owns what stands on the page; ``report.html`` beside it says how it looks. Every text is escaped, whatever names the
shards hold, and a Content-Security-Policy forbids scripts and requests. The same reports give the same bytes. Needs
jinja2.
"""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources

from PIL import Image

from shardkit.check.rules import RULES, Finding, Severity
from shardkit.check.validate import ShardReport
from shardkit.errors import ReportError, counted, printable
from shardkit.locations import mask_url, mask_urls
from shardkit.show.contact_sheet import caption
from shardkit.show.summary import ShardSummary, combined
from shardkit.show.tiles import Tile

__all__ = ["html_report"]

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
_UNREADABLE = "WDS000"
# So many places of one rule are listed: a page of a million lines opens in no browser.
_LISTED = 200
# Up to so many classes each has a bar; of more, the fullest and the emptiest have, and each fiftieth of the range.
_EACH_CLASS = 50
_ENDS = 10


def html_report(
    reports: Sequence[ShardReport],
    across: Sequence[Finding],
    *,
    title: str,
    tiles: Sequence[Tile] = (),
    classes: Sequence[str] = (),
) -> bytes:
    """Return the page, in UTF-8.

    Args: across: what is wrong with the shards together. classes: names by number, where they are known.
    Raises: ReportError: jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError as error:
        raise ReportError("an HTML report needs jinja2. Install it: pip install 'shardkit[html]'") from error
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    template = environment.from_string(resources.files("shardkit.show").joinpath("report.html").read_text("utf-8"))
    findings = [*(finding for report in reports for finding in report.findings), *across]
    whole = combined([report.summary for report in reports])
    page = template.render(
        title=_shown(title),
        figures=_figures(whole, findings, num_shards=len(reports)),
        findings=_groups(findings, num_shards=len(reports)),
        charts=_charts(whole, classes),
        tiles=[_tile(tile, classes) for tile in tiles],
        shards=[_shard(report) for report in reports],
    )
    return page.encode("utf-8")


def _figures(whole: ShardSummary, findings: Sequence[Finding], *, num_shards: int) -> list[tuple[str, str]]:
    counts = Counter(finding.severity for finding in findings)
    return [
        ("shards", f"{num_shards:,}"),
        ("samples", f"{whole.samples:,}"),
        ("whole", f"{whole.whole:,}"),
        ("bytes", "?" if whole.num_bytes is None else f"{whole.num_bytes:,}"),
        ("classes", f"{len(whole.labels):,}"),
        ("errors", f"{counts['error']:,}"),
        ("warnings", f"{counts['warning']:,}"),
        ("notes", f"{counts['note']:,}"),
    ]


def _groups(findings: Sequence[Finding], *, num_shards: int) -> list[dict[str, object]]:
    """Return the findings by rule, errors first."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    order = sorted(by_rule.items(), key=lambda item: (_SEVERITIES.index(item[1][0].severity), item[0]))
    return [
        {
            "rule": rule,
            "severity": found[0].severity,
            "times": _times(found, num_shards=num_shards),
            "effect": RULES[rule].effect,
            "remedy": found[0].remedy,
            "places": [_place(finding) for finding in found[:_LISTED]],
            "more": f"{len(found) - _LISTED:,}" if len(found) > _LISTED else "",
        }
        for rule, found in order
    ]


def _times(found: Sequence[Finding], *, num_shards: int) -> str:
    times = "once" if len(found) == 1 else f"{len(found):,} times"
    return f"{times} in {len({finding.shard for finding in found}):,} of {counted(num_shards, 'shard', spec=',')}"


def _place(finding: Finding) -> str:
    where = _shown(finding.shard)
    where += "" if finding.member is None else f" '{printable(finding.member)}'"
    where += "" if finding.offset is None else f" at byte {finding.offset}"
    origin = "" if finding.origin is None else f"; packed from '{printable(finding.origin)}'"
    return f"{where}: {printable(mask_urls(finding.message))}{origin}"


def _charts(whole: ShardSummary, classes: Sequence[str]) -> list[dict[str, object]]:
    charts = []
    if whole.labels:
        charts += _class_charts(whole.labels, classes)
    if whole.widths is not None and whole.heights is not None:
        remark = f"{whole.widths.smallest:,} to {whole.widths.largest:,} wide (mean {whole.widths.mean:,.0f}), "
        remark += f"{whole.heights.smallest:,} to {whole.heights.largest:,} high (mean {whole.heights.mean:,.0f})"
        rows = [(f"{first:,} to {2 * first:,}", count) for first, count in whole.pixel_bins.items()]
        charts.append(_chart("Pixels a picture", rows, remark=remark))
    if whole.picture_bytes is not None:
        extent = whole.picture_bytes
        remark = f"{extent.smallest:,} to {extent.largest:,} (mean {extent.mean:,.0f})"
        rows = [
            (f"{first:,} to {2 * first:,}" if first else "empty", count) for first, count in whole.byte_bins.items()
        ]
        charts.append(_chart("Bytes a picture", rows, remark=remark))
    charts += [
        _chart(title, [(printable(name), count) for name, count in counts.items()])
        for title, counts in (("Formats", whole.formats), ("Colour modes", whole.modes), ("Members", whole.extensions))
        if counts
    ]
    return charts


def _class_charts(labels: Mapping[int, int], classes: Sequence[str]) -> list[dict[str, object]]:
    absent = sum(number not in labels for number in range(len(classes)))
    remark = f"{len(labels):,} different" + (f", {absent:,} of the manifest's without a sample" if absent else "")
    if len(labels) <= _EACH_CLASS:
        numbers = sorted({*labels, *(range(len(classes)) if len(classes) <= _EACH_CLASS else ())})
        rows = [(caption(number, classes), labels.get(number, 0)) for number in numbers]
        return [_chart("Samples a class", rows, remark=remark)]
    first, last = min(labels), max(labels)
    step = -(-(last - first + 1) // _EACH_CLASS)
    bins: Counter[int] = Counter()
    for label, count in labels.items():
        bins[first + (label - first) // step * step] += count
    ranges = [(f"{low}..{min(low + step - 1, last)}", count) for low, count in sorted(bins.items())]
    ranked = sorted(labels.items(), key=lambda item: (-item[1], item[0]))
    return [
        _chart("Samples by range of classes", ranges, remark=remark),
        _chart("The fullest classes", [(caption(label, classes), count) for label, count in ranked[:_ENDS]]),
        _chart(
            "The emptiest classes", [(caption(label, classes), count) for label, count in ranked[: -_ENDS - 1 : -1]]
        ),
    ]


def _chart(title: str, rows: Sequence[tuple[str, int]], *, remark: str = "") -> dict[str, object]:
    most = max((count for _, count in rows), default=0) or 1
    bars = [(name, f"{count:,}", f"{100 * count / most:.2f}") for name, count in rows]
    return {"title": title, "remark": remark, "rows": bars}


def _tile(tile: Tile, classes: Sequence[str]) -> dict[str, str]:
    return {
        "shard": _shown(tile.shard),
        "key": printable(tile.key),
        "caption": caption(tile.label, classes),
        "reason": printable(tile.reason),
        "image": "" if tile.picture is None else _data_uri(tile.picture),
    }


def _data_uri(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def _shard(report: ShardReport) -> dict[str, str]:
    summary = report.summary
    counts = Counter(finding.severity for finding in report.findings)
    unreadable = [finding.message for finding in report.findings if finding.rule == _UNREADABLE]
    return {
        "name": _shown(summary.shard),
        "unreadable": printable(mask_urls(unreadable[0])) if unreadable else "",
        "samples": f"{summary.samples:,}",
        "whole": f"{summary.whole:,}",
        "num_bytes": "?" if summary.num_bytes is None else f"{summary.num_bytes:,}",
        "classes": f"{len(summary.labels):,}",
        "pictures": ", ".join(f"{name} {count:,}" for name, count in summary.formats.items()) or "none",
        "severity": next((severity for severity in _SEVERITIES if counts[severity]), ""),
        "found": ", ".join(f"{counts[s]} {s}{'s' * (counts[s] > 1)}" for s in _SEVERITIES if counts[s]) or "nothing",
    }


def _shown(location: str) -> str:
    return printable(mask_url(location))
