"""The command that checks shards against all rules: ``wds validate``."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from wds.checks import (
    DEFAULT_MAX_PIXELS,
    AllowCommands,
    Classes,
    MaxPixels,
    NoDecode,
    Patterns,
    Strict,
    as_document,
    exit_on_counts,
    finding_document,
    print_findings,
    reports_of,
)
from wds.console import JOBS, SCHEMA_VERSION, AsJson, Jobs, human_bytes, print_json, print_line
from wds.explain import explain
from wds.patterns import NamedShards, shards_to_read
from wds.text import counted, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardkit import CheckOptions, Finding, SetOptions, Severity, ShardReport

__all__ = ["validate"]

# As shardkit.MAX_UNPACK_RATIO, which is not imported just to show the help.
_DEFAULT_RATIO = 100
_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

Against = Annotated[
    list[str] | None,
    typer.Option("--against", metavar="PATTERN...", help="Other shards, whose pictures these must not hold."),
]
Structure = Annotated[
    bool, typer.Option("--structure", help="Check headers, names, order and labels only; open no picture.")
]
Readers = Annotated[
    int | None, typer.Option("--readers", min=1, help="Ranks times workers that will read: warn of too few shards.")
]
NoMarkerNeeded = Annotated[
    bool, typer.Option("--no-marker-needed", help="Accept shards that lack the end-of-archive marker.")
]
Ratio = Annotated[
    int,
    typer.Option("--max-unpack-ratio", min=1, help="Give up gzip beyond so many times its size, and 256 MiB."),
]
Ignore = Annotated[
    list[str] | None, typer.Option("--ignore", metavar="RULE,...", help="Count what these rules find, and no more.")
]
Explain = Annotated[
    str | None, typer.Option("--explain", metavar="RULE", help="Say what a rule means, or list them: --explain all.")
]
AsJsonl = Annotated[
    bool, typer.Option("--jsonl", help="Print one JSON object a finding as it comes, and one of all at the end.")
]


def validate(
    patterns: Patterns = [],  # noqa: B006  # Typer copies it
    against: Against = None,
    classes: Classes = None,
    no_decode: NoDecode = False,
    structure: Structure = False,
    max_pixels: MaxPixels = DEFAULT_MAX_PIXELS,
    max_unpack_ratio: Ratio = _DEFAULT_RATIO,
    no_marker_needed: NoMarkerNeeded = False,
    readers: Readers = None,
    ignore: Ignore = None,
    explain_rule: Explain = None,
    strict: Strict = False,
    allow_commands: AllowCommands = False,
    jobs: Jobs = JOBS,
    as_json: AsJson = False,
    as_jsonl: AsJsonl = False,
) -> None:
    """Check shards against all rules and the manifest beside them. `-` reads one shard from standard input."""
    from shardkit import CheckOptions, SetOptions, UnknownRuleError

    try:
        if explain_rule is not None:
            explain(explain_rule, as_json=as_json)
            return
        options = CheckOptions(
            num_classes=classes, pictures=not structure, decode=not no_decode, max_pixels=max_pixels, jobs=jobs,
            complete=True, max_unpack_ratio=max_unpack_ratio, end_marker=not no_marker_needed,
            allow_commands=allow_commands,
            ignore=frozenset(rule for rules in ignore or () for rule in rules.split(",")),
        )  # fmt: skip
    except UnknownRuleError as error:
        raise typer.BadParameter(str(error)) from None
    if not patterns:
        raise typer.BadParameter("Missing argument 'PATTERN...'")
    if list(patterns) == ["-"] == against:
        raise typer.BadParameter(
            "standard input is one shard; it cannot be held against itself", param_hint="--against"
        )
    view: _View = _JsonView() if as_json else _JsonlView() if as_jsonl else _TextView()
    run = _Run(options, SetOptions(num_classes=classes, readers=readers), view)
    run.check(patterns, against or [])
    exit_on_counts(view.severities, strict=strict)


class _Run:
    """The run over the shards, and over those they are held against."""

    def __init__(self, options: CheckOptions, together: SetOptions, view: _View) -> None:
        self._options = options
        self._together = together
        self._view = view

    def check(self, patterns: Sequence[str], against: Sequence[str]) -> None:
        """Check both sets, compare them, and show all of it."""
        from shardkit import check_together

        allowed = self._options.allow_commands
        # Both before hours are spent on the first.
        first = shards_to_read(patterns, allow_commands=allowed)
        second = shards_to_read(against, allow_commands=allowed) if against else None
        own = self._check_each(first)
        others = [] if second is None else self._check_each(second)
        across = check_together(own, self._together, against=others)
        if others:
            across += check_together(others, self._together)
        self._view.end([finding for finding in across if finding.rule not in self._options.ignore])
        self._view.ignored.update(finding.rule for finding in across if finding.rule in self._options.ignore)
        self._view.close()

    def _check_each(self, named: NamedShards) -> list[ShardReport]:
        kept = []
        for report in reports_of(named, self._options, quiet=self._view.is_quiet):
            self._view.add(report)
            # Of thousands of shards, what was shown is not kept.
            kept.append(report.for_comparison())
        return kept


class _View(ABC):
    """Counts what is found; what is shown of it is up to the kind of view."""

    is_quiet = True

    def __init__(self) -> None:
        self.severities: Counter[Severity] = Counter()
        self.ignored: Counter[str] = Counter()
        self.totals = {"shards": 0, "samples": 0, "whole": 0, "bytes": 0}
        # A stream whose end was not met, or a shard that could not be opened.
        self.num_unmeasured = 0

    def add(self, report: ShardReport) -> None:
        """Count and show the report of one shard."""
        summary = report.summary
        counts = {"shards": 1, "samples": summary.samples, "whole": summary.whole, "bytes": summary.num_bytes or 0}
        self.totals = {name: total + counts[name] for name, total in self.totals.items()}
        self.num_unmeasured += summary.num_bytes is None
        self.ignored.update(report.ignored)
        self._count(report.findings)
        self._show(report)

    def end(self, across: Sequence[Finding]) -> None:
        """Count and show what is wrong with the shards together."""
        self._count(across)
        self._show_across(across)

    @abstractmethod
    def close(self) -> None:
        """Show the totals."""

    def _count(self, findings: Sequence[Finding]) -> None:
        self.severities.update(finding.severity for finding in findings)

    @abstractmethod
    def _show(self, report: ShardReport) -> None:
        """Show the findings of one shard, or keep them."""

    @abstractmethod
    def _show_across(self, across: Sequence[Finding]) -> None:
        """Show what is wrong with the shards together, or keep it."""


class _TextView(_View):
    """Findings shard by shard as they come, each rule's effect once, and a line of totals."""

    is_quiet = False

    def __init__(self) -> None:
        super().__init__()
        self._explained: set[str] = set()

    def _show(self, report: ShardReport) -> None:
        if report.findings:
            print_line(report.summary.shard)
            print_findings(report.findings, explained=self._explained)

    def _show_across(self, across: Sequence[Finding]) -> None:
        shards = list(dict.fromkeys(finding.shard for finding in across))
        for shard in shards:
            print_line(f"{shard}, held against others")
            print_findings([finding for finding in across if finding.shard == shard], explained=self._explained)

    def close(self) -> None:
        """Show the totals."""
        totals = self.totals
        found = ", ".join(counted(self.severities[s], s) for s in _SEVERITIES)
        ignored = f"; {self.ignored.total()} ignored ({', '.join(sorted(self.ignored))})" if self.ignored else ""
        size = human_bytes(totals["bytes"])
        if self.num_unmeasured:
            size = "of unknown size" if self.num_unmeasured == totals["shards"] else f"{size} and more"
        held = f"{counted(totals['shards'], 'shard')}, {counted(totals['samples'], 'sample')}, {totals['whole']} whole"
        print_line(f"{held}, {size}: {found}{ignored}")


class _JsonView(_View):
    """One object of all reports at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._reports: list[ShardReport] = []
        self._across: Sequence[Finding] = ()

    def _show(self, report: ShardReport) -> None:
        self._reports.append(dataclasses.replace(report, marks=report.marks.none()))

    def _show_across(self, across: Sequence[Finding]) -> None:
        self._across = across

    def close(self) -> None:
        """Print the object."""
        print_json(as_document(self._reports, self._across, ignored=self.ignored))


class _JsonlView(_View):
    """One object a finding, and one of the totals."""

    def _show(self, report: ShardReport) -> None:
        self._show_across(report.findings)

    def _show_across(self, across: Sequence[Finding]) -> None:
        for finding in across:
            _print_record({"record": "finding", **finding_document(finding), "shard": visible(finding.shard)})

    def close(self) -> None:
        """Print the totals."""
        counts = {f"{severity}s": self.severities[severity] for severity in _SEVERITIES}
        _print_record({"record": "summary", **self.totals, **counts, "ignored": dict(self.ignored)})


def _print_record(record: dict[str, object]) -> None:
    print_line(json.dumps({"schema_version": SCHEMA_VERSION, **record}))
