from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from wdsloader import Batch
from wdsloader.sheet import batch_sheet


def batch_of(*, rows: int, side: int = 8, value: int = 20, masked: int = -1, keys: str = "k", label: int = 1) -> Batch:
    return Batch(
        images=torch.full((rows, side, side, 3), value, dtype=torch.uint8),
        labels=torch.full((rows,), label),
        weights=torch.tensor([float(row != masked) for row in range(rows)]),
        keys=tuple(None if row == masked else f"{keys}{row}" for row in range(rows)),
        epoch=0,
        position=rows,
        state={},
    )


def sheet_of(batches: list[Batch], classes: tuple[str, ...] = ()) -> npt.NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(batch_sheet(batches, title="t", classes=classes))))


def test_every_row_of_every_batch_has_its_tile_and_a_masked_one_is_grey() -> None:
    sheet = sheet_of([batch_of(rows=3, value=20), batch_of(rows=3, value=30, masked=1)])
    assert sheet.shape == (2 * 188 + 34, 3 * 154 + 10, 3)
    tiles = [[int(sheet[34 + 72 + 188 * y, 10 + 72 + 154 * x, 0]) for x in range(3)] for y in range(2)]
    assert tiles == [[20, 20, 20], [30, 236, 30]]


def test_long_batches_go_over_several_lines() -> None:
    assert sheet_of([batch_of(rows=20)]).shape == (2 * 188 + 34, 16 * 154 + 10, 3)


def test_small_pictures_are_enlarged_by_whole_pixels_and_large_ones_stay() -> None:
    for side, shown in ((50, 100), (144, 144), (160, 160)):
        assert int((sheet_of([batch_of(rows=1, side=side, value=77)]) == 77).all(axis=2).sum()) >= shown**2
        assert int((sheet_of([batch_of(rows=1, side=side, value=77)]) == 77).all(axis=2).sum()) < shown**2 * 1.01


def test_each_tile_has_its_key_and_its_class() -> None:
    sheets = [
        sheet_of([batch_of(rows=1, keys=key, label=label)], classes=("a", name))
        for key, label, name in (("k", 1, "b"), ("é", 1, "b"), ("k", 1, "鳥"), ("k", 0, "b"), ("k", -1, "b"))
    ]
    assert len({sheet.tobytes() for sheet in sheets}) == len(sheets)
    # They are written below the pictures, and nowhere else.
    assert len({sheet[: 34 + 144].tobytes() for sheet in sheets}) == 1
