"""Bytes of a picture and a crop box -> the pixels of one sample, in its slot of the batch.

Three paths that take and refuse the same pictures and give the same pixels. The kernel (``_crop``, C and libjpeg-turbo)
unpacks the rows and columns of the box alone; it takes ordinary JPEGs. Where it is not built, simplejpeg unpacks those,
whole. Everything else, by content, goes to Pillow, and so does what one of the two finds anything wrong with: decode
whole, in the right colours, or refuse. The box is asked for when the header has told the size, and before any pixel is
needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
import PIL
from PIL import Image

from shardkit import MAX_PIXELS, baseline_size, load, open_picture, to_rgb
from wdsloader.augment import Crop

_kernel_error: Exception | None = None
_simplejpeg_error: Exception | None = None
try:
    import wdsloader._crop as _crop  # noqa: PLR0402  # tells one that is not there from one that does not load
except ImportError as error:  # built without a C compiler or libjpeg-turbo's headers; or for a libjpeg that is gone
    HAS_KERNEL, _kernel_error = False, error
else:
    HAS_KERNEL = True
try:
    import simplejpeg
except Exception as error:  # noqa: BLE001  # no wheels for some systems; one for another numpy raises any error
    HAS_SIMPLEJPEG, _simplejpeg_error = False, error
else:
    HAS_SIMPLEJPEG = True

__all__ = [
    "HAS_KERNEL",
    "HAS_SIMPLEJPEG",
    "ChooseCrop",
    "Decoder",
    "Uint8s",
    "decode_crop",
    "decode_faults",
    "decode_path",
]

Uint8s = npt.NDArray[np.uint8]
# (width, height) of the picture -> the box.
ChooseCrop = Callable[[int, int], Crop]
Decoder = Literal["kernel", "simplejpeg", "pillow"]


def decode_crop(
    data: bytes,
    choose: ChooseCrop,
    *,
    out: Uint8s,
    max_pixels: int = MAX_PIXELS,
    dct_scaling: bool = False,
    decoder: Decoder = "kernel",
) -> None:
    """Write the chosen crop of the picture into ``out``: uint8 (height, width, 3), RGB.

    Only pixels that the box touches enter the result. For a box of whole pixels it is torchvision's ``resized_crop``
    of a PIL picture, bilinear and antialiased, to within 1 (see the order of passes below). All paths give the same
    bits, as long as the copies of libjpeg-turbo behind them unpack alike, which released versions do.
    Args: dct_scaling: let the kernel unpack at 1/2, 1/4 or 1/8 where the box is at least as many times as large as
        ``out``: faster there, within 5.0. decoder: the path that is tried first; where it is not there, the next.
    Raises: PictureError: no picture, cut, broken, or of too many pixels.
    """
    crop = None
    if decoder == "kernel" and HAS_KERNEL and out.flags.c_contiguous:
        size = _crop.read_size(data)
        if size is not None and size[0] * size[1] <= max_pixels:
            crop = choose(*size)
            box = (crop.x, crop.y, crop.width, crop.height)
            if _crop.crop(data, box, out, crop.flip, dct_scaling) is None:
                return
    elif decoder != "pillow" and HAS_SIMPLEJPEG:
        size = baseline_size(data)
        if size is not None and size[0] * size[1] <= max_pixels:
            crop = choose(*size)
            left, top, right, bottom = _outline(crop)
            pixels = _unpacked(data) if left >= 0 and top >= 0 and right <= size[0] and bottom <= size[1] else None
            if pixels is not None:
                _resize(Image.fromarray(pixels[top:bottom, left:right]), crop, out=out)
                return
    opened = open_picture(data, max_pixels=max_pixels)
    crop = crop or choose(opened.width, opened.height)
    _resize(to_rgb(load(opened)).crop(_outline(crop)), crop, out=out)


def decode_path() -> str:
    """Return which path ordinary JPEGs take here, with versions: the kernel, simplejpeg or Pillow."""
    if HAS_KERNEL:
        return f"kernel {_crop.VERSION} ({_crop.LIBJPEG})"
    if HAS_SIMPLEJPEG:
        return f"simplejpeg {simplejpeg.__version__}, pillow {PIL.__version__}"
    return f"pillow {PIL.__version__}"


def decode_faults() -> dict[str, str]:
    """Return what is installed to decode with and does not load, "kernel" or "simplejpeg", and why; {}: nothing."""
    tried = (("kernel", "wdsloader._crop", _kernel_error), ("simplejpeg", "simplejpeg", _simplejpeg_error))
    return {
        name: f"{type(error).__name__}: {error}"
        for name, module, error in tried
        if error is not None and not (isinstance(error, ModuleNotFoundError) and error.name == module)
    }


def _unpacked(data: bytes) -> Uint8s | None:
    """Return a JPEG's pixels, RGB (height, width, 3), or None: libjpeg-turbo complains of it, be it only a warning."""
    try:
        pixels: Uint8s = simplejpeg.decode_jpeg(data, "RGB", strict=True)
    except ValueError:
        return None
    return pixels


def _outline(crop: Crop) -> tuple[int, int, int, int]:
    """Return the whole pixels that a box touches: left, top, right, bottom."""
    return math.floor(crop.x), math.floor(crop.y), math.ceil(crop.x + crop.width), math.ceil(crop.y + crop.height)


def _resize(picture: Image.Image, crop: Crop, *, out: Uint8s) -> None:
    """Write a box into ``out``, resized. Args: picture: what its outline holds, RGB."""
    x, y = crop.x - math.floor(crop.x), crop.y - math.floor(crop.y)
    # Columns first, then rows, as the kernel does and Pillow up to 12; Pillow 13 picks the order by the sizes, which
    # rounds some values the other way. So what is learned depends neither on the kernel nor on Pillow's version.
    wide = picture.resize(
        (out.shape[1], picture.height), Image.Resampling.BILINEAR, box=(x, 0, x + crop.width, picture.height)
    )
    resized = wide.resize(
        (out.shape[1], out.shape[0]), Image.Resampling.BILINEAR, box=(0, y, out.shape[1], y + crop.height)
    )
    if crop.flip:  # by numpy, from right to left, it takes five times as long
        resized = resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    out[:] = np.asarray(resized)
