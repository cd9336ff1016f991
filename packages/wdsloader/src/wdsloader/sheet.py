"""The pictures of batches as one picture: a row of tiles for each batch, or several where batches are long."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = ["batch_sheet"]

_GAP_PX = 4
_COLUMNS = 16
_PAPER, _MASKED = 250, 236


def batch_sheet(
    batches_NHWC: Sequence[npt.NDArray[np.uint8]], *, weights_N: Sequence[npt.NDArray[np.float32]]
) -> bytes:
    """Return the sheet as a PNG; a masked row (weight 0) is a grey tile.

    Args: batches_NHWC: uint8 (b, size, size, 3) of each batch, all of one size.
    """
    size = batches_NHWC[0].shape[1]
    columns = min(_COLUMNS, max(len(images) for images in batches_NHWC))
    lines = [-(-len(images) // columns) for images in batches_NHWC]
    pitch = size + _GAP_PX
    sheet = np.full((sum(lines) * pitch + _GAP_PX, columns * pitch + _GAP_PX, 3), _PAPER, np.uint8)
    top = _GAP_PX
    for images, weights, num_lines in zip(batches_NHWC, weights_N, lines, strict=True):
        for row in range(len(images)):
            y, x = top + row // columns * pitch, _GAP_PX + row % columns * pitch
            sheet[y : y + size, x : x + size] = images[row] if weights[row] else _MASKED
        top += num_lines * pitch
    buffer = io.BytesIO()
    Image.fromarray(sheet).save(buffer, "PNG")
    return buffer.getvalue()
