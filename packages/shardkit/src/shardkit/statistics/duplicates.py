"""Pictures of equal bytes, found by their 128-bit hashes: in columns at hand, or in a table of any length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shardkit.index.shard_index import Int64s
from shardkit.index.table import num_rows, read_columns

__all__ = ["equal_rows", "equal_rows_of_table", "names_of_rows"]

Hashes = npt.NDArray[np.uint64]
_Rows = list[int]
# So many rows' hashes are compared at a time, which takes about 1.5 GiB; the column is read again for each such part of
# a longer table, 60 times for a billion rows.
_ROWS_AT_ONCE = 1 << 24


def equal_rows(hashes: Hashes, *, rows: Int64s | None = None) -> list[_Rows]:
    """Return the groups of rows with equal hashes, each in order, sorted by their first rows.

    Args: hashes: uint64 (n, 2). rows: the number of each row; None: 0 to n - 1.
    """
    words = np.sort(hashes[:, 0])
    twice = np.isin(hashes[:, 0], words[1:][words[1:] == words[:-1]])
    # Few are left, of which those that share but half of the hash fall apart here.
    found: dict[tuple[int, int], _Rows] = {}
    for place in np.flatnonzero(twice).tolist():
        row = place if rows is None else int(rows[place])
        found.setdefault((int(hashes[place, 0]), int(hashes[place, 1])), []).append(row)
    return sorted(group for group in found.values() if len(group) > 1)


def equal_rows_of_table(path: Path, *, rows_at_once: int = _ROWS_AT_ONCE) -> list[_Rows]:
    """Return the groups of rows of a table whose pictures have equal bytes. Raises: TableError. OSError."""
    num_parts = max(1, -(-num_rows(path) // rows_at_once))
    groups: list[_Rows] = []
    for part in range(num_parts):
        taken, numbers = [np.empty((0, 2), np.uint64)], [np.empty(0, np.int64)]
        for first, hashes in _pieces(path):
            # Zeros are those of no picture. Equal hashes fall into one part.
            mine = hashes.any(axis=1) & (hashes[:, 1] % np.uint64(num_parts) == np.uint64(part))
            taken.append(hashes[mine])
            numbers.append(first + np.flatnonzero(mine))
        groups += equal_rows(np.concatenate(taken), rows=np.concatenate(numbers))
    return sorted(groups)


def names_of_rows(path: Path, rows: set[int]) -> dict[int, tuple[str, str]]:
    """Return (shard, key) of some rows of a table, reading its names a piece at a time. Raises: TableError. OSError."""
    wanted = np.array(sorted(rows), np.int64)
    names: dict[int, tuple[str, str]] = {}
    first = 0
    for piece in read_columns(path, ("shard", "key")) if rows else ():
        size = len(piece["key"])
        for row in wanted[(wanted >= first) & (wanted < first + size)].tolist():
            names[row] = (str(piece["shard"][row - first]), str(piece["key"][row - first]))
        first += size
    return names


def _pieces(path: Path) -> Iterator[tuple[int, Hashes]]:
    first = 0
    for piece in read_columns(path, ("xxh3_128",)):
        yield first, piece["xxh3_128"]
        first += len(piece["xxh3_128"])
