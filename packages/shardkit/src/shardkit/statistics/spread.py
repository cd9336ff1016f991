"""How whole numbers are spread, exactly, whatever their number: kept as how often each value occurs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Spread", "Values"]

Values = npt.NDArray[Any]
# Values wait until there are so many before they are sorted in: 32 MiB of them.
_WAITING = 1 << 22


class Spread:
    """Values and how often each came. Memory depends on how many different ones there are, not on how many came."""

    def __init__(self) -> None:
        self._values = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._waiting: list[Values] = []
        self._num_waiting = 0

    def add(self, values: Values) -> None:
        """Count these too."""
        self._waiting.append(values)
        self._num_waiting += len(values)
        if self._num_waiting >= _WAITING:
            self._sort_in()

    @property
    def count(self) -> int:
        """How many values there were."""
        return int(self._sorted()[1].sum())

    @property
    def mean(self) -> float:
        """Their mean; there must be one."""
        values, counts = self._sorted()
        # Python's own integers: the sum of a billion sizes squared does not fit into 64 bits, nor need this one.
        return float(sum(v * c for v, c in zip(values.tolist(), counts.tolist(), strict=True)) / int(counts.sum()))

    def percentiles(self, percents: Sequence[int]) -> dict[int, int]:
        """Return for each percent the smallest value that at least so many of the values do not exceed."""
        values, counts = self._sorted()
        ends = np.cumsum(counts)
        places = [max(0, -(-int(ends[-1]) * percent // 100) - 1) for percent in percents]
        found = values[np.searchsorted(ends, places, side="right")]
        return dict(zip(percents, found.tolist(), strict=True))

    def as_dict(self) -> dict[int, int]:
        """Return value -> how often it came, sorted."""
        values, counts = self._sorted()
        return dict(zip(values.tolist(), counts.tolist(), strict=True))

    def _sorted(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        self._sort_in()
        return self._values, self._counts

    def _sort_in(self) -> None:
        if not self._waiting:
            return
        values, counts = np.unique(np.concatenate(self._waiting).astype(np.int64, copy=False), return_counts=True)
        self._waiting, self._num_waiting = [], 0
        known = np.concatenate([self._values, values])
        self._values, places = np.unique(known, return_inverse=True)
        counts = np.concatenate([self._counts, counts])
        # bincount would weigh in floating point.
        summed = np.zeros(len(self._values), np.int64)
        np.add.at(summed, places.reshape(-1), counts)
        self._counts = summed
