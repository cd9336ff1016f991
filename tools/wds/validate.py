"""The command that checks shards against all rules: ``wds validate``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from wds.checks import (
    DEFAULT_MAX_PIXELS,
    JOBS,
    Classes,
    Decode,
    MaxPixels,
    Patterns,
    Strict,
    as_document,
    check,
    exit_on,
    print_findings,
)
from wds.console import AsJson, Jobs, human_bytes, print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardkit import Finding, ShardReport

__all__ = ["validate"]


def validate(
    patterns: Patterns,
    classes: Classes = None,
    decode: Decode = True,
    max_pixels: MaxPixels = DEFAULT_MAX_PIXELS,
    strict: Strict = False,
    jobs: Jobs = JOBS,
    as_json: AsJson = False,
) -> None:
    """Check shards against all rules and the manifest beside them. `-` reads one shard from standard input."""
    from shardkit import CheckOptions

    options = CheckOptions(num_classes=classes, decode=decode, max_pixels=max_pixels, jobs=jobs, complete=True)
    reports, across = check(patterns, options, quiet=as_json)
    if as_json:
        print_json(as_document(reports, across))
    else:
        for report in reports:
            if report.findings:
                print_line(report.summary.shard)
                print_findings(report.findings)
        print_findings(across)
        _print_verdict(reports, across)
    exit_on(reports, across, strict=strict)


def _print_verdict(reports: Sequence[ShardReport], across: Sequence[Finding]) -> None:
    severities = Counter(f.severity for f in [*across, *(f for report in reports for f in report.findings)])
    samples = sum(report.summary.samples for report in reports)
    whole = sum(report.summary.whole for report in reports)
    num_bytes = sum(report.summary.num_bytes or 0 for report in reports)
    found = ", ".join(f"{severities[s]} {s}s" for s in ("error", "warning", "note"))
    print_line(f"{len(reports)} shards, {samples} samples, {whole} whole, {human_bytes(num_bytes)}: {found}")
