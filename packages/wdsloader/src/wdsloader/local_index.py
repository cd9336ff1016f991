"""The index of a local shard: beside it, in the cache, made on first use, or of what can be read of a damaged one.

Never a stale one in silence.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shardkit import (
    ShardIndex,
    ShardkitError,
    ShardReadError,
    build_index,
    counted,
    index_path_of,
    index_state,
    read_index,
    salvage_index,
    write_index,
)
from wdsloader.cache import ShardCache
from wdsloader.config_cache import CacheConfig
from wdsloader.errors import DatasetError
from wdsloader.shards import stale

__all__ = ["Indexed", "index_in_reach", "say_unsure"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """A shard's index; whether it lies beside the shard, whether it was made now, and which rows are bad."""

    index: ShardIndex
    beside: bool
    made: bool
    faults: Mapping[int, ShardReadError] = field(default_factory=dict)


def index_in_reach(path: Path, *, cache: CacheConfig | None, counted: bool, skip: bool) -> Indexed | None:
    """Return the index of a local shard; under ``skip`` that of what can be read of it, None where nothing can.

    Args: counted: a manifest says how many samples it has.
    Raises: DatasetError: an index that is no index, or not of this shard. ShardReadError. OSError.
    """
    try:
        return _find_index(path, cache)
    except (DatasetError, ShardkitError, OSError) as error:
        if not skip:
            raise
        log.warning("%s", error)
    if counted:
        return None  # its samples are counted, and the shard is not the one that was counted
    try:
        salvage = salvage_index(path)
    except (ShardkitError, OSError):
        return None
    if len(salvage.faults) == salvage.index.num_samples == 1:
        return None  # not a single sample was found
    return Indexed(index=salvage.index, beside=False, made=True, faults=salvage.faults)


def _find_index(path: Path, cache: CacheConfig | None) -> Indexed:
    """Return the index of a shard, made where there is none.

    A folder that cannot be written keeps it in the cache folder, or in memory.
    """
    homes = [Path(index_path_of(str(path)))]
    if cache is not None:
        homes.append(Path(index_path_of(str(ShardCache(cache).path_of(str(path.resolve()))))))
    mtime_ns = path.stat().st_mtime_ns
    for home in homes:
        # An index of our own that may be out of date is made again; one beside the shard is somebody's.
        if home.exists() and (home == homes[0] or index_state(path, index=home) == "fresh"):
            index = _checked_index(home, path)
            if index is not None:
                return Indexed(index=index, beside=home == homes[0], made=False)
    index = build_index(path)
    for home in homes:
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
            write_index(index, home, shard_mtime_ns=mtime_ns)
        except OSError as error:
            log.debug("%s: the index cannot be kept here: %s", home, error)
            continue
        return Indexed(index=index, beside=home == homes[0], made=True)
    log.info("%s: its index is kept in memory, no folder for it can be written", path)
    return Indexed(index=index, beside=False, made=True)


def _checked_index(home: Path, shard: Path) -> ShardIndex | None:
    """Return an index from its file, checked against the shard's size; a stale one of our own cache counts as none."""
    try:
        index = read_index(home)
    except ShardkitError as error:
        raise DatasetError(str(error)) from error
    found = shard.stat().st_size
    if index.num_bytes == found:
        return index
    if home.parent == shard.parent:
        raise stale(str(shard), f"has {found} bytes, its index says {index.num_bytes}")
    return None


def say_unsure(shards: Sequence[str]) -> None:
    """Warn, once, of shards changed after they were indexed, or copied without their times.

    Their sizes are the recorded ones. Every sample is held against the index when it is read, so none is taken for
    another; but contents of the same size could have been exchanged, and the digest would not know.
    """
    if shards:
        log.warning(
            "%s: newer than its index%s. Sizes agree, and samples are checked as they are read; compare the checksums "
            "once: wds index",
            shards[0],
            f", {counted(len(shards), 'shard')} in all" if len(shards) > 1 else "",
        )
