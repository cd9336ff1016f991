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
from urllib.parse import urlsplit

from shardkit.errors import PatternError, printable
from shardkit.index.shard_index import INDEX_SUFFIX
from shardkit.locations import is_command, is_url, local_path, mask_url, scheme_of
from shardkit.manifest import MANIFEST_SUFFIX, read_manifest

__all__ = ["expand_braces", "expand_patterns"]

_SHARD_SUFFIXES = (".tar", ".tar.gz", ".tgz")
# What is written beside shards, and holds no samples. A manifest names shards, so is another matter.
_BESIDE_SUFFIXES = (INDEX_SUFFIX, ".plan.json", ".skipped.json", ".wids.json", ".idx", "/sizes.json")
_QUARANTINE = "quarantine"
# So many folders are named in a message.
_NAMED = 3
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
    caller that must not repeat one refuses it. But what a shell makes of ``shards/*`` holds the manifest too: beside
    all the shards that it lists it adds none.
    Raises: PatternError: a pattern that is malformed or matches nothing.
    """
    expanded = [(pattern, list(_expand(pattern, from_list=False))) for pattern in patterns]
    if len(expanded) > 1:
        named = {os.path.normpath(s) for p, found in expanded if not p.endswith(MANIFEST_SUFFIX) for s in found}
        expanded = [
            (pattern, found)
            for pattern, found in expanded
            if not pattern.endswith(MANIFEST_SUFFIX) or not named.issuperset(map(os.path.normpath, found))
        ]
    shards = [shard for _, found in expanded for shard in found]
    if not shards:
        beside = next((pattern for pattern in patterns if _lies_beside(pattern)), None)
        what = "no shard pattern given" if beside is None else f"{mask_url(beside)}: no shard: it lies beside shards"
        raise PatternError(f"{what}. Name the shards, like 'train-{{000000..000003}}.tar'")
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


def _lies_beside(location: str) -> bool:
    path = location.partition("?")[0] if is_url(location) else location
    return f"/{path}".endswith(_BESIDE_SUFFIXES)


def _located(location: str) -> Iterator[str]:
    if _lies_beside(location):
        # What a shell makes of `shards/train*` holds the indexes too; a glob of ours passes over them.
        return
    if is_url(location):
        location = _checked(location)
    if is_url(location):
        if "*" in location.partition("?")[0]:
            over = scheme_of(location)
            reason = f"shards cannot be listed over {over}; use braces like {{000000..000003}}"
            raise PatternError(f"{mask_url(location)}: {reason}")
        yield location
    elif os.path.isdir(location):
        yield from _shards_of_folder(location)
    elif location.startswith("~/") and not os.path.exists("~"):
        raise PatternError(f"{location}: '~' is no folder here. Write the path in full, or leave the '~' to the shell")
    elif os.path.exists(location) or not any(sign in location for sign in "*?["):
        yield from _listed(location) if location.endswith(MANIFEST_SUFFIX) else [location]
    else:
        yield from _matches(location)


def _checked(url: str) -> str:
    """Return the URL, or the path that a ``file://`` URL names. Raises: PatternError: it only looks like one."""
    try:
        urlsplit(url)
        return local_path(url) or url
    except ValueError as error:
        raise PatternError(f"{mask_url(url)}: no URL ({error}). Brackets belong around an IPv6 address") from error
    except OSError as error:
        remedy = "Three slashes make one that begins at the root; or write it without file://"
        raise PatternError(f"{error}. {remedy}") from error


def _matches(pattern: str) -> Iterator[str]:
    """Return the shards that a glob matches: the files, or where there are none, those of the folders."""
    found = sorted(match for match in glob.glob(pattern) if not _lies_beside(match))
    files = [match for match in found if not os.path.isdir(match)]
    if pattern.endswith(MANIFEST_SUFFIX):
        shards = [shard for manifest in files for shard in _listed(manifest)]
    elif files:
        # train-* is meant to name shards, not what lies beside them.
        shards = [match for match in files if not match.endswith(MANIFEST_SUFFIX)]
    else:
        shards = [shard for folder in found if os.path.basename(folder) != _QUARANTINE for shard in _shards_in(folder)]
    if not shards:
        what = "no file matches, and no folder with shards" if found else "no file matches"
        raise PatternError(f"{pattern}: {what}. Check the path")
    yield from shards


def _listed(manifest: str) -> list[str]:
    """Return the shards that a manifest lists, in its order."""
    try:
        return [os.path.join(os.path.dirname(manifest), shard.name) for shard in read_manifest(Path(manifest)).shards]
    except OSError as error:
        raise PatternError(f"{manifest}: the manifest cannot be read: {error.strerror}") from error


def _shards_in(folder: str) -> list[str]:
    entries = sorted(os.listdir(folder))
    return [os.path.join(folder, e) for e in entries if e.endswith(_SHARD_SUFFIXES) and not e.startswith(".")]


def _shards_of_folder(folder: str) -> list[str]:
    if shards := _shards_in(folder):
        return shards
    entries = [entry for entry in os.scandir(folder) if entry.is_dir() and entry.name != _QUARANTINE]
    below = [entry.path for entry in entries if os.access(entry.path, os.R_OK | os.X_OK)]
    having = [path for path in sorted(below) if _shards_in(path)]
    advice = f". Name one of its folders that has some: {', '.join(having[:_NAMED])}" if having else ""
    raise PatternError(f"{folder}: no shards (*.tar) in this folder{advice}")


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
