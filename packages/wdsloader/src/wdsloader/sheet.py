"""The pictures of batches as one picture: rows of tiles, each with its key and its class; a batch begins a new row.

Owns which tile stands where; shardkit draws them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from shardkit import Tile, tile_sheet

if TYPE_CHECKING:
    from wdsloader.torch_adapter import Batch

__all__ = ["batch_sheet"]

_COLUMNS = 16
# What a key and the name of a class take up; smaller pictures are enlarged.
_MIN_SIDE_PX = 144


def batch_sheet(batches: Sequence[Batch], *, title: str, classes: Sequence[str] = ()) -> bytes:
    """Return the sheet as a PNG; a masked row (weight 0) is a grey tile.

    Args: batches: at least one, all of one size of pictures, on the host. title: a line at the top. classes: names by
        number, where they are known.
    """
    side_px = max(batches[0].images.shape[1], _MIN_SIDE_PX)
    rows: list[list[Tile]] = []
    for batch in batches:
        tiles = list(_tiles(batch, side_px=side_px))
        rows += [tiles[first : first + _COLUMNS] for first in range(0, len(tiles), _COLUMNS)]
    return tile_sheet(rows, title=title, classes=classes, side_px=side_px)


def _tiles(batch: Batch, *, side_px: int) -> Iterator[Tile]:
    images_NHWC = np.asarray(batch.images)
    rows = zip(images_NHWC, batch.keys, batch.labels.tolist(), batch.weights.tolist(), strict=True)
    for image, key, label, weight in rows:
        if key is None or not weight:
            yield Tile(shard="", key="masked")
            continue
        # Whole pixels: what training sees is not smoothed.
        times = side_px // len(image)
        picture = Image.fromarray(image.repeat(times, axis=0).repeat(times, axis=1))
        yield Tile(shard="", key=key, label=label if label >= 0 else None, picture=picture)
