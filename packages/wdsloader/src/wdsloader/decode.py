"""Bytes of a picture and a crop box -> the pixels of one sample, in its slot of the batch.

Two paths that take and refuse the same pictures. The kernel (``_crop``, C and libjpeg-turbo) unpacks the rows and
columns of the box alone; it takes ordinary JPEGs. Everything else, by content, goes to Pillow: decode whole, in the
right colours, crop, resize antialiased; so does everything where the kernel is not built. The box is asked for when
the header has told the size, and before any pixel is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import PIL
from PIL import Image

from shardkit import MAX_PIXELS, load, open_picture, to_rgb
from wdsloader.augment import Crop

try:
    from wdsloader import _crop
except ImportError:  # built without a C compiler or libjpeg-turbo's headers
    HAS_KERNEL = False
else:
    HAS_KERNEL = True

__all__ = ["HAS_KERNEL", "ChooseCrop", "Uint8s", "decode_crop", "decode_path"]

Uint8s = npt.NDArray[np.uint8]
# (width, height) of the picture -> the box.
ChooseCrop = Callable[[int, int], Crop]


def decode_crop(
    data: bytes,
    choose: ChooseCrop,
    *,
    out: Uint8s,
    max_pixels: int = MAX_PIXELS,
    dct_scaling: bool = False,
    use_kernel: bool = True,
) -> None:
    """Write the chosen crop of the picture into ``out``: uint8 (height, width, 3), RGB.

    Only pixels that the box touches enter the result. For a box of whole pixels it is torchvision's ``resized_crop``
    of a PIL picture, bilinear and antialiased, to within 1 (see the order of passes below). Both paths give the same
    bits, as long as the two libjpeg-turbo behind them unpack alike, which released versions do.
    Args: dct_scaling: let the kernel unpack at 1/2, 1/4 or 1/8 where the box is at least as many times as large as
        ``out``: faster there, within 5.0. use_kernel: False leaves all to Pillow.
    Raises: PictureError: no picture, cut, broken, or of too many pixels.
    """
    crop = None
    if use_kernel and HAS_KERNEL and out.flags.c_contiguous:
        size = _crop.read_size(data)
        if size is not None and size[0] * size[1] <= max_pixels:
            crop = choose(*size)
            box = (crop.x, crop.y, crop.width, crop.height)
            if _crop.crop(data, box, out, crop.flip, dct_scaling) is None:
                return
    opened = open_picture(data, max_pixels=max_pixels)
    _crop_with_pillow(opened, crop or choose(opened.width, opened.height), out=out)


def decode_path() -> str:
    """Return which path ordinary JPEGs take here, with versions: the kernel, or Pillow."""
    if HAS_KERNEL:
        return f"kernel {_crop.VERSION} ({_crop.LIBJPEG})"
    return f"pillow {PIL.__version__}"


def _crop_with_pillow(opened: Image.Image, crop: Crop, *, out: Uint8s) -> None:
    picture = to_rgb(load(opened))
    left, top = math.floor(crop.x), math.floor(crop.y)
    right, bottom = math.ceil(crop.x + crop.width), math.ceil(crop.y + crop.height)
    x, y = crop.x - left, crop.y - top
    # Columns first, then rows, as the kernel does and Pillow up to 12; Pillow 13 picks the order by the sizes, which
    # rounds some values the other way. So what is learned depends neither on the kernel nor on Pillow's version.
    wide = picture.crop((left, top, right, bottom)).resize(
        (out.shape[1], bottom - top), Image.Resampling.BILINEAR, box=(x, 0, x + crop.width, bottom - top)
    )
    resized = wide.resize(
        (out.shape[1], out.shape[0]), Image.Resampling.BILINEAR, box=(0, y, out.shape[1], y + crop.height)
    )
    pixels = np.asarray(resized)
    out[:] = pixels[:, ::-1] if crop.flip else pixels
