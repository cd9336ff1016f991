"""What a rule is, the registry of all rules, and the check of one shard against them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from shardkit.scan import ShardScan

__all__ = ["RULES", "Check", "Finding", "Hit", "Rule", "Severity", "check_scan", "finding", "no_check", "rule"]

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong or worth knowing. ``member`` is a file name or key, ``offset`` its byte in the shard."""

    rule: str
    severity: Severity
    shard: str
    message: str
    remedy: str
    member: str | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule saw: the message, and where."""

    message: str
    member: str | None = None
    offset: int | None = None


Check = Callable[[ShardScan], Iterator[Hit]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: what it would have done to a training run, what to do, and the check itself."""

    id: str
    severity: Severity
    effect: str
    remedy: str
    check: Check


RULES: dict[str, Rule] = {}


def check_scan(scan: ShardScan) -> list[Finding]:
    """Apply every rule to one shard and return all findings, by rule id and then by place."""
    return [
        finding(known.id, scan.shard, hit.message, hit.member, hit.offset)
        for _, known in sorted(RULES.items())
        for hit in known.check(scan)
    ]


def finding(  # noqa: PLR0917  # in the order in which it reads
    rule_id: str, shard: str, message: str, member: str | None = None, offset: int | None = None
) -> Finding:
    """Return a finding of a known rule."""
    known = RULES[rule_id]
    return Finding(known.id, known.severity, shard, message, known.remedy, member, offset)


def rule(rule_id: str, severity: Severity, *, effect: str, remedy: str) -> Callable[[Check], Check]:
    """Register the decorated check as a rule. ``effect``: what it would have done to a training run."""

    def register(check: Check) -> Check:
        RULES[rule_id] = Rule(rule_id, severity, effect, remedy, check)
        return check

    return register


def no_check(_: ShardScan) -> Iterator[Hit]:
    """Find nothing: for a rule that one shard's facts cannot break, and that others report."""
    return iter(())
