"""Shard patterns -> the ordered list of shards they name.

Owns braces ``{000000..001281}`` and ``{a,b}``, angle brackets ``<a..b>`` (the same as braces), globs, ``@list`` files,
``-`` (a list on standard input), manifests, folders and ``::`` between patterns. Opens no shard and runs no command: a
command (``pipe:..``) is handed on from an argument, never from a list, and no file's name is taken for one.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from shardkit.errors import PatternError, printable
from shardkit.index import INDEX_SUFFIX
from shardkit.locations import is_command, is_url, mask_url, scheme_of
from shardkit.manifest import MANIFEST_SUFFIX, read_manifest

__all__ = ["SHARD_SUFFIXES", "expand_braces", "expand_patterns"]

SHARD_SUFFIXES = (".tar", ".tar.gz", ".tgz")
# 18 digits fit into 64 bits, and int() refuses thousands.
_RANGE = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})(?:\.\.([0-9]{1,18}))?")
_RANGE_IN_BRACES = re.compile(rf"\{{({_RANGE.pattern})\}}")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])")
# Not within [..]: there it is part of a host's IPv6 address.
_BETWEEN_PATTERNS = re.compile(r"::(?![0-9A-Fa-f:.]*\])")
# ImageNet at one picture a shard; more is a slip of the keyboard.
_MAX_SHARDS = 2_000_000


def expand_patterns(patterns: Sequence[str]) -> list[str]:
    """Return the shards that the patterns name, in the order given; globs and folders sorted by name.

    Relative paths, those of a list's lines too, start at the working folder. A shard named twice is there twice: a
    caller that must not repeat one refuses it.
    Raises: PatternError: a pattern that is malformed or matches nothing.
    """
    shards = [shard for pattern in patterns for shard in _expand(pattern, from_list=False)]
    if not shards:
        raise PatternError("no shard pattern given. Name shards like 'train-{000000..000003}.tar'")
    return shards


def expand_braces(pattern: str) -> list[str]:
    """Expand braces and ``<a..b>`` alone, looking at no file; ``{3..0}`` counts down, ``{08..11}`` keeps the width.

    Raises: PatternError: a bracket without its partner, or a range that is none.
    """
    names = list(islice(_braces(_angle_to_brace(pattern), pattern), _MAX_SHARDS + 1))
    if len(names) > _MAX_SHARDS:
        raise PatternError(f"{pattern}: stands for more than {_MAX_SHARDS} shards")
    return names


def _expand(pattern: str, *, from_list: bool) -> Iterator[str]:
    """Expand one argument or one line of a list; a list may not name another list."""
    if not pattern.strip():
        raise PatternError("an empty shard pattern. Name shards like 'train-{000000..000003}.tar'")
    if "\0" in pattern:
        raise PatternError(f"{printable(pattern[:80])}: no path holds a NUL. Is this a list of shards?")
    if pattern == "-" and not from_list:
        yield from _expand_list(sys.stdin, name="standard input")
    elif pattern.startswith("@") and not from_list:
        try:
            # As Python has file names: bytes that are not UTF-8 survive. A byte order mark is no part of the first.
            with open(pattern[1:], encoding="utf-8-sig", errors="surrogateescape") as lines:
                yield from _expand_list(lines, name=pattern[1:])
        except OSError as error:
            raise PatternError(f"{pattern}: the list cannot be read: {error.strerror}") from error
    elif os.path.exists(pattern):
        # A file may have any of our signs in its name.
        yield from _locate(pattern)
    elif is_command(pattern) and not from_list:
        yield from islice(_commands(pattern), _MAX_SHARDS)
    else:
        for part in _BETWEEN_PATTERNS.split(pattern):
            for location in [part] if is_command(part) else expand_braces(part):
                _refuse_command(location)
                yield from _locate(location)


def _refuse_command(location: str) -> None:
    if is_command(location):
        reason = "only a whole argument can be a command, no line of a list and no part of a pattern"
        raise PatternError(f"{printable(mask_url(location))[:80]}: {reason}")


def _expand_list(lines: Iterable[str], *, name: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            try:
                yield from _expand(text, from_list=True)
            except PatternError as error:
                raise PatternError(f"{name}, line {number}: {error}") from error


def _commands(command: str) -> Iterator[str]:
    """Expand numbered braces (``{000000..000003}``) and nothing else: the other signs belong to the shell."""
    found = _RANGE_IN_BRACES.search(command)
    if found is None:
        yield command
        return
    tails = list(islice(_commands(command[found.end() :]), _MAX_SHARDS + 1))
    for choice in _choices(found[1], command):
        yield from (command[: found.start()] + choice + tail for tail in tails)


def _locate(location: str) -> Iterator[str]:
    """Turn a location without braces into shards: itself, the matches of a glob, a folder's or a manifest's shards."""
    for found in _located(location):
        # The name of a file must not turn into a command, nor into standard input.
        yield os.path.join(os.curdir, found) if found == "-" or is_command(found) else found


def _located(location: str) -> Iterator[str]:
    if location.endswith(INDEX_SUFFIX):
        # What a shell makes of `shards/train*` holds the indexes too; a glob of ours passes over them.
        return
    if is_url(location):
        if "*" in location.partition("?")[0]:
            over = scheme_of(location)
            reason = f"shards cannot be listed over {over}; use braces like {{000000..000003}}"
            raise PatternError(f"{mask_url(location)}: {reason}")
        yield location
    elif os.path.isdir(location):
        entries = sorted(os.listdir(location))
        matches = [entry for entry in entries if entry.endswith(SHARD_SUFFIXES) and not entry.startswith(".")]
        if not matches:
            raise PatternError(f"{location}: no shards (*.tar) in this folder")
        yield from (os.path.join(location, entry) for entry in matches)
    elif location.endswith(MANIFEST_SUFFIX):
        try:
            yield from (str(Path(location).parent / shard.name) for shard in read_manifest(Path(location)).shards)
        except OSError as error:
            raise PatternError(f"{location}: the manifest cannot be read: {error.strerror}") from error
    elif os.path.exists(location) or not any(sign in location for sign in "*?["):
        yield location
    else:
        # train-* is meant to name shards, not what lies beside them.
        matches = sorted(match for match in glob.glob(location) if not match.endswith((INDEX_SUFFIX, MANIFEST_SUFFIX)))
        if not matches:
            raise PatternError(f"{location}: no file matches")
        yield from matches


def _angle_to_brace(pattern: str) -> str:
    """Write ``<a..b>`` as ``{a..b}``."""
    return re.sub(r"<([^<>{}]*\.\.[^<>{}]*)>", r"{\1}", pattern)


def _braces(pattern: str, whole: str) -> Iterator[str]:
    """Expand what is left of the whole pattern."""
    behind = len(whole) - len(pattern)
    opening = pattern.find("{")
    plain = pattern if opening < 0 else pattern[:opening]
    for position, sign in enumerate(plain):
        if sign in "}<>":
            raise PatternError(f"{whole}: '{sign}' at character {behind + position + 1} has no partner")
    mistyped = re.search(r"[(\[]\d+\.\.\d+[)\]]", plain)
    if mistyped:
        raise PatternError(f"{whole}: '{mistyped[0]}' is no range here; write {{{mistyped[0][1:-1]}}}")
    if opening < 0:
        yield pattern
        return
    closing = pattern.find("}", opening)
    if closing < 0:
        raise PatternError(f"{whole}: the '{{' at character {behind + opening + 1} has no partner")
    inside, rest = pattern[opening + 1 : closing], pattern[closing + 1 :]
    if "{" in inside:
        raise PatternError(f"{whole}: the '{{' at character {behind + opening + 1} has another one before its partner")
    choices = _choices(inside, whole)
    tails = list(islice(_braces(rest, whole), _MAX_SHARDS + 1))
    for choice in choices:
        yield from (plain + choice + tail for tail in tails)


def _choices(inside: str, whole: str) -> list[str]:
    """Return what one pair of braces stands for."""
    if "," in inside:
        return inside.split(",")
    if letters := _LETTERS.fullmatch(inside):
        first, last = ord(letters[1]), ord(letters[2])
        return [chr(code) for code in range(first, last + (1 if last >= first else -1), 1 if last >= first else -1)]
    match = _RANGE.fullmatch(inside)
    if match is None:
        raise PatternError(
            f"{whole}: '{{{inside}}}' is neither a range like {{000000..000003}} nor a list like {{a,b}}"
        )
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if not step or abs(last - first) // step >= _MAX_SHARDS:
        raise PatternError(f"{whole}: '{{{inside}}}' stands for more than {_MAX_SHARDS} shards, or has a step of 0")
    # As braceexpand, so webdataset, and bash have it: a leading zero on either side pads both.
    padded = any(len(text.lstrip("-")) > 1 and text.lstrip("-").startswith("0") for text in (match[1], match[2]))
    width = max(len(match[1]), len(match[2])) if padded else 0
    step = step if last >= first else -step
    return [f"{value:0{width}d}" for value in range(first, last + (1 if step > 0 else -1), step)]
