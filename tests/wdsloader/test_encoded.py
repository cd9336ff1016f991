from __future__ import annotations

import numpy as np

from shardkit import MAX_PIXELS
from tests.helpers.jpegs import cut_jpegs, damaged_jpegs, photo, whole_jpegs
from tests.helpers.pictures import cut_jpeg, encode
from wdsloader.augment import Crop
from wdsloader.config import LoaderConfig
from wdsloader.decode import decode_crop
from wdsloader.encoded import size_if_left, slot_shape

CONFIG = LoaderConfig(batch_size=4, image_size=32, decode="gpu")


def size(data: bytes, **limits: int) -> tuple[int, int] | None:
    return size_if_left(data, **{"room_bytes": 1 << 18, "max_pixels": MAX_PIXELS, **limits})


def test_a_slot_is_as_large_as_its_pixels_or_a_quarter_of_a_mebibyte_a_row() -> None:
    assert slot_shape(LoaderConfig(batch_size=4, image_size=32)) == (4, 32, 32, 3)
    assert slot_shape(CONFIG) == (4, 1 << 18)
    assert slot_shape(LoaderConfig(batch_size=4, image_size=400, decode="gpu")) == (4, 480_000)


def test_a_picture_is_left_to_a_device_where_its_bytes_have_room() -> None:
    data = encode(photo(60, 40), "JPEG")
    assert size(data, room_bytes=len(data)) == (60, 40)
    assert size(data, room_bytes=len(data) - 1) is None


def test_what_is_no_whole_baseline_picture_of_few_enough_pixels_is_the_workers() -> None:
    assert size(cut_jpeg()) is None
    assert size(encode(photo(60, 40), "PNG")) is None
    assert size(encode(photo(60, 40), "JPEG", progressive=True)) is None
    assert size(encode(photo(60, 40), "JPEG"), max_pixels=60 * 40 - 1) is None


def test_no_picture_that_the_workers_would_refuse_is_left_to_a_device() -> None:
    pictures = [data for kind in (whole_jpegs(), damaged_jpegs(), cut_jpegs()) for data in kind.values()]
    left = [data for data in pictures if size(data) is not None]
    assert len(left) > 40
    for data in left:
        decode_crop(data, lambda width, height: Crop(0, 0, width, height), out=np.zeros((8, 8, 3), np.uint8))
