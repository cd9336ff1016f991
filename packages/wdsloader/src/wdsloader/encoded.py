"""Rows of a batch that a device shall decode: the bytes of JPEGs in a slot, one behind the other, and what to cut out.

The bytes of a worker's rows share the room of its rows: a picture that finds none left, and one that is no whole
baseline JPEG, is decoded by the worker as ever, and its pixels lie in the slot in the place of its bytes. So a slot is
as large as it is made, whatever the pictures, and holds a whole batch of either. Numpy, no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardkit import baseline_size, jpeg_damage
from wdsloader.augment import Crop
from wdsloader.config import LoaderConfig
from wdsloader.decode import Uint8s

__all__ = ["EncodedRow", "Room", "slot_shape"]

# 256 KiB: twice the mean picture of ImageNet, and the rows of a batch share what each does not use.
_ROW_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRow:
    """Where one row of a batch lies in its slot, from byte ``start`` on, and which sample it is.

    ``crop``: what to cut out of a JPEG of ``num_bytes`` and of ``width`` x ``height`` pixels; None: these are pixels,
    decoded already. ``position``: of the sample in the epoch. ``extension``, ``shard``, ``offset``: as errors name it.
    """

    start: int
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


class Room:
    """The room of some rows in a slot, filled from its start on.

    Args: memory: uint8 (r, bytes), those rows of the slot. first_byte: where they begin in it.
    """

    def __init__(self, memory: Uint8s, *, first_byte: int, config: LoaderConfig) -> None:
        self._memory, self._first_byte = memory.reshape(-1), first_byte
        self._side, self._max_pixels = config.image_size, config.max_pixels
        self._rows_left, self._used = len(memory), 0

    @property
    def start(self) -> int:
        """The byte of the slot at which the next row will lie."""
        return self._first_byte + self._used

    def size_if_fit(self, data: bytes) -> tuple[int, int] | None:
        """Return (width, height) of a picture that a device shall decode and whose bytes fit in; None: it is not."""
        size = baseline_size(data)
        # Every row to come must find room for its pixels.
        room = len(self._memory) - self._used - (self._rows_left - 1) * self._num_pixel_bytes
        if size is None or size[0] * size[1] > self._max_pixels or len(data) > room or jpeg_damage(data) is not None:
            return None
        return size

    def pixels(self) -> Uint8s:
        """Return the place of the next row's pixels, uint8 (size, size, 3); there is always one."""
        return self._memory[self._used : self._used + self._num_pixel_bytes].reshape(self._side, self._side, 3)

    def add(self, data: bytes | None) -> int:
        """Take the place of one row, for the bytes or (None) for pixels that lie there; return how many bytes it is."""
        num_bytes = self._num_pixel_bytes if data is None else len(data)
        if data is not None:
            self._memory[self._used : self._used + num_bytes] = np.frombuffer(data, np.uint8)
        self._used += num_bytes
        self._rows_left -= 1
        return num_bytes

    @property
    def _num_pixel_bytes(self) -> int:
        return self._side**2 * 3
