"""Pictures that loaders stumble over, made by code: damaged EXIF, CMYK, 16 bits, a bomb, a cut JPEG and others."""

from __future__ import annotations

import functools
import io
import struct
import zlib

import numpy as np
from PIL import Image

from shardkit import seeded_words

__all__ = ["bomb_png", "cmyk_jpeg", "cut_jpeg", "encode", "jpeg_with_bad_exif", "noisy_jpeg", "turned_jpeg"]

_EXIF_START = b"Exif\0\0MM\0*\0\0\0\x08" + struct.pack(">H", 1)
_BAD_EXIF = {
    # An entry of 12 bytes of which 10 are there; an entry whose value lies far outside.
    "short": _EXIF_START + struct.pack(">HHIH", 0x0112, 3, 1, 6),
    "points outside": _EXIF_START + struct.pack(">HHII", 0x011A, 5, 1, 0x00FFFFF0) + bytes(4),
}


def encode(picture: Image.Image, format: str, **options: object) -> bytes:
    """Return the picture in a format that Pillow knows by this name."""
    buffer = io.BytesIO()
    picture.save(buffer, format, **options)
    return buffer.getvalue()


def cmyk_jpeg() -> bytes:
    """Return a red CMYK JPEG of 32x24."""
    return encode(Image.new("CMYK", (32, 24), (0, 255, 255, 0)), "JPEG", quality=95)


def turned_jpeg(orientation: int) -> bytes:
    """Return a JPEG stored as 32x24 with an EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(Image.new("RGB", (32, 24), (90, 20, 30)), "JPEG", exif=exif.tobytes())


def jpeg_with_bad_exif(kind: str) -> bytes:
    """Return a good JPEG of 32x24 with a damaged EXIF block: "short" or "points outside"."""
    return encode(Image.new("RGB", (32, 24), (90, 20, 30)), "JPEG", exif=_BAD_EXIF[kind])


def noisy_jpeg(*, size: tuple[int, int] = (160, 120)) -> bytes:
    """Return a JPEG of noise, of many bytes for its size."""
    width, height = size
    words = seeded_words(width * height * 3, key=(0, "noise")) & np.uint64(255)
    return encode(Image.fromarray(words.astype(np.uint8).reshape(height, width, 3)), "JPEG", quality=90)


def cut_jpeg() -> bytes:
    """Return the first 60 % of a JPEG's bytes."""
    data = noisy_jpeg()
    return data[: len(data) * 6 // 10]


@functools.cache
def bomb_png(side: int) -> bytes:
    """Return a whole one-bit PNG of side x side black pixels, of few bytes."""
    packer = zlib.compressobj(9)
    rows = bytes(1 + side // 8) * 100
    packed = b"".join(packer.compress(rows) for _ in range(side // 100)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
