"""The index of a damaged shard: what can be read of it, and which of its samples cannot.

Every sample that anything is known of has a row, the damaged ones too, so that a reader that is told to pass over them
can say which and how many. Behind a cut, or bytes that are no tar, nothing is known: one row stands for that place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shardkit.errors import ShardReadError
from shardkit.index.shard_index import ShardIndex, file_checksum, index_of_groups
from shardkit.keys import LABEL_EXTENSION, SampleKey, split_name
from shardkit.tar.byte_source import open_source
from shardkit.tar.header import BLOCK_BYTES
from shardkit.tar.reader import Group, group_members
from shardkit.tar.walk import ShardWalk

__all__ = ["Salvage", "salvage_index"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """An index that only this process may use, and the rows of it that cannot be read, each with the reason."""

    index: ShardIndex
    faults: Mapping[int, ShardReadError]


def salvage_index(path: Path) -> Salvage:
    """Read a local, uncompressed shard as far as it goes.

    Raises: ShardReadError: gzip (WDS012), where no sample has an offset. OSError.
    """
    shard = str(path)
    groups: list[Group] = []
    faults: dict[int, ShardReadError] = {}
    rows: dict[SampleKey, int] = {}
    end: ShardReadError | None = None
    with open_source(path) as source:
        if source.gunzip is not None:
            raise ShardReadError(shard, "gzip: samples cannot be read at an offset", rule="WDS012")
        walk = ShardWalk(source, shard=shard, want=lambda member: member.name.lower().endswith("." + LABEL_EXTENSION))
        try:
            for group in group_members(walk):
                if not group.is_sample:
                    continue
                if group.key in rows:
                    reason = "parts of one sample are not side by side"
                    faults[rows[group.key]] = _fault(group, reason, shard=shard, rule="WDS020")
                    continue
                row = rows[group.key] = len(groups)
                groups.append(group)
                if len({extension for extension, _, _ in group.parts}) < len(group.parts):
                    faults[row] = _fault(group, "duplicate member name", shard=shard, rule="WDS004")
        except ShardReadError as error:
            end = error
    num_bytes = path.stat().st_size
    index = index_of_groups(groups, shard=path.name, num_bytes=num_bytes, checksum=file_checksum(path))
    if end is not None:
        faults[len(groups)] = end
        index = _with_end(index, end)
    return Salvage(index=index, faults=faults)


def _fault(group: Group, reason: str, *, shard: str, rule: str) -> ShardReadError:
    return ShardReadError(shard, reason, rule=rule, member=group.parts[0][1].name, offset=group.offset)


def _with_end(index: ShardIndex, end: ShardReadError) -> ShardIndex:
    """Return the index with a row more, for the place where nothing more can be read."""
    split = None if end.member is None else split_name(end.member)
    offset = index.num_bytes if end.offset is None else end.offset
    key = f"(from byte {offset} on)" if split is None or split[0] in index.keys else split[0]
    none = np.full((1, len(index.extensions)), -1, np.int64)
    return replace(
        index,
        keys=(*index.keys, str(key)),
        labels=np.append(index.labels, -1),
        offsets=np.append(index.offsets, offset),
        sizes=np.append(index.sizes, BLOCK_BYTES),
        member_offsets=np.concatenate((index.member_offsets, none)),
        member_sizes=np.concatenate((index.member_sizes, none)),
    )
