"""JPEGs of every kind that a decoder meets, whole and damaged, made by code.

Seven kinds that Pillow cannot write are stored in tests/golden/jpegs.json: 45 x 37 pixels, from libjpeg-turbo 2.1.5.
"""

from __future__ import annotations

import base64
import functools
import json
import struct
from pathlib import Path

import numpy as np
from PIL import Image

from tests.helpers.pictures import encode

__all__ = ["cut_jpegs", "damaged_jpegs", "photo", "scan_start", "segment", "whole_jpegs"]

_STORED = Path(__file__).parents[1] / "golden" / "jpegs.json"


def photo(width: int, height: int, *, seed: int = 0) -> Image.Image:
    """Return a picture with colour edges, soft areas and noise, so that an error of a pixel shows."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (height // 9 + 2, width // 9 + 2, 3), dtype=np.uint8)
    soft = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    noisy = soft + random.integers(-25, 26, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def segment(marker: int, body: bytes) -> bytes:
    """Return a marker segment."""
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


@functools.cache
def whole_jpegs() -> dict[str, bytes]:
    """Return pictures that decode, by what is special about them."""
    plain = encode(photo(131, 97), "JPEG", subsampling="4:2:0")
    odd = {
        f"{mode} {subsampling} {width}x{height}": encode(
            photo(width, height).convert(mode), "JPEG", subsampling=subsampling, quality=85
        )
        for mode in ("L", "RGB")
        for subsampling in ("4:4:4", "4:2:2", "4:2:0")
        for width, height in ((1, 1), (2, 3), (17, 33), (131, 97), (150, 40), (40, 150))
    }
    return {
        **odd,
        **{name: base64.b64decode(text) for name, text in json.loads(_STORED.read_text(encoding="utf-8")).items()},
        "progressive": encode(photo(131, 97), "JPEG", progressive=True),
        "progressive gray": encode(photo(131, 97).convert("L"), "JPEG", progressive=True),
        "optimized": encode(photo(131, 97), "JPEG", optimize=True),
        "restart after each row": encode(photo(131, 97), "JPEG", restart_marker_rows=1),
        "restart after each unit": encode(photo(131, 97), "JPEG", restart_marker_blocks=1),
        "restart, not at ends of rows": encode(photo(131, 97), "JPEG", restart_marker_blocks=5),
        "restart, thrice a row": encode(photo(144, 97), "JPEG", subsampling="4:2:0", restart_marker_blocks=3),
        "restart, progressive": encode(photo(131, 97), "JPEG", progressive=True, restart_marker_rows=1),
        "cmyk": encode(photo(131, 97).convert("CMYK"), "JPEG"),
        "turned": encode(photo(131, 97), "JPEG", exif=_turned()),
        "with ICC profile": encode(photo(131, 97), "JPEG", icc_profile=b"profile" * 99),
        "two pictures": encode(photo(131, 97), "MPO", save_all=True, append_images=[photo(131, 97, seed=1)]),
        "long comment": encode(photo(131, 97), "JPEG", comment=b"\xff\xd8\xff\xd9" * 9000),
        "junk after the end": plain + b"junk \xff\xd8\xff\xda",
        "a picture after the end": plain + plain,
        "junk between markers": plain[:2] + segment(0xFE, b"hello") + b"\0\0junk" + plain[2:],
        "fill bytes before a marker": plain[:2] + b"\xff\xff" + plain[2:],
        "unknown segment": plain[:2] + segment(0xEB, bytes(40)) + plain[2:],
        "PNG": encode(photo(131, 97), "PNG"),
        "WebP": encode(photo(131, 97), "WEBP"),
    }


@functools.cache
def damaged_jpegs() -> dict[str, bytes]:
    """Return pictures that something is wrong with, by what; Pillow takes some of them."""
    plain = encode(photo(131, 97), "JPEG", subsampling="4:2:0")
    sof, scan = plain.index(b"\xff\xc0"), scan_start(plain)
    middle = scan + (len(plain) - scan) // 2
    marked = encode(photo(131, 97), "JPEG", restart_marker_rows=1)
    second = marked.index(b"\xff\xd1")
    return {
        "empty": b"",
        "start marker alone": b"\xff\xd8",
        "text": b"not a picture at all",
        "no end marker": plain[:-2],
        "half an end marker": plain[:-1],
        "end marker in the middle": plain[:middle] + b"\xff\xd9" + plain[middle:],
        "start marker in the middle": plain[:middle] + b"\xff\xd8" + plain[middle:],
        "other segment in the middle": plain[:middle] + segment(0xFE, b"oh") + plain[middle:],
        "a gap in the middle": plain[: middle - 300] + plain[middle:],
        "zeros in the middle": plain[: middle - 40] + bytes(80) + plain[middle + 40 :],
        "fill bytes in the middle": plain[: middle - 40] + b"\xff" * 20 + plain[middle - 20 :],
        "fill bytes between restart markers": marked[: second - 40] + b"\xff" * 20 + marked[second - 20 :],
        "other segment at the end": plain[:-2] + segment(0xFE, b"oh") + b"\xff\xd9",
        "12 bits": plain[: sof + 4] + b"\x0c" + plain[sof + 5 :],
        "no rows": plain[: sof + 5] + b"\0\0" + plain[sof + 7 :],
        "more rows than there are": plain[: sof + 5] + b"\1\xff" + plain[sof + 7 :],
        "fewer rows than there are": plain[: sof + 5] + b"\0\x20" + plain[sof + 7 :],
        "two frame headers": plain[:sof] + plain[sof : sof + 19] + plain[sof:],
        "two components": plain[: sof + 9] + b"\2" + plain[sof + 10 :],
        "said to be arithmetic": plain[: sof + 1] + b"\xc9" + plain[sof + 2 :],
        "said to be progressive": plain[: sof + 1] + b"\xc2" + plain[sof + 2 :],
        "cut Adobe segment": plain[:2] + segment(0xEE, b"Adobe") + plain[2:],
        "cut JFIF segment": plain[:2] + segment(0xE0, b"JFIF") + plain[20:],
        "cut ICC segment": plain[:2] + segment(0xE2, b"ICC_PROFILE\0") + plain[2:],
        "cut Photoshop segment": plain[:2] + segment(0xED, b"Photoshop 3.0\x008BIM\1\2") + plain[2:],
        "restart markers out of order": marked[: second + 1] + b"\xd5" + marked[second + 2 :],
        "a restart marker missing": marked[:second] + marked[second + 2 :],
        "a restart marker too many": marked[:second] + b"\xff\xd1" + marked[second:],
    }


def cut_jpegs() -> dict[str, bytes]:
    """Return a sequential, a progressive and a restart-marked picture, each cut at many places."""
    pictures = {
        "sequential": encode(photo(61, 47), "JPEG"),
        "progressive": encode(photo(61, 47), "JPEG", progressive=True),
        "marked": encode(photo(61, 47), "JPEG", restart_marker_rows=1),
    }
    return {
        f"{name} at {end}": data[:end]
        for name, data in pictures.items()
        for end in range(1, len(data), len(data) // 40)
    }


def scan_start(jpeg: bytes) -> int:
    """Return the offset of the first packed pixels."""
    at = jpeg.index(b"\xff\xda")
    return at + 2 + int(struct.unpack_from(">H", jpeg, at + 2)[0])


def _turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif.tobytes()
