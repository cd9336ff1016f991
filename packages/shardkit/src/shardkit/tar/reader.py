"""Whole samples of one shard: read forward from a stream, or one by one at their byte offsets.

Owns the step from members to samples for readers that want nothing but good data: the first member out of place is an
error. Checks that report instead of raising are in ``scan``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from shardkit.errors import ShardReadError, counted, printable
from shardkit.keys import LABEL_EXTENSION, SampleKey, is_part_of_sample, picture_extension, split_name
from shardkit.tar.byte_source import MemorySource, stream_source
from shardkit.tar.header import BLOCK_BYTES, HeaderError, padded, parse_header, parse_plain
from shardkit.tar.walk import Ending, Member, ShardWalk

__all__ = ["Group", "Sample", "ShardFile", "group_members", "iter_samples", "parse_sample", "walk_groups"]

log = logging.getLogger(__name__)

_REGROUP = "Sort the members by name and pack the shard again"
# Stands for the picture whatever its extension, which differs between samples.
_PICTURE = "a picture"
_PLAIN_KINDS = (b"0", b"\0", b"7")


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: its key, the content of its members by extension, and the byte offset of its first header."""

    key: SampleKey
    members: Mapping[str, bytes]
    offset: int


@dataclass(slots=True)
class Group:
    """Members side by side that share a key, each with its extension and, where it was wanted, its content."""

    key: SampleKey
    parts: list[tuple[str, Member, bytes | None]]

    @property
    def offset(self) -> int:
        """The byte offset of the first header."""
        return self.parts[0][1].header_offset

    @property
    def is_sample(self) -> bool:
        """Whether a part is a picture or a label, if only by its last suffix; else these lie beside the samples."""
        return any(is_part_of_sample(extension) for extension, _, _ in self.parts)


def group_members(entries: Iterable[tuple[Member, bytes | None]]) -> Iterator[Group]:
    """Group neighbouring members by key. Members that belong to no sample (hidden, folders, links) are left out."""
    group: Group | None = None
    try:
        for member, content in entries:
            split = split_name(member.name) if member.kind == "file" else None
            if split is None:
                continue
            key, extension = split
            if group is None or group.key != key:
                if group is not None:
                    yield group
                group = Group(key, [])
            group.parts.append((extension, member, content))
    except ShardReadError as error:
        # A member of another sample is damaged: this one is whole.
        split = None if error.member is None else split_name(error.member)
        if group is not None and split is not None and split[0] != group.key:
            yield group
        raise
    if group is not None:
        yield group


def walk_groups(walk: ShardWalk, *, shard: str, on_warning: Callable[[str], None] = log.warning) -> Iterator[Group]:
    """Yield the samples of a shard in order, each once all of it is known to be there.

    Where the end marker is missing, the last sample may lack what a cut took: it must have all that those before it
    have, or a picture and a label where it is the only one.
    Args: on_warning: is told what does not keep the samples from being read.
    Raises: ShardReadError: at the first damage, also behind the last sample: see :func:`_require_ending`.
    """
    usual: set[str] = set()
    num_samples = 0
    for group in _whole_groups(group_members(walk), shard=shard):
        fields = _fields(group)
        if walk.ending is not None and not walk.ending.zero_blocks:
            missing = (usual or {_PICTURE, LABEL_EXTENSION}) - fields
            if missing:
                reason = (
                    f"cut behind '{printable(group.parts[-1][1].name)}': the sample lacks {', '.join(sorted(missing))}"
                )
                reason += ", and the end-of-archive marker is missing"
                raise ShardReadError(
                    shard, reason, rule="WDS002", member=group.key, offset=group.offset, remedy="Fetch it again"
                )
        usual = fields if not num_samples else usual & fields
        num_samples += 1
        yield group
    _require_ending(walk.ending, shard=shard, num_samples=num_samples, on_warning=on_warning)


def _fields(group: Group) -> set[str]:
    extensions = {extension for extension, _, _ in group.parts}
    return extensions if picture_extension(extensions) is None else extensions | {_PICTURE}


def _whole_groups(groups: Iterable[Group], *, shard: str) -> Iterator[Group]:
    """Pass groups on as long as each holds a member once and no key comes back.

    Groups that are no samples (a README, a thumbnail cache) are left out.
    Raises: ShardReadError: the first member twice in a sample (WDS004), the first key that comes back (WDS020).
    """
    seen: set[SampleKey] = set()
    for group in groups:
        if not group.is_sample:
            continue
        if group.key in seen:
            reason = "parts of one sample are not side by side"
            raise ShardReadError(
                shard, reason, rule="WDS020", member=group.parts[0][1].name, offset=group.offset, remedy=_REGROUP
            )
        seen.add(group.key)
        first: dict[str, Member] = {}
        for extension, member, _ in group.parts:
            if extension in first:
                reason = f"duplicate member name, first at byte {first[extension].header_offset}"
                raise ShardReadError(
                    shard,
                    reason,
                    rule="WDS004",
                    member=member.name,
                    offset=member.header_offset,
                    remedy="Rename one of them or pack the shard again",
                )
            first[extension] = member
        yield group


def iter_samples(stream: BinaryIO, *, shard: str) -> Iterator[Sample]:
    """Read the samples of a shard forward from a stream (plain or gzip), each only once all of it is there.

    Args: shard: the name for messages.
    Raises: ShardReadError: at the first damage.
    """
    walk = ShardWalk(stream_source(stream), shard=shard, want=_is_part)
    for group in walk_groups(walk, shard=shard):
        yield _sample(group)


def _require_ending(ending: Ending | None, *, shard: str, num_samples: int, on_warning: Callable[[str], None]) -> None:
    """Refuse a shard that has more samples behind its end; warn of one without an end, which may be cut.

    Nothing inside a file tells a shard cut between two members from one whose writer left the end marker out.
    Raises: ShardReadError: another archive follows (WDS007).
    """
    if ending is not None and ending.next_archive:
        reason = f"{counted(num_samples, 'sample')}, then another archive at byte {ending.trailing_offset}"
        raise ShardReadError(shard, reason, rule="WDS007", remedy="Split the file at that byte, or pack it again")
    if ending is not None and not ending.zero_blocks:
        on_warning(
            f"{shard}: {counted(num_samples, 'sample')}, end-of-archive marker missing: the file may be cut (WDS005)"
        )


class ShardFile:
    """A local, uncompressed shard from which samples are read at their byte offsets. Close it, or use ``with``.

    Raises: OSError: the file cannot be opened.
    """

    def __init__(self, path: Path | str) -> None:
        self.shard = str(path)
        self._descriptor: int | None = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def __enter__(self) -> ShardFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def num_bytes(self) -> int:
        """The length of the file in bytes."""
        return os.fstat(self._open_descriptor()).st_size

    def read_sample(self, offset: int, size: int) -> Sample:
        """Read the sample whose headers and contents lie in ``size`` bytes from ``offset``; verify every header.

        Raises: ShardReadError: the bytes there are not the members of exactly one sample.
        """
        if offset < 0 or size <= 0 or offset + size > self.num_bytes:
            reason = f"the file has {counted(self.num_bytes, 'byte')}, the sample's are {size} from there"
            raise _stale(self.shard, reason, offset=offset)
        data = _read_all(self._open_descriptor(), size=size, offset=offset)
        return parse_sample(data, offset=offset, shard=self.shard)

    def read_key(self, offset: int, size: int) -> SampleKey:
        """Return the key of the sample that lies there, from its first header alone.

        Raises: ShardReadError: no member of a sample begins there.
        """
        data = _read_all(self._open_descriptor(), size=min(size, BLOCK_BYTES), offset=offset)
        try:
            header = parse_header(data)
        except HeaderError as error:
            raise _stale(self.shard, f"no tar header is here: {error}", offset=offset) from error
        if header.kind not in _PLAIN_KINDS:
            # The name comes in extended headers.
            return self.read_sample(offset, size).key
        split = split_name(header.name.decode("utf-8", "surrogateescape"))
        if split is None:
            raise _stale(self.shard, "no member of a sample is here", offset=offset)
        return split[0]

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise ValueError(f"{self.shard} is closed")
        return self._descriptor


def parse_sample(data: bytes, *, offset: int, shard: str) -> Sample:
    """Return the one sample whose headers and contents are these bytes of a shard; every header is verified.

    Args: offset: of the bytes in the shard. shard: its name for messages.
    Raises: ShardReadError: they are not the members of exactly one sample.
    """
    if (plain := _plain_sample(data, offset=offset)) is not None:
        return plain
    walk = ShardWalk(MemorySource(data, first=offset), shard=shard, want=_is_part)
    try:
        groups = list(_whole_groups(group_members(walk), shard=shard))
    except ShardReadError as error:
        if error.rule != "WDS001":
            raise
        raise _stale(shard, "no tar header is here", offset=offset) from error
    if len(groups) != 1:
        raise _stale(shard, f"{len(groups)} samples in {len(data)} bytes where the index has one", offset=offset)
    return _sample(groups[0])


def _plain_sample(data: bytes, *, offset: int) -> Sample | None:
    """Return the one sample in these bytes where all is as it nearly always is, at a fifth of the time.

    None says nothing of them: the walk does. Where this returns a sample, that returns the same.
    """
    key: SampleKey | None = None
    members: dict[str, bytes] = {}
    at, end = 0, len(data)
    while at < end:
        plain = parse_plain(data[at : at + BLOCK_BYTES])
        split = None if plain is None else split_name(plain[0])
        if plain is None or split is None:
            return None
        start, size = at + BLOCK_BYTES, plain[1]
        key = key or split[0]
        if split[0] != key or split[1] in members or start + size > end:
            return None
        members[split[1]] = data[start : start + size]
        at = start + padded(size)
    if key is None or not any(map(is_part_of_sample, members)):
        return None
    return Sample(key, members, offset)


def _stale(shard: str, reason: str, *, offset: int) -> ShardReadError:
    remedy = "The shard is damaged or its index stale: validate the shard, then delete the index and index again"
    return ShardReadError(shard, reason, rule="WDS051", offset=offset, remedy=remedy)


def _is_part(member: Member) -> bool:
    return member.kind == "file" and split_name(member.name) is not None


def _sample(group: Group) -> Sample:
    members = {extension: content for extension, _, content in group.parts if content is not None}
    return Sample(group.key, members, group.offset)


def _read_all(descriptor: int, *, size: int, offset: int) -> bytes:
    """Read ``size`` bytes at ``offset``, fewer only at the end of the file (one call may return less than asked)."""
    data = os.pread(descriptor, size, offset)
    while len(data) < size and (piece := os.pread(descriptor, size - len(data), offset + len(data))):
        data += piece
    return data
