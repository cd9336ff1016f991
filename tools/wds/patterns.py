"""Shard patterns on the command line: several behind one option, checked before anything slow is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from typer.core import TyperCommand

from wds.console import print_warning
from wds.text import counted

if TYPE_CHECKING:
    from shardkit import Manifest

__all__ = [
    "GreedyCommand",
    "NamedShards",
    "expand_existing",
    "local_shards",
    "refuse_empty",
    "shards_to_read",
    "with_home",
    "without_stdin",
]

_GREEDY = ("--urls", "--val-urls", "--against", "--from-shards")
# Where in a word a path begins whose `~` a shell does not expand: at once in quotes, behind `@`, behind `--out=`.
_HOME = re.compile(r"(@|-[^=]*=)?(~)(?=/|$)")
# So many missing files are named in a message.
_NAMED = 8


class GreedyCommand(TyperCommand):
    """A command whose pattern options take every word up to the next option.

    So that ``--val-urls val-*.tar`` means the same whether the shell expands it or we do; else all but the first of the
    validation shards would be trained on.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its words."""
        return super().parse_args(ctx, list(_repeat_options(args)))


def refuse_empty(words: Sequence[str], *, options: Collection[str]) -> None:
    """Refuse options that are given an empty value: a path of no letters would mean the current folder.

    An empty pattern is left to those who expand patterns.
    Args: options: those that take a value.
    Raises: typer.BadParameter: naming the first such option.
    """
    option = ""
    for word in words:
        if word == "--":
            return
        named = option if word == "" else word[:-1] if word.startswith("--") and word.endswith("=") else ""
        if named in options and named not in _GREEDY:
            raise typer.BadParameter("is empty. Give a value, or leave the option out", param_hint=named)
        option = word


def with_home(words: Sequence[str]) -> list[str]:
    """Return the words with the home folder in place of a `~` that the shell left alone: one in quotes, or behind `=`.

    No one names a folder so; with a shell's own `~` the same words work, and `--out=~/x` would make a folder `~`.
    """
    home = os.path.expanduser("~")
    return [f"{at[1] or ''}{home}{word[at.end() :]}" if (at := _HOME.match(word)) else word for word in words]


def without_stdin(patterns: Sequence[str]) -> list[str]:
    """Return the patterns with ``-`` replaced by the shards listed on standard input, which can be read only once.

    Raises: PatternError: the list is empty or names what is not there.
    """
    if "-" not in patterns:
        return list(patterns)
    from shardkit import expand_patterns

    return [shard for pattern in patterns for shard in (expand_patterns(["-"]) if pattern == "-" else [pattern])]


def expand_existing(patterns: Sequence[str], *, on_error: str = "stop") -> list[str]:
    """Return the shards that the patterns name; with "skip" some local ones may be missing.

    Raises: PatternError: nothing matches. DatasetError: some local shards are missing; all of them are named.
    """
    shards, missing = _expand(patterns)
    if missing and on_error == "stop":
        raise _missing(missing, total=len(shards))
    _warn_of_twins(shards)
    return shards


class NamedShards(NamedTuple):
    """Shards, and the manifests that named some of them by URL."""

    shards: list[str]
    manifests: Mapping[str, Manifest]


def shards_to_read(
    patterns: Sequence[str], *, allow_commands: bool | None = None, all_there: bool = False
) -> NamedShards:
    """Return the shards that the patterns name, local or not, at least one of which may be there.

    ``-`` alone is one shard on standard input. Manifests by URL are fetched.
    Args: allow_commands: None where the command line has no such option.
    Raises: PatternError: nothing matches, or a command that is not allowed. DatasetError: ``all_there``, and some local
        shards are not. RemoteError, ManifestError: a manifest cannot be read.
    """
    from shardkit import PatternError, expand_manifests, is_command

    if list(patterns) == ["-"]:
        return NamedShards(["-"], {})
    found, missing = _expand(patterns)
    if missing and all_there:
        raise _missing(missing, total=len(found))
    shards, manifests = expand_manifests(found)
    _warn_of_twins(shards)
    if not allow_commands and (commands := [shard for shard in shards if is_command(shard)]):
        reason = "a command is run only with --allow-commands. Give it if you trust it"
        if allow_commands is None:
            reason = "no command is run here. Write its output to a file first"
        raise PatternError(f"{commands[0]}: {reason}")
    return NamedShards(shards, manifests)


def local_shards(patterns: Sequence[str], *, all_there: bool = False) -> list[str]:
    """Return the local paths that the patterns name, at least one of which is there.

    Raises: PatternError: nothing matches, or a shard that is no local file. DatasetError: ``all_there``, and they are
        not.
    """
    from shardkit import PatternError, is_command, is_url

    shards, missing = _expand(patterns)
    if elsewhere := [shard for shard in shards if is_url(shard) or is_command(shard)]:
        advice = "Write the command's output to a file first" if is_command(elsewhere[0]) else "Fetch the shard first"
        raise PatternError(f"{elsewhere[0]}: this needs local shards, which it reads at random. {advice}")
    if missing and all_there:
        raise _missing(missing, total=len(shards))
    return shards


def _expand(patterns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the shards that the patterns name, and those of them that are local and missing."""
    from shardkit import PatternError, expand_patterns, is_command, is_url

    shards = expand_patterns(patterns)
    missing = [s for s in shards if not is_url(s) and not is_command(s) and not _is_there(s)]
    if len(missing) == len(shards):
        raise PatternError(f"{_list(missing)}: no such file. Check the path")
    return shards, missing


def _is_there(path: str) -> bool:
    """Tell whether a file is there. Where one may not look into its folder, whoever reads it will say so."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _warn_of_twins(shards: Sequence[str]) -> None:
    if num_more := len(shards) - len(set(shards)):
        print_warning(f"{counted(num_more, 'shard')} named more than once: each counts as often as it is named")


def _missing(shards: Sequence[str], *, total: int) -> Exception:
    from wdsloader import DatasetError

    return DatasetError(
        f"{_list(shards)}: no such file, {len(shards)} of {counted(total, 'shard')}. Fetch or make them"
    )


def _list(shards: Sequence[str]) -> str:
    return ", ".join(shards[:_NAMED]) + (f" and {len(shards) - _NAMED} more" if len(shards) > _NAMED else "")


def _repeat_options(args: Sequence[str]) -> list[str]:
    """Return the arguments with ``--urls a b`` written as ``--urls a --urls b``."""
    repeated: list[str] = []
    option = ""
    for position, word in enumerate(args):
        if word == "--":
            return repeated + list(args[position:])
        if word.startswith("-") and word != "-":
            option = word if word in _GREEDY else ""
            repeated.append(word)
        elif option and repeated[-1] != option:
            repeated += [option, word]
        else:
            repeated.append(word)
    return repeated
