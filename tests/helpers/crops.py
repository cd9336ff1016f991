"""Crops by a chosen path of the decoder, for tests that hold the paths against each other; broken paths."""

from __future__ import annotations

import importlib.machinery
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shardkit import PictureError
from wdsloader import insert_restart_markers
from wdsloader.augment import Crop
from wdsloader.decode import HAS_KERNEL, HAS_SIMPLEJPEG, Decoder, Uint8s, decode_crop

__all__ = [
    "BOXES",
    "FOR_PILLOW",
    "by_each_fast_path",
    "crop_or_reason",
    "cropped",
    "insert_or_reason",
    "kernel_crop",
    "share_of",
    "with_broken_decoders",
    "with_kernel",
]

BOXES = [(0, 0, 1, 1), (0.1, 0.1, 0.5, 0.3), (0.2, 0.55, 0.5, 0.45), (0.9, 0, 0.1, 1)]
# What Pillow knows and the kernel leaves to it.
FOR_PILLOW = {
    *("3x1", "ycck", "arithmetic", "cmyk", "two pictures", "junk between markers", "fill bytes before a marker"),
    *("PNG", "WebP"),
}
with_kernel = pytest.mark.skipif(not HAS_KERNEL, reason="built without the kernel")
by_each_fast_path = pytest.mark.parametrize(
    "decoder",
    [
        pytest.param("kernel", marks=with_kernel),
        pytest.param("simplejpeg", marks=pytest.mark.skipif(not HAS_SIMPLEJPEG, reason="without simplejpeg")),
    ],
)


def share_of(box: tuple[float, float, float, float], size: tuple[int, int], *, whole: bool, flip: bool = False) -> Crop:
    """Return the box that is given in shares of the picture; whole: of whole pixels."""
    width, height = size
    x, y, w, h = box[0] * width, box[1] * height, box[2] * width, box[3] * height
    if whole:
        x, y = float(int(x)), float(int(y))
        w, h = float(max(1, min(width - x, int(w)))), float(max(1, min(height - y, int(h))))
    return Crop(x, y, min(w, width - x), min(h, height - y), flip)


def crop_or_reason(data: bytes, box: tuple[float, float, float, float], *, decoder: Decoder) -> Uint8s | str:
    """Return the pixels, or the words it is refused with."""
    out = np.zeros((23, 19, 3), np.uint8)
    try:
        decode_crop(data, lambda w, h: share_of(box, (w, h), whole=False, flip=True), out=out, decoder=decoder)
    except PictureError as error:
        return re.sub(r"0x[0-9a-f]+", "0x", str(error))
    return out


def kernel_crop(
    data: bytes, crop: Crop, *, size: tuple[int, int] = (23, 19), dct_scaling: bool = False
) -> Uint8s | str:
    """Return what the kernel alone makes of it: pixels, or why it leaves the picture to Pillow."""
    from wdsloader import _crop

    out = np.zeros((*size, 3), np.uint8)
    reason = _crop.crop(data, (crop.x, crop.y, crop.width, crop.height), out, crop.flip, dct_scaling)
    return out if reason is None else reason


def cropped(data: bytes, crop: Crop, *, size: tuple[int, int] = (23, 19), decoder: Decoder) -> Uint8s:
    out = np.zeros((*size, 3), np.uint8)
    decode_crop(data, lambda w, h: crop, out=out, decoder=decoder)
    return out


def insert_or_reason(data: bytes) -> bytes | str:
    try:
        return insert_restart_markers(data)
    except PictureError as error:
        return str(error)


def with_broken_decoders(folder: Path, code: str) -> list[str]:
    """Return the lines that code prints in a process where the kernel and simplejpeg are there and do not load."""
    kernel = folder / f"_crop{importlib.machinery.EXTENSION_SUFFIXES[-1]}"
    kernel.touch()
    simplejpeg = folder / "simplejpeg.py"
    simplejpeg.write_text("raise ValueError('numpy.dtype size changed')", encoding="utf-8")
    finder = f"""
import importlib.util, sys
files = {{"wdsloader._crop": {str(kernel)!r}, "simplejpeg": {str(simplejpeg)!r}}}
class Broken:
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, files[name]) if name in files else None
sys.meta_path.insert(0, Broken)
"""
    ended = subprocess.run([sys.executable, "-c", finder + code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()
