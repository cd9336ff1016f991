"""Everything that can still be read of a shard, however damaged: its members, and the bytes between them that are none.

Owns the search behind damage: broken headers, text in front, several archives, bytes behind the end. Judges nothing and
writes nothing; holds a few hundred bytes a member.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from shardkit.errors import ShardReadError, counted
from shardkit.tar.byte_source import FileSource
from shardkit.tar.header import BLOCK_BYTES, HeaderError, padded, parse_header
from shardkit.tar.walk import Ending, Member, ShardWalk

__all__ = ["Debris", "Salvage", "salvage"]

_MAGIC = b"ustar"
_MAGIC_AT = 257
# What a header's checksum looks like: tars older than ustar have no magic.
_CHECKSUM = re.compile(rb" {0,5}[0-7]{1,7}[\0 ]{1,2}")
_CHECKSUM_AT, _CHECKSUM_END = 148, 156
# The search begins with 4 KiB, so that damage every few blocks costs no more than it must.
_FIRST_WINDOW, _LAST_WINDOW = 1 << 12, 1 << 20
# Real ones come as two or three in front of a member.
_EXTENSIONS = (b"L", b"K", b"x", b"g")
_LONG_RUN = 500
_ARCHIVE_SUFFIXES = (".tar", ".tgz", ".tar.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Debris:
    """Bytes that are no whole member: from ``offset``, ``size`` of them; the rule that speaks of them, and why."""

    offset: int
    size: int
    rule: str
    reason: str
    member: str | None = None


@dataclass(slots=True)
class Salvage:
    """What a file holds.

    ``members``: (number of the archive, whole member) in the order of the file. ``zero_blocks``: of the last archive's
    end marker, 0 where there is none.
    """

    num_bytes: int
    members: list[tuple[int, Member]] = field(default_factory=list)
    debris: list[Debris] = field(default_factory=list)
    zero_blocks: int = 0


def salvage(path: Path, *, shard: str) -> Salvage:
    """Read a local, uncompressed file to its last byte and return what it holds.

    Args: shard: the name for messages. Raises: OSError.
    """
    found = Salvage(path.stat().st_size)
    number = 0
    position: int | None = 0
    with open(path, "rb") as file:
        while position is not None and position < found.num_bytes:
            position, ends = _read_on(file, found, start=position, shard=shard, number=number)
            number += ends
    return found


def _read_on(file: BinaryIO, found: Salvage, *, start: int, shard: str, number: int) -> tuple[int | None, bool]:
    """Read members up to the first damage or the end of the archive.

    Returns: (where to read on, None at the end of the file; whether the archive ends there).
    """
    source = FileSource(file, num_bytes=found.num_bytes)
    source.skip(start)
    walk = ShardWalk(source, shard=shard, want=lambda _: False)
    end = start
    try:
        for member, _ in walk:
            found.members.append((number, member))
            end = min(member.offset + padded(member.size), found.num_bytes)
    except ShardReadError as error:
        found.zero_blocks = 0
        return _pass_damage(file, found, error=error, start=end), False
    ending = walk.ending or Ending(zero_blocks=0)
    found.zero_blocks = ending.zero_blocks
    if ending.next_archive:
        return ending.trailing_offset, True
    if not ending.trailing_bytes:
        return None, True
    first = ending.trailing_offset
    following = _find_header(file, first=first, num_bytes=found.num_bytes)
    end = found.num_bytes if following is None else following
    reason = f"{counted(end - first, 'byte')} behind the end marker"
    found.debris.append(Debris(offset=first, size=end - first, rule="WDS006", reason=reason))
    return following, True


def _pass_damage(file: BinaryIO, found: Salvage, *, error: ShardReadError, start: int) -> int | None:
    """Note the damaged bytes from ``start``; return where the next header is, None where there is none."""
    following = None
    # What looks like a header in the rest of a tar inside the tar is a member of that one.
    if error.rule != "WDS002" or not (error.member or "").lower().endswith(_ARCHIVE_SUFFIXES):
        first = _past_extensions(file, first=start)
        following = _find_header(file, first=max(first, start + 1), aligned=start, num_bytes=found.num_bytes)
    end = found.num_bytes if following is None else following
    if end > start:
        found.debris.append(
            Debris(offset=start, size=end - start, rule=error.rule, reason=error.reason, member=error.member)
        )
    return following


def _past_extensions(file: BinaryIO, *, first: int) -> int:
    """Return where a run of extended headers ends that is too long for the walk; ``first`` where there is none.

    The walk would read a thousand of them again from every one of them.
    """
    position, num_headers = first, 0
    while True:
        file.seek(position)
        block = file.read(BLOCK_BYTES)
        if not _is_header(block) or (header := parse_header(block)).kind not in _EXTENSIONS:
            return position if num_headers > _LONG_RUN else first
        position += BLOCK_BYTES + padded(header.size)
        num_headers += 1


def _find_header(file: BinaryIO, *, first: int, num_bytes: int, aligned: int | None = None) -> int | None:
    """Return the offset of the first header that begins at ``first`` or behind it.

    Headers with a magic are found anywhere, those without it at whole blocks from ``aligned``.
    """
    window, position = _FIRST_WINDOW, first
    while position < num_bytes:
        file.seek(position)
        data = file.read(window + BLOCK_BYTES - 1)
        candidates = set(_with_magic(data))
        if aligned is not None:
            candidates.update(range((aligned - position) % BLOCK_BYTES, len(data), BLOCK_BYTES))
        for offset in sorted(candidates):
            if offset < window and _is_header(data[offset : offset + BLOCK_BYTES]):
                return position + offset
        position += window
        window = min(2 * window, _LAST_WINDOW)
    return None


def _with_magic(data: bytes) -> Iterator[int]:
    for match in re.finditer(_MAGIC, data):
        if match.start() >= _MAGIC_AT:
            yield match.start() - _MAGIC_AT


def _is_header(block: bytes) -> bool:
    if not _CHECKSUM.match(block, _CHECKSUM_AT, _CHECKSUM_END):
        return False
    try:
        parse_header(block)
    except HeaderError:
        return False
    return True
