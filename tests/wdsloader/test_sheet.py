from __future__ import annotations

import io

import numpy as np
from PIL import Image

from wdsloader.sheet import batch_sheet


def test_every_row_of_every_batch_has_its_tile_and_a_masked_one_is_grey() -> None:
    batches = [np.full((3, 8, 8, 3), 10 * number + 20, np.uint8) for number in range(2)]
    weights = [np.array([1, 1, 1], np.float32), np.array([1, 0, 1], np.float32)]
    sheet = np.asarray(Image.open(io.BytesIO(batch_sheet(batches, weights_N=weights))))
    assert sheet.shape == (2 * 12 + 4, 3 * 12 + 4, 3)
    tiles = [[int(sheet[8 + 12 * y, 8 + 12 * x, 0]) for x in range(3)] for y in range(2)]
    assert tiles == [[20, 20, 20], [30, 236, 30]]


def test_long_batches_go_over_several_lines() -> None:
    sheet = Image.open(
        io.BytesIO(batch_sheet([np.zeros((20, 8, 8, 3), np.uint8)], weights_N=[np.ones(20, np.float32)]))
    )
    assert sheet.size == (16 * 12 + 4, 2 * 12 + 4)
