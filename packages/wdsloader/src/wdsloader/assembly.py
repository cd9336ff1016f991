"""The parts of one rank's batch, put together by row in the main process; masked rows filled. Numpy, no torch.

Real rows stand where their positions are. A row that no part fills (beyond the data, or of a sample that was skipped or
filtered out) has weight 0 and no key, and repeats a good row of the same rank, for BatchNorm's sake: the first one of
the batch; where the batch has none, the last one before it in this epoch; where there is none either, it is black.
All three are functions of the order alone, so a batch is the same on any layout and after any resume.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from wdsloader.account import Fault
from wdsloader.order import Int64s

__all__ = ["Assembler", "FindGood", "Float32s", "GoodRow", "Part", "Uint8s", "empty_part"]

Float32s = npt.NDArray[np.float32]
Uint8s = npt.NDArray[np.uint8]
# The pixels and the label of a good row.
GoodRow = tuple[Uint8s, int]


class FindGood(Protocol):
    """Finds the rank's last good row before the batch that starts at a position of an epoch; None: there is none."""

    def __call__(self, *, epoch: int, position: int) -> GoodRow | None: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Some rows of one rank's batch: the batch that starts at ``position`` of ``epoch``.

    ``rows``: (r,) their places in the batch. ``images``: uint8 (r, size, size, 3). ``labels``: (r,), -1 without one.
    ``weights``: (r,), 0 for a masked row. ``keys``: (r,), None for a masked row. ``faults``: what was left out, by
    position. ``lost``: shards that were lost before any of their samples was known, so that no position is theirs.
    ``dropped``: good samples that made no whole batch, in the inexact mode.
    """

    epoch: int
    position: int
    rows: Int64s
    images: Uint8s
    labels: Int64s
    weights: Float32s
    keys: tuple[str | None, ...]
    faults: tuple[Fault, ...] = ()
    lost: tuple[str, ...] = ()
    dropped: int = 0


def empty_part(num_rows: int, *, size: int, epoch: int, position: int) -> Part:
    """Return a part of rows 0.. that holds nothing yet: black, weight 0, label 0."""
    return Part(
        epoch=epoch,
        position=position,
        rows=np.arange(num_rows),
        images=np.zeros((num_rows, size, size, 3), np.uint8),
        labels=np.zeros(num_rows, np.int64),
        weights=np.zeros(num_rows, np.float32),
        keys=(None,) * num_rows,
    )


class Assembler:
    """Puts the batches of one rank together, in order.

    Args: find_good: asked only where the batches so far do not tell, as after a resume.
    """

    def __init__(self, *, find_good: FindGood) -> None:
        self._find_good = find_good
        self._last: tuple[int, GoodRow] | None = None

    def assemble(self, parts: Sequence[Part], *, num_rows: int) -> Part:
        """Return the whole batch of ``num_rows`` rows."""
        whole, filled = _merge(parts, num_rows=num_rows)
        good = np.flatnonzero(filled)
        if len(good):
            first, last = int(good[0]), int(good[-1])
            filler: GoodRow | None = (whole.images[first], int(whole.labels[first]))
            self._last = (whole.epoch, (whole.images[last].copy(), int(whole.labels[last])))
        else:
            filler = self._before(whole)
        if len(good) < num_rows and filler is not None:
            whole.images[~filled], whole.labels[~filled] = filler
        return whole

    def _before(self, whole: Part) -> GoodRow | None:
        if self._last is None or self._last[0] != whole.epoch:
            found = self._find_good(epoch=whole.epoch, position=whole.position)
            if found is None:
                return None
            self._last = (whole.epoch, found)
        return self._last[1]


def _merge(parts: Sequence[Part], *, num_rows: int) -> tuple[Part, npt.NDArray[np.bool_]]:
    """Return the batch with the rows that the parts have, and which these are."""
    first = parts[0]
    if len(parts) == 1 and len(first.rows) == num_rows:
        return first, np.ones(num_rows, bool)
    whole = empty_part(num_rows, size=first.images.shape[1], epoch=first.epoch, position=first.position)
    keys: list[str | None] = [None] * num_rows
    filled = np.zeros(num_rows, bool)
    for part in parts:
        whole.images[part.rows] = part.images
        whole.labels[part.rows] = part.labels
        whole.weights[part.rows] = part.weights
        filled[part.rows] = True
        for row, key in zip(part.rows.tolist(), part.keys, strict=True):
            keys[row] = key
    faults = sorted((fault for part in parts for fault in part.faults), key=lambda fault: fault.position)
    return replace(whole, keys=tuple(keys), faults=tuple(faults)), filled
