"""Open and decode one picture from its bytes: whole, in its right colours, or not at all.

Owns what a picture is to every other module: format by content, never by name; a limit on pixels that is checked before
anything is unpacked; truncated data refused, never filled with gray. EXIF rotation is ignored, as torchvision's
ImageFolder does, so that training and serving agree; :func:`picture_facts` counts such pictures.
"""

from __future__ import annotations

import io
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import Image, UnidentifiedImageError

from shardkit.errors import PictureError
from shardkit.jpeg import jpeg_damage

__all__ = [
    "MAX_PICTURE_BYTES",
    "MAX_PIXELS",
    "PictureFacts",
    "decode_rgb",
    "is_other_format",
    "load",
    "open_picture",
    "picture_facts",
    "to_rgb",
]

# Pillow's own warning threshold: a 24-bit picture of a quarter of a GiB. The largest of ImageNet has 61 megapixels.
MAX_PIXELS = 89_478_485
# 256 MiB: as many as the pixels of the largest picture allowed take up unpacked; a header may promise anything.
MAX_PICTURE_BYTES = 1 << 28
_EXIF_ORIENTATION = 0x0112
# Where a JPEG says how it is turned, as Pillow names it: most say nothing.
_ORIENTED = frozenset({"exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"})
# What the names in keys.PICTURE_EXTENSIONS stand for, and no other: Pillow hands EPS to Ghostscript, which is a program
# that the picture's author would run here.
_FORMATS = ("JPEG", "PNG", "WEBP", "PPM", "BMP", "GIF", "TIFF")
_guard_lock = threading.Lock()


_NAMED_FORMATS = {"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "webp": "WEBP", "gif": "GIF", "bmp": "BMP"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureFacts:
    """What a picture is: format and colour mode as Pillow names them, width and height in pixels.

    ``frames``: how many, 2 standing for two and more. ``turned``, ``bad_exif``: by an EXIF orientation; EXIF that is
    damaged. ``damage``: what is wrong inside, although it decodes (see ``jpeg``); looked for where it was decoded.
    """

    format: str
    mode: str
    width: int
    height: int
    frames: int
    turned: bool
    bad_exif: bool
    damage: str | None = None


def is_other_format(picture_format: str | None, extension: str) -> bool:
    """Tell whether a picture's format, as Pillow names it, is another than its extension says."""
    named = _NAMED_FORMATS.get(extension)
    # An MPO is a JPEG with more pictures behind it, as some cameras write.
    return named is not None and picture_format != named and not (named == "JPEG" and picture_format == "MPO")


def open_picture(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Return the picture, its header read and nothing unpacked yet.

    Raises: PictureError: empty data (WDS043), no picture (WDS040), more than ``max_pixels`` pixels (WDS042).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _opened(data, max_pixels=max_pixels)


def decode_rgb(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode the whole picture to RGB: palette, gray, 16-bit, CMYK and transparent ones in their right colours.

    Raises: PictureError: as :func:`open_picture`, and data that is cut or broken.
    """
    return to_rgb(load(open_picture(data, max_pixels=max_pixels)))


def picture_facts(data: bytes, *, max_pixels: int = MAX_PIXELS, decode: bool = True) -> PictureFacts:
    """Return what the picture is; with ``decode``, only if all of it unpacks.

    Raises: PictureError: as :func:`decode_rgb`.
    """
    # Once for all steps: each of these blocks takes as long as a step, and a picture has four.
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        picture = _opened(data, max_pixels=max_pixels)
        # Pillow warns on opening of damaged EXIF.
        bad_exif = _has_user_warning(complaints)
        orientation, is_damaged = _orientation(picture, complaints)
        facts = PictureFacts(
            format=picture.format or "?",
            mode=picture.mode,
            width=picture.width,
            height=picture.height,
            frames=_frames(picture),
            turned=orientation in range(2, 9),
            bad_exif=bad_exif or is_damaged,
            damage=jpeg_damage(data) if decode and picture.format in ("JPEG", "MPO") else None,
        )
        if decode:
            to_rgb(_unpacked(picture))
    return facts


def load(picture: Image.Image) -> Image.Image:
    """Unpack an opened picture in place and return it. Raises: PictureError: cut or broken data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _unpacked(picture)


def _unpacked(picture: Image.Image) -> Image.Image:
    try:
        picture.load()
    except Exception as error:  # Pillow's decoders raise OSError, ValueError, SyntaxError, struct.error and more
        raise PictureError(f"the picture does not decode: {error}") from error
    return picture


def to_rgb(picture: Image.Image) -> Image.Image:
    """Return a decoded picture as RGB. Transparent pixels keep their colour, as PIL's ``convert`` leaves it.

    Raises: PictureError: a colour space that cannot be converted.
    """
    if picture.mode == "RGB":
        return picture
    if picture.mode.startswith("I"):
        # 16-bit gray: PIL's own conversion clips at 255, which turns most pictures white.
        values = np.asarray(picture).astype(np.int64)
        return Image.fromarray((values.clip(0, 65535) >> 8).astype(np.uint8)).convert("RGB")
    try:
        if picture.mode == "P" and "transparency" in picture.info:
            picture = picture.convert("RGBA")
        return picture.convert("RGB")
    except ValueError as error:
        raise PictureError(f"no way from {picture.mode} to RGB: {error}") from error


def _opened(data: bytes, *, max_pixels: int) -> Image.Image:
    """Return the picture, its header read. Pillow may warn, of damaged EXIF and of many pixels."""
    if not data:
        raise PictureError("the picture is empty (0 bytes)", "WDS043")
    try:
        with _guard(max_pixels):
            picture = Image.open(io.BytesIO(data), formats=_FORMATS)
    except Image.DecompressionBombError as error:
        # Pillow refuses above twice its own limit; its words name neither our limit nor the sides.
        found = re.search(r"(\d+) pixels", str(error))
        raise PictureError(f"{found[1] if found else '?'} pixels, {_more_than(max_pixels)}", "WDS042") from error
    except UnidentifiedImageError as error:
        raise PictureError(f"not a picture ({', '.join(_FORMATS)}): it begins with {data[:16]!r}") from error
    except Exception as error:  # Pillow's format plugins raise many kinds on damaged headers
        raise PictureError(f"damaged picture header: {error}") from error
    pixels = picture.width * picture.height
    if pixels > max_pixels:
        raise PictureError(f"{picture.width}x{picture.height} = {pixels} pixels, {_more_than(max_pixels)}", "WDS042")
    return picture


def _has_user_warning(complaints: list[warnings.WarningMessage]) -> bool:
    return any(issubclass(complaint.category, UserWarning) for complaint in complaints)


def _more_than(max_pixels: int) -> str:
    return f"more than the limit of {max_pixels}"


@contextmanager
def _guard(max_pixels: int) -> Iterator[None]:
    """Raise Pillow's own limit to ours for the opening of one picture, where ours is larger; never lower it."""
    with _guard_lock:
        usual = Image.MAX_IMAGE_PIXELS
        if usual is not None:
            Image.MAX_IMAGE_PIXELS = max(usual, max_pixels)
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = usual


def _frames(picture: Image.Image) -> int:
    """Return 1, or 2 where there are more: counting the frames of a GIF takes as long as its author wants."""
    try:
        return 2 if getattr(picture, "is_animated", False) else 1
    except Exception as error:  # counting frames reads on: all that decoders raise can come
        raise PictureError(f"damaged frames: {error}") from error


def _orientation(picture: Image.Image, complaints: list[warnings.WarningMessage]) -> tuple[int | None, bool]:
    """Return (EXIF orientation or None, whether the EXIF data is damaged), as the warnings have it that it causes."""
    if picture.format == "JPEG" and _ORIENTED.isdisjoint(picture.info):
        return None, False
    num_before = len(complaints)
    try:
        return picture.getexif().get(_EXIF_ORIENTATION), len(complaints) > num_before
    except Exception:  # noqa: BLE001  # a damaged EXIF block never makes a picture unusable
        return None, True
