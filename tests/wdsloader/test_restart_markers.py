"""Restart markers put in by the kernel: every pixel as it was, crops that read less."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from shardkit import PictureError, decode_rgb
from tests.helpers.crops import (
    BOXES,
    FOR_PILLOW,
    crop_or_reason,
    kernel_crop,
    with_kernel,
)
from tests.helpers.jpegs import damaged_jpegs, photo, scan_start, segment, whole_jpegs
from tests.helpers.pictures import encode
from wdsloader import insert_restart_markers
from wdsloader.augment import Crop
from wdsloader.decode import HAS_KERNEL


@with_kernel
@pytest.mark.parametrize("units", [1, 4, 7])
@pytest.mark.parametrize("name", sorted(whole_jpegs().keys() - FOR_PILLOW))
def test_restart_markers_leave_every_pixel_as_it_was(name: str, units: int) -> None:
    data = whole_jpegs()[name]
    marked = insert_restart_markers(data, units=units)
    assert b"\xff\xdd\x00\x04" in marked
    assert np.array_equal(np.asarray(decode_rgb(marked)), np.asarray(decode_rgb(data)))
    for box in BOXES:
        assert np.array_equal(
            crop_or_reason(marked, box, decoder="kernel"), crop_or_reason(data, box, decoder="kernel")
        )


@with_kernel
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_a_crop_cut_at_restart_markers_is_the_crop_of_the_whole_to_the_bit(subsampling: str) -> None:
    random = np.random.default_rng(5)
    data = encode(photo(260, 180), "JPEG", quality=92, subsampling=subsampling)
    for units in (1, 2, 4, 5):
        marked = insert_restart_markers(data, units=units)
        for _ in range(40):
            width, height = (int(random.integers(1, side + 1)) for side in (260, 180))
            x, y = int(random.integers(0, 261 - width)), int(random.integers(0, 181 - height))
            crop = Crop(x, y, width, height, flip=bool(random.integers(2)))
            assert np.array_equal(kernel_crop(marked, crop), kernel_crop(data, crop)), crop


@with_kernel
def test_restart_markers_leave_the_metadata_as_it_was() -> None:
    extra = segment(0xE1, b"Exif\0\0" + bytes(9)) + segment(0xFE, b"a comment") + segment(0xE7, b"private")
    data = encode(photo(40, 30), "JPEG")
    marked = insert_restart_markers(data[:20] + extra + data[20:] + b"behind the end")
    assert marked[:20] == data[:20]
    assert marked[20 : 20 + len(extra)] == extra
    assert marked.endswith(b"\xff\xd9behind the end")


@with_kernel
def test_there_are_restart_markers_and_twice_inserted_is_once_inserted() -> None:
    data = encode(photo(40, 50), "JPEG", subsampling="4:2:0")
    marked = insert_restart_markers(data)
    assert [marked.count(bytes([0xFF, 0xD0 + i]), scan_start(marked)) for i in range(5)] == [1, 1, 0, 0, 0]
    assert insert_restart_markers(marked) == marked


@with_kernel
@pytest.mark.parametrize("name", sorted(FOR_PILLOW))
def test_what_the_kernel_cannot_crop_gets_no_restart_markers(name: str) -> None:
    with pytest.raises(PictureError, match="no restart markers"):
        insert_restart_markers(whole_jpegs()[name])


@with_kernel
def test_a_damaged_picture_gets_no_restart_markers() -> None:
    for name in ("no end marker", "a gap in the middle", "end marker in the middle", "12 bits"):
        with pytest.raises(PictureError):
            insert_restart_markers(damaged_jpegs()[name])


@pytest.mark.parametrize("units", [0, -1, 65536])
def test_restart_markers_after_no_units_are_a_value_error(units: int) -> None:
    if HAS_KERNEL:
        with pytest.raises(ValueError, match="units must be in"):
            insert_restart_markers(whole_jpegs()["optimized"], units=units)


def test_inserting_restart_markers_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(insert_restart_markers)) is insert_restart_markers
