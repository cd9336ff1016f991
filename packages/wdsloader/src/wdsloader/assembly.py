"""The parts of one rank's batch, put together by row; masked rows filled. The pixels are in place. Numpy, no torch.

Pixels are whatever holds a picture in each row: a numpy array, or a tensor on the host or on a device.

Real rows stand where their positions are. A row that no part fills (beyond the data, or of a sample that was skipped or
filtered out) has weight 0 and no key, and repeats a good row of the same rank, for BatchNorm's sake: the first one of
the batch; where the batch has none, the last one before it in this epoch; where there is none either, it is black.
All three are functions of the order alone, so a batch is the same on any layout and after any resume.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from wdsloader.account import Fault
from wdsloader.decode import Uint8s
from wdsloader.encoded import EncodedRow
from wdsloader.order import Int64s

__all__ = ["Assembler", "FindGood", "Float32s", "GoodRow", "Part", "Pixels", "Settle", "as_decoded"]

Float32s = npt.NDArray[np.float32]
# uint8 (size, size, 3), an array or a tensor as the rest of the batch.
Picture = Any
# The pixels and the label of a good row.
GoodRow = tuple[Picture, int]


class Pixels(Protocol):
    """The pictures of a batch, uint8 (b, size, size, 3)."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Picture: ...

    def __setitem__(self, row: int, picture: Picture, /) -> None: ...


class FindGood(Protocol):
    """Finds the rank's last good row before the batch that starts at a position of an epoch; None: there is none."""

    def __call__(self, *, epoch: int, position: int) -> GoodRow | None: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """What is known of some rows of one rank's batch: the batch that starts at ``position`` of ``epoch``.

    ``rows``: (r,) their places in the batch, where their pixels are. ``labels``: (r,), -1 without one. ``weights``:
    (r,), 0 for a masked row. ``keys``: (r,), None for a masked row. ``faults``: what was left out, by position.
    ``lost``: shards that were lost before any of their samples was known, so that no position is theirs. ``dropped``:
    good samples that made no whole batch, in the inexact mode. ``encoded``: (r,) or none: what a device has to decode.
    """

    epoch: int
    position: int
    rows: Int64s
    labels: Int64s
    weights: Float32s
    keys: tuple[str | None, ...]
    faults: tuple[Fault, ...] = ()
    lost: tuple[str, ...] = ()
    dropped: int = 0
    encoded: tuple[EncodedRow, ...] = ()


class Settle(Protocol):
    """Makes pixels of what workers have left in a slot; returns them, and the parts less the rows that gave none.

    Args: memory: uint8 of ``slot_shape``. num_rows: of the batch.
    Raises: SampleError: under "stop", the first such row.
    """

    def __call__(self, parts: Sequence[Part], memory: Uint8s, *, num_rows: int) -> tuple[Sequence[Part], Pixels]: ...


def as_decoded(parts: Sequence[Part], memory: Uint8s, *, num_rows: int) -> tuple[Sequence[Part], Pixels]:
    """Settle what the workers have decoded: nothing is left to do."""
    return parts, memory[:num_rows]


class Assembler:
    """Puts the batches of one rank together, in order.

    Args: find_good: asked only where the batches so far do not tell, as after a resume. copy: of one picture.
    """

    def __init__(self, *, find_good: FindGood, copy: Callable[[Picture], Picture] = np.copy) -> None:
        self._find_good, self._copy = find_good, copy
        self._last: tuple[int, GoodRow] | None = None

    def assemble(self, parts: Sequence[Part], *, images: Pixels) -> Part:
        """Return the whole batch, and fill its masked rows.

        Args: images: its pixels, with those of the parts in place.
        """
        whole, filled = _merge(parts, num_rows=len(images))
        good = np.flatnonzero(filled)
        if len(good):
            first, last = int(good[0]), int(good[-1])
            filler: GoodRow | None = (images[first], int(whole.labels[first]))
            self._last = (whole.epoch, (self._copy(images[last]), int(whole.labels[last])))
        else:
            filler = self._before(whole)
        for row in np.flatnonzero(~filled).tolist():
            images[row], whole.labels[row] = (0, 0) if filler is None else filler
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
    labels = np.zeros(num_rows, np.int64)
    weights = np.zeros(num_rows, np.float32)
    filled = np.zeros(num_rows, bool)
    keys: list[str | None] = [None] * num_rows
    for part in parts:
        labels[part.rows] = part.labels
        weights[part.rows] = part.weights
        filled[part.rows] = True
        for row, key in zip(part.rows.tolist(), part.keys, strict=True):
            keys[row] = key
    faults = sorted((fault for part in parts for fault in part.faults), key=lambda fault: fault.position)
    whole = replace(
        parts[0],
        rows=np.arange(num_rows),
        labels=labels,
        weights=weights,
        keys=tuple(keys),
        faults=tuple(faults),
        encoded=(),
    )
    return whole, filled
