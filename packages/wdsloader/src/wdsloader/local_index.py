"""The index of a local shard: beside it, in the cache folder, or made on first use; never a stale one in silence."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from shardkit import ShardIndex, ShardkitError, build_index, index_path_of, index_state, read_index, write_index
from wdsloader.cache import ShardCache
from wdsloader.errors import DatasetError
from wdsloader.shards import stale

__all__ = ["checked_index", "find_index", "say_unsure"]

log = logging.getLogger(__name__)


def say_unsure(shards: Sequence[str]) -> None:
    """Warn, once, of shards changed after they were indexed, or copied without their times.

    Their sizes are the recorded ones. Every sample is held against the index when it is read, so none is taken for
    another; but contents of the same size could have been exchanged, and the digest would not know.
    """
    if shards:
        log.warning(
            "%s: newer than its index, as are %d shards in all. Sizes agree, and samples are checked as they are read; "
            "compare the checksums once: wds index",
            shards[0],
            len(shards),
        )


def find_index(path: Path, cache_dir: Path | None) -> tuple[ShardIndex, bool, bool]:
    """Return (index, whether it lies beside the shard, whether it was made now).

    A folder that cannot be written keeps it in the cache folder, or in memory.
    """
    homes = [Path(index_path_of(str(path)))]
    if cache_dir is not None:
        homes.append(Path(index_path_of(str(ShardCache(cache_dir).path_of(str(path.resolve()))))))
    mtime_ns = path.stat().st_mtime_ns
    for home in homes:
        # An index of our own that may be out of date is made again; one beside the shard is somebody's.
        if home.exists() and (home == homes[0] or index_state(path, index=home) == "fresh"):
            index = checked_index(home, path)
            if index is not None:
                return index, home == homes[0], False
    index = build_index(path)
    for home in homes:
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
            write_index(index, home, shard_mtime_ns=mtime_ns)
        except OSError as error:
            log.debug("%s: the index cannot be kept here: %s", home, error)
            continue
        return index, home == homes[0], True
    log.info("%s: its index is kept in memory, no folder for it can be written", path)
    return index, False, True


def checked_index(home: Path, shard: Path) -> ShardIndex | None:
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
