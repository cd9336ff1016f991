"""Which loaders are held against each other, and what is asked of the ratios (issue "Speed")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Cell", "Pair", "choose_pairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Pixels a side and workers."""

    image_size: int
    num_workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two loaders by name and where they meet. ``at_least``: asked of the first's rate over the second's.

    ``second_workers``: where they differ from the cell's.
    """

    first: str
    second: str
    cell: Cell
    at_least: float | None = None
    second_workers: int | None = None


_MAIN_CELL = Cell(image_size=224, num_workers=2)
_MAIN: tuple[tuple[str, str, float | None], ...] = (
    ("ours", "floor", 0.80),
    ("ours-crop-ready", "floor", 0.90),
    ("ours-crop-ready", "ours", 1.12),
    ("ours", "source", 4.8),
    ("ours-no-kernel", "source", 2.8),
    ("ours-no-kernel", "imagefolder", None),
    ("ours", "imagefolder", 1.6),
    ("ours", "dali", 1.6),
    ("ours", "litdata", 1.6),
    ("ours", "webdataset", None),
    ("ours", "streaming", None),
    ("ours-q90", "ffcv", 1.5),
    ("ours-float", "source", 3.0),
    ("ours-float", "dali-float", 1.3),
    ("ours-float", "imagefolder-float", None),
    ("ours-float", "litdata-float", None),
    ("ours-float", "streaming-float", None),
    ("ours-float", "energon-float", None),
)
_OTHER_CELLS = (Cell(image_size=160, num_workers=2), Cell(image_size=224, num_workers=1))
_OTHER: tuple[tuple[str, str, float | None], ...] = (
    ("ours", "imagefolder", None),
    ("ours", "dali", None),
    ("ours", "floor", None),
    ("ours", "source", None),  # minutes with one worker, so not there
)
# At 224 pixels scaling touches 3 % of the crops, below 160 almost half of them.
_SCALED_UP_TO_PX = 160


def choose_pairs(
    *, only: Sequence[str], sizes: Sequence[int], workers: Sequence[int], everything: bool
) -> tuple[Pair, ...]:
    """Return the pairs to measure: the default ones, or those of the sizes and workers named.

    Args: only: keep pairs in which a name begins with one of these. everything: all pairs at every size.
    """
    if sizes or workers:
        cells = [
            Cell(image_size=size, num_workers=count)
            for size in (sizes or [_MAIN_CELL.image_size])
            for count in (workers or [_MAIN_CELL.num_workers])
        ]
    else:
        cells = [_MAIN_CELL, *_OTHER_CELLS]
    pairs = [pair for cell in cells for pair in _of_cell(cell, everything=everything)]
    return tuple(
        pair for pair in pairs if not only or pair.first.startswith(tuple(only)) or pair.second.startswith(tuple(only))
    )


def _of_cell(cell: Cell, *, everything: bool) -> Iterator[Pair]:
    main = cell == _MAIN_CELL
    some = _OTHER if cell.num_workers > 1 else _OTHER[:-1]
    for first, second, at_least in _MAIN if main or everything else some:
        yield Pair(first=first, second=second, cell=cell, at_least=at_least if main else None)
    if cell.image_size <= _SCALED_UP_TO_PX:
        yield Pair(first="ours-dct", second="ours", cell=cell)
    if main:
        yield Pair(first="ours", second="ours", cell=cell, at_least=1.7, second_workers=1)
