"""Rows of a batch that a device shall decode: the bytes of a JPEG at its row of a slot, and what to cut out.

A picture of more bytes than a row has, and one that is no whole baseline JPEG, is decoded by the worker as ever, and
its pixels lie in the place of its bytes. Rows share no room: decoders differ by rounding, so which of them a picture
goes to must not depend on its neighbours, which are others with other workers and behind a resume. Numpy, no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardkit import baseline_size, jpeg_damage
from wdsloader.augment import Crop
from wdsloader.config import LoaderConfig

__all__ = ["EncodedRow", "size_if_left", "slot_shape"]

# 256 KiB: twice the mean picture of ImageNet.
_ROW_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRow:
    """What lies at one row of a slot, from its first byte on, and which sample it is.

    ``crop``: what to cut out of a JPEG of ``num_bytes`` and of ``width`` x ``height`` pixels; None: these are pixels,
    decoded already. ``position``: of the sample in the epoch. ``extension``, ``shard``, ``offset``: as errors name it.
    """

    num_bytes: int
    width: int
    height: int
    crop: Crop | None
    position: int
    extension: str
    shard: str
    offset: int


def slot_shape(config: LoaderConfig) -> tuple[int, ...]:
    """Return the shape of a slot: (rows, height, width, 3) of pixels; (rows, bytes) where a device decodes."""
    pixels = (config.image_size, config.image_size, 3)
    if config.decode == "cpu":
        return config.batch_size, *pixels
    return config.batch_size, max(_ROW_BYTES, config.image_size**2 * 3)


def size_if_left(data: bytes, *, room_bytes: int, max_pixels: int) -> tuple[int, int] | None:
    """Return (width, height) of a picture that a device shall decode; None: it is left to the worker.

    Args: room_bytes: of a row.
    """
    size = baseline_size(data)
    if size is None or size[0] * size[1] > max_pixels or len(data) > room_bytes or jpeg_damage(data) is not None:
        return None
    return size
