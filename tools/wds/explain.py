"""Print what the rules mean: ``wds validate --explain``."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import TYPE_CHECKING

from wds.console import print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardkit import Rule

__all__ = ["explain"]

_WIDTH = 100
_LABEL = "  {:11} "


def explain(asked: str, *, as_json: bool) -> None:
    """Print the rules of these ids, separated by commas, or a table of ``all``.

    Raises: UnknownRuleError: there is none of an id; the nearest is named.
    """
    from shardkit import RULES, find_rule

    listed = asked.strip().lower() == "all"
    rules = [RULES[known] for known in sorted(RULES)] if listed else [find_rule(one) for one in asked.split(",")]
    if as_json:
        print_json({"rules": [_document(rule) for rule in rules]})
    elif listed:
        for rule in rules:
            print_line(f"{rule.id}  {rule.severity:7}  {rule.title}")
    else:
        _print_whole(rules)


def _document(rule: Rule) -> dict[str, str]:
    return {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule) if field.name != "check"}


def _print_whole(rules: Sequence[Rule]) -> None:
    for number, rule in enumerate(rules):
        if number:
            print_line()
        print_line(f"{rule.id}  {rule.severity}  {rule.title}")
        for label, text in (("effect", rule.effect), ("how", rule.explanation), ("what to do", f"{rule.remedy}.")):
            head = _LABEL.format(label)
            for line in textwrap.wrap(
                text, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
            ):
                print_line(line)
