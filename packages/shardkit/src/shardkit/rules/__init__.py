"""The rules that shards are checked against: one small function each, with an id, a severity and a remedy.

A rule looks at the facts of one shard (``scan``) and yields what it found; it reads nothing and prints nothing. Ids are
never reused.
"""

from __future__ import annotations

from shardkit.rules import keys, labels, pictures, records, sets, structure
from shardkit.rules.rule import RULES, Finding, Rule, Severity, check_scan, find_rule, finding

__all__ = ["RULES", "Finding", "Rule", "Severity", "check_scan", "find_rule", "finding"]

# Imported for the rules they register.
_FAMILIES = (structure, keys, labels, pictures, records, sets)
