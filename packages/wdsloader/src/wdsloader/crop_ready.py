"""Put restart markers into JPEGs, so that the crop kernel reads only the part of the bytes that a crop needs.

The pixels stay the same, and so does the metadata. A function for packing, applied to each picture once; what reads
such pictures needs to know nothing.
"""

from __future__ import annotations

from shardkit import PictureError
from wdsloader.decode import HAS_KERNEL, decode_faults
from wdsloader.errors import ConfigError

if HAS_KERNEL:
    from wdsloader import _crop

__all__ = ["insert_restart_markers", "restart_marker_version"]


def restart_marker_version() -> str:
    """Return what inserts the markers here, with the versions that decide the bytes.

    Raises: ConfigError: this build is without the kernel, or it does not load.
    """
    if not HAS_KERNEL:
        fault = decode_faults().get("kernel")
        lacking = "this build is without" if fault is None else f"does not load ({fault})"
        raise ConfigError(
            f"restart markers need wdsloader's crop kernel, which {lacking}. "
            "Reinstall wdsloader with a C compiler and the headers of libjpeg-turbo"
        )
    return f"kernel {_crop.VERSION} ({_crop.LIBJPEG})"


def insert_restart_markers(jpeg: bytes, *, units: int = 4) -> bytes:
    """Return the JPEG with a restart marker after every so many of its units (8 or 16 pixels a side each).

    Lossless: every decoder gets the same pixels as before. EXIF, ICC profile, comments and what lies behind the
    picture's end stay as they are; a progressive picture becomes a sequential one; the Huffman tables become the best
    ones. Pickles, so processes that pack can be given it.
    Raises: PictureError: not a JPEG that the kernel crops (no JPEG, CMYK, cut, damaged ...). ConfigError: no kernel in
    this build. ValueError: ``units`` outside of 1..65535.
    """
    restart_marker_version()
    result = _crop.insert_restarts(jpeg, units)
    if isinstance(result, str):
        raise PictureError(f"no restart markers can be put into this picture: {result}")
    return result
