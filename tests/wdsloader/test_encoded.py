from __future__ import annotations

import numpy as np

from tests.helpers.jpegs import cut_jpegs, damaged_jpegs, photo, whole_jpegs
from tests.helpers.pictures import cut_jpeg, encode
from wdsloader.augment import Crop
from wdsloader.config import LoaderConfig
from wdsloader.decode import decode_crop
from wdsloader.encoded import Room, slot_shape

CONFIG = LoaderConfig(batch_size=4, image_size=32, decode="gpu")


def room_of(num_rows: int, *, row_bytes: int, config: LoaderConfig = CONFIG) -> Room:
    return Room(np.zeros((num_rows, row_bytes), np.uint8), first_byte=700, config=config)


def test_a_slot_is_as_large_as_its_pixels_or_a_quarter_of_a_mebibyte_a_row() -> None:
    assert slot_shape(LoaderConfig(batch_size=4, image_size=32)) == (4, 32, 32, 3)
    assert slot_shape(CONFIG) == (4, 1 << 18)
    assert slot_shape(LoaderConfig(batch_size=4, image_size=400, decode="gpu")) == (4, 480_000)


def test_bytes_lie_one_behind_the_other() -> None:
    memory = np.zeros((2, 20_000), np.uint8)
    room, data = Room(memory, first_byte=40_000, config=CONFIG), encode(photo(60, 40), "JPEG")
    assert (room.start, room.size_if_fit(data), room.add(data)) == (40_000, (60, 40), len(data))
    assert room.start == 40_000 + len(data)
    assert memory.reshape(-1)[: len(data)].tobytes() == data


def test_a_row_may_have_what_others_leave_but_for_their_pixels() -> None:
    data = encode(photo(120, 80), "JPEG")
    pixels = 32 * 32 * 3
    fitting = room_of(4, row_bytes=(len(data) + 3 * pixels) // 4 + 1)
    assert fitting.size_if_fit(data) == (120, 80)
    assert room_of(4, row_bytes=(len(data) + 3 * pixels) // 4 - 1).size_if_fit(data) is None
    fitting.add(data)
    for _ in range(3):
        assert fitting.size_if_fit(data) is None
        fitting.pixels()[:] = 7
        assert fitting.add(None) == pixels


def test_what_is_no_whole_baseline_picture_of_few_enough_pixels_is_the_workers() -> None:
    room = room_of(1, row_bytes=1 << 18)
    assert room.size_if_fit(cut_jpeg()) is None
    assert room.size_if_fit(encode(photo(60, 40), "PNG")) is None
    assert room.size_if_fit(encode(photo(60, 40), "JPEG", progressive=True)) is None
    few = LoaderConfig(batch_size=4, image_size=32, decode="gpu", max_pixels=60 * 40 - 1)
    assert room_of(1, row_bytes=1 << 18, config=few).size_if_fit(encode(photo(60, 40), "JPEG")) is None


def test_no_picture_that_the_workers_would_refuse_is_left_to_a_device() -> None:
    pictures = [data for kind in (whole_jpegs(), damaged_jpegs(), cut_jpegs()) for data in kind.values()]
    left = [data for data in pictures if room_of(1, row_bytes=1 << 18).size_if_fit(data) is not None]
    assert len(left) > 40
    for data in left:
        decode_crop(data, lambda width, height: Crop(0, 0, width, height), out=np.zeros((8, 8, 3), np.uint8))
