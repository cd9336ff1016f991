"""One picture by itself, seen as evaluation sees those of a dataset."""

from __future__ import annotations

import numpy as np

from wdsloader.augment import centre_crop
from wdsloader.decode import Uint8s, decode_crop

__all__ = ["evaluation_picture"]


def evaluation_picture(data: bytes, *, image_size: int) -> Uint8s:
    """Return the centre of an encoded picture, uint8 (image_size, image_size, 3), RGB: bit for bit a row of evaluation.

    Raises: shardkit.PictureError: no picture, cut, broken, or of too many pixels.
    """
    out = np.empty((image_size, image_size, 3), dtype=np.uint8)
    decode_crop(data, lambda width, height: centre_crop(width=width, height=height), out=out)
    return out
