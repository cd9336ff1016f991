"""What the commands that check shards share: their options, the run over the shards, the findings, the exit code."""

from __future__ import annotations

import dataclasses
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from wds.console import Progress, print_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shardkit import CheckOptions, Finding, Severity, ShardReport
    from wds.patterns import NamedShards

__all__ = [
    "DEFAULT_MAX_PIXELS",
    "AllowCommands",
    "Classes",
    "LocalPatterns",
    "MaxPixels",
    "NoDecode",
    "Patterns",
    "Strict",
    "as_document",
    "check",
    "exit_on",
    "exit_on_counts",
    "finding_document",
    "origin_words",
    "print_findings",
    "reports_of",
    "visible_name",
]

Patterns = Annotated[
    list[str],
    typer.Argument(
        metavar="PATTERN", help="Names, {000000..000003}, <000000..000003>, globs, @list, folders, manifests, URLs."
    ),
]
LocalPatterns = Annotated[
    list[str],
    typer.Argument(
        metavar="PATTERN", help="Names, {000000..000003}, <000000..000003>, globs, @list, folders, manifests."
    ),
]
Classes = Annotated[
    int | None, typer.Option("--classes", min=1, show_default="as the manifest says", help="Labels must lie in 0..N-1.")
]
NoDecode = Annotated[bool, typer.Option("--no-decode", help="Read the header of each picture only, not its pixels.")]
MaxPixels = Annotated[int, typer.Option(min=1, help="Larger pictures are refused before they are unpacked.")]
AllowCommands = Annotated[
    bool, typer.Option("--allow-commands", help="Run what `pipe:COMMAND` names, and read the shard it writes.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 on warnings and notes too.")]

# As shardkit.MAX_PIXELS, which is not imported just to show the help.
DEFAULT_MAX_PIXELS = 89_478_485
# So many findings of one rule are listed for a shard; --json has all.
_LISTED = 5


def check(named: NamedShards, options: CheckOptions, *, quiet: bool) -> tuple[list[ShardReport], tuple[Finding, ...]]:
    """Check shards; return the report of each, and what is wrong with them together."""
    from shardkit import SetOptions, check_together

    reports = list(reports_of(named, options, quiet=quiet))
    return reports, tuple(check_together(reports, SetOptions(num_classes=options.num_classes)))


def reports_of(named: NamedShards, options: CheckOptions, *, quiet: bool) -> Iterator[ShardReport]:
    """Check shards and yield the report of each as it comes, with progress on stderr."""
    from shardkit import check_shards

    progress = Progress("shards", total=len(named.shards), quiet=quiet)
    try:
        for report in check_shards(named.shards, options, manifests=named.manifests):
            progress.close()
            yield report
            progress.advance()
    finally:
        progress.close()


def exit_on(reports: Sequence[ShardReport], across: Sequence[Finding], *, strict: bool) -> None:
    """End with 1 if something is wrong."""
    findings = [*across, *(finding for report in reports for finding in report.findings)]
    exit_on_counts(Counter(finding.severity for finding in findings), strict=strict)


def exit_on_counts(severities: Mapping[Severity, int], *, strict: bool) -> None:
    """End with 1 if there is a finding of severity error; with ``strict``, any."""
    if severities.get("error") or (strict and any(severities.values())):
        raise typer.Exit(1)


def print_findings(findings: Sequence[Finding], *, explained: set[str]) -> None:
    """Print findings, the first few of each rule, with its effect and its remedy.

    Args: explained: rules whose effect was told before, which is not told again; those told here are added.
    """
    from shardkit import RULES

    counted: Counter[str] = Counter()
    totals = Counter(finding.rule for finding in findings)
    for finding in findings:
        counted[finding.rule] += 1
        if counted[finding.rule] <= _LISTED:
            where = "" if finding.member is None else f"'{visible_name(finding.member)}' "
            where += "" if finding.offset is None else f"at byte {finding.offset} "
            colon = ": " if where else ""
            line = f"  {finding.severity:7} {finding.rule}  {where.strip()}{colon}{finding.message}"
            print_line(line + origin_words(finding))
        if counted[finding.rule] == min(totals[finding.rule], _LISTED):
            more = f"and {totals[finding.rule] - _LISTED} more. " if totals[finding.rule] > _LISTED else ""
            effect = "" if finding.rule in explained else f"{RULES[finding.rule].effect} "
            explained.add(finding.rule)
            print_line(f"          {more}{effect}{finding.remedy}.")


def as_document(
    reports: Sequence[ShardReport], across: Sequence[Finding], *, ignored: Mapping[str, int] = MappingProxyType({})
) -> dict[str, object]:
    """Return the reports as JSON values; names that are not UTF-8 are escaped.

    Args: ignored: number of findings by rule that were not wanted, in all.
    """
    shards = []
    for report in reports:
        summary = dataclasses.asdict(report.summary)
        summary["first_keys"] = [visible_name(key) for key in report.summary.first_keys]
        findings = [finding_document(finding) for finding in report.findings]
        shards.append({**summary, "findings": findings, "ignored": dict(report.ignored)})
    findings = [finding_document(finding) for finding in across]
    return {"shards": shards, "findings": findings, "ignored": dict(ignored)}


def finding_document(finding: Finding) -> dict[str, object]:
    """Return a finding as JSON values; names that are not UTF-8 are escaped."""
    document = dataclasses.asdict(finding)
    for name in ("member", "origin"):
        document[name] = None if document[name] is None else visible_name(document[name])
    return document


def origin_words(finding: Finding) -> str:
    """Return which file the sample of a finding was packed from, as the end of its line; empty where nobody knows."""
    return "" if finding.origin is None else f"; packed from '{visible_name(finding.origin)}'"


def visible_name(name: str) -> str:
    """Return a member's name or key as valid, visible text."""
    from shardkit import printable

    return printable(name)
