"""What a rule is, the registry of all rules, and the check of one shard against them."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from shardkit.check.scan import FirstFew, ShardScan
from shardkit.errors import UnknownRuleError
from shardkit.tar.walk import Member

__all__ = [
    "RULES",
    "Check",
    "Finding",
    "Hit",
    "Rule",
    "Severity",
    "check_scan",
    "declare",
    "find_rule",
    "finding",
    "more_of",
    "rule",
]

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong or worth knowing.

    ``member`` is a file name or key, ``offset`` its byte in the shard. ``origin``: the file that its sample was packed
    from, where the shard's index says it.
    """

    rule: str
    severity: Severity
    shard: str
    message: str
    remedy: str
    member: str | None = None
    offset: int | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule saw: the message, and where."""

    message: str
    member: str | None = None
    offset: int | None = None


Check = Callable[[ShardScan], Iterator[Hit]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule: what is wrong, what it would have done to a training run, how it comes about, what to do, and the check.

    ``check`` is None where one shard's facts cannot break the rule: others report it then.
    """

    id: str
    severity: Severity
    title: str
    effect: str
    remedy: str
    explanation: str
    check: Check | None = None


RULES: dict[str, Rule] = {}


def check_scan(scan: ShardScan) -> list[Finding]:
    """Apply every rule to one shard and return all findings, by rule id and then by place."""
    return [
        finding(known.id, scan.shard, hit.message, hit.member, hit.offset)
        for known, check in _checks()
        for hit in check(scan)
    ]


@functools.cache
def _checks() -> tuple[tuple[Rule, Check], ...]:
    """Return the rules that one shard can break, by id, with their checks; all are registered by then."""
    return tuple((known, known.check) for _, known in sorted(RULES.items()) if known.check is not None)


def find_rule(rule_id: str) -> Rule:
    """Return the rule of this id, in any case. Raises: UnknownRuleError: there is none."""
    if (known := RULES.get(rule_id.strip().upper())) is not None:
        return known
    raise UnknownRuleError(f"{rule_id}: no such rule. {_nearest(rule_id, sorted(RULES))}")


def finding(  # noqa: PLR0917  # in the order in which it reads
    rule_id: str, shard: str, message: str, member: str | None = None, offset: int | None = None
) -> Finding:
    """Return a finding of a known rule."""
    known = RULES[rule_id]
    return Finding(known.id, known.severity, shard, message, known.remedy, member, offset)


def rule(rule_id: str, severity: Severity, *, effect: str, remedy: str, explanation: str) -> Callable[[Check], Check]:
    """Register the decorated check as a rule; the first line of its docstring is the title.

    Args: effect: what it would have done to a training run. explanation: how it comes about and how it is told.
    """

    def register(check: Check) -> Check:
        title = (check.__doc__ or "").partition("\n")[0]
        declare(rule_id, severity, title=title, effect=effect, remedy=remedy, explanation=explanation, check=check)
        return check

    return register


def declare(
    rule_id: str,
    severity: Severity,
    *,
    title: str,
    effect: str,
    remedy: str,
    explanation: str,
    check: Check | None = None,
) -> None:
    """Register a rule from its parts; without a check, others than the check of one shard report it."""
    RULES[rule_id] = Rule(
        id=rule_id, severity=severity, title=title, effect=effect, remedy=remedy, explanation=explanation, check=check
    )


def more_of(members: FirstFew[Member]) -> Iterator[Hit]:
    """Say how many members were seen beyond those that were kept."""
    if members.num_seen > len(members):
        yield Hit(f"{members.num_seen - len(members)} more, not listed", None, members[-1].header_offset)


def _nearest(rule_id: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(rule_id.strip().upper(), known, n=1, cutoff=0.0)
    return f"The nearest is {near[0]}; `wds validate --explain all` lists them" if near else ""
