"""Bytes of a picture and a crop box -> the pixels of one sample, in its slot of the batch.

The PIL path: decode whole, in the right colours, crop, resize antialiased. The seam for a faster decoder is
:func:`decode_crop`: the box is asked for when the header has told the size, and before any pixel is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image

from shardkit import MAX_PIXELS, load, open_picture, to_rgb
from wdsloader.augment import Crop

__all__ = ["ChooseCrop", "Uint8s", "decode_crop"]

Uint8s = npt.NDArray[np.uint8]
# (width, height) of the picture -> the box.
ChooseCrop = Callable[[int, int], Crop]


def decode_crop(data: bytes, choose: ChooseCrop, *, out: Uint8s, max_pixels: int = MAX_PIXELS) -> None:
    """Write the chosen crop of the picture into ``out``: uint8 (size, size, 3), RGB.

    Only pixels that the box touches enter the result. For a box of whole pixels it equals torchvision's
    ``resized_crop`` of a PIL picture, bilinear and antialiased, bit for bit.
    Raises: PictureError: no picture, cut, broken, or of too many pixels.
    """
    opened = open_picture(data, max_pixels=max_pixels)
    crop = choose(opened.width, opened.height)
    picture = to_rgb(load(opened))
    left, top = math.floor(crop.x), math.floor(crop.y)
    right, bottom = math.ceil(crop.x + crop.width), math.ceil(crop.y + crop.height)
    x, y = crop.x - left, crop.y - top
    resized = picture.crop((left, top, right, bottom)).resize(
        (out.shape[1], out.shape[0]), Image.Resampling.BILINEAR, box=(x, y, x + crop.width, y + crop.height)
    )
    pixels = np.asarray(resized)
    out[:] = pixels[:, ::-1] if crop.flip else pixels
