"""The smallest and the largest label of local shards, read from their indexes alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shardkit import ShardIndex, ShardkitError, index_path_of, printable, read_index
from wdsloader.errors import DatasetError
from wdsloader.shards import ShardEntry

__all__ = ["LabelRange", "find_label_range"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRange:
    """The smallest and the largest label of a dataset, and where each is first met: shard and key."""

    lowest: int
    lowest_at: str
    highest: int
    highest_at: str


def find_label_range(entries: Iterable[ShardEntry], *, skip: bool) -> LabelRange | None:
    """Return the range over all samples, None where there is none.

    Args: skip: leave out what will be passed over: bad shards and samples, those without a label.
    Raises: DatasetError: an index that cannot be read.
    """
    found: list[tuple[int, str]] = []
    for entry in entries:
        index = _index_of(entry, skip=skip)
        rows = [] if index is None else _rows_with_labels(index, entry, skip=skip)
        if index is not None and rows:
            labels = index.labels[rows]
            ends = (rows[int(np.argmin(labels))], rows[int(np.argmax(labels))])
            found += ((int(index.labels[r]), f"{entry.url}: '{printable(index.keys[r])}'") for r in ends)
    if not found:
        return None
    lowest, highest = min(found, key=lambda label: label[0]), max(found, key=lambda label: label[0])
    return LabelRange(lowest=lowest[0], lowest_at=lowest[1], highest=highest[0], highest_at=highest[1])


def _rows_with_labels(index: ShardIndex, entry: ShardEntry, *, skip: bool) -> list[int]:
    """Return the rows whose labels count: all; under ``skip`` those that have one and can be read."""
    if not skip:
        return list(range(index.num_samples))
    return sorted(set(np.flatnonzero(index.labels >= 0).tolist()) - entry.faults.keys())


def _index_of(entry: ShardEntry, *, skip: bool) -> ShardIndex | None:
    try:
        return entry.index or read_index(Path(index_path_of(entry.url)))
    except (ShardkitError, OSError) as error:
        if skip:
            return None
        raise DatasetError(str(error)) from error
