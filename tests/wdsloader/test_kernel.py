"""The crop kernel against Pillow: the same pictures taken and refused, the same pixels, and no crash on any bytes."""

from __future__ import annotations

import hashlib
import importlib.util
import pickle
import re
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import wdsloader
from shardkit import PictureError, decode_rgb
from tests.helpers.jpegs import cut_jpegs, damaged_jpegs, photo, scan_start, segment, whole_jpegs
from tests.helpers.pictures import encode
from wdsloader import insert_restart_markers
from wdsloader.augment import Crop
from wdsloader.decode import HAS_KERNEL, Uint8s, decode_crop

BOXES = [(0, 0, 1, 1), (0.1, 0.1, 0.5, 0.3), (0.2, 0.55, 0.5, 0.45), (0.9, 0, 0.1, 1)]
# What Pillow knows and the kernel leaves to it.
FOR_PILLOW = {
    *("3x1", "ycck", "arithmetic", "cmyk", "two pictures", "junk between markers", "fill bytes before a marker"),
    *("PNG", "WebP"),
}
with_kernel = pytest.mark.skipif(not HAS_KERNEL, reason="built without the kernel")


def share_of(box: tuple[float, float, float, float], size: tuple[int, int], *, whole: bool, flip: bool = False) -> Crop:
    """Return the box that is given in shares of the picture; whole: of whole pixels."""
    width, height = size
    x, y, w, h = box[0] * width, box[1] * height, box[2] * width, box[3] * height
    if whole:
        x, y = float(int(x)), float(int(y))
        w, h = float(max(1, min(width - x, int(w)))), float(max(1, min(height - y, int(h))))
    return Crop(x, y, min(w, width - x), min(h, height - y), flip)


def crop_or_reason(data: bytes, box: tuple[float, float, float, float], *, use_kernel: bool) -> Uint8s | str:
    """Return the pixels, or the words it is refused with."""
    out = np.zeros((23, 19, 3), np.uint8)
    try:
        decode_crop(data, lambda w, h: share_of(box, (w, h), whole=False, flip=True), out=out, use_kernel=use_kernel)
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


def pillow_crop(data: bytes, crop: Crop, *, size: tuple[int, int] = (23, 19)) -> Uint8s:
    out = np.zeros((*size, 3), np.uint8)
    decode_crop(data, lambda w, h: crop, out=out, use_kernel=False)
    return out


def test_an_installed_package_has_the_kernel_where_it_can_be_built() -> None:
    can_be_built = shutil.which("cc") is not None and Path("/usr/include/jpeglib.h").exists()
    if "site-packages" in str(wdsloader.__file__) and can_be_built:
        assert HAS_KERNEL


# ------------------------------------------------------------------------------------------- the same as with Pillow


@with_kernel
@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("name", whole_jpegs())
def test_a_whole_picture_gives_pillows_pixels_to_the_bit(name: str, box: tuple[float, float, float, float]) -> None:
    result = crop_or_reason(whole_jpegs()[name], box, use_kernel=True)
    expected = crop_or_reason(whole_jpegs()[name], box, use_kernel=False)
    assert not isinstance(result, str)
    assert not isinstance(expected, str)
    assert np.array_equal(result, expected)


@with_kernel
@pytest.mark.parametrize("name", sorted(whole_jpegs().keys() - FOR_PILLOW))
def test_ordinary_jpegs_are_for_the_kernel(name: str) -> None:
    assert not isinstance(kernel_crop(whole_jpegs()[name], Crop(0, 0, 1, 1)), str)


@with_kernel
@pytest.mark.parametrize("name", sorted(FOR_PILLOW))
def test_what_is_no_ordinary_jpeg_is_left_to_pillow(name: str) -> None:
    from wdsloader import _crop

    assert _crop.read_size(whole_jpegs()[name]) is None


@with_kernel
@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("name", damaged_jpegs())
def test_a_damaged_picture_is_taken_or_refused_as_by_pillow(name: str, box: tuple[float, float, float, float]) -> None:
    result = crop_or_reason(damaged_jpegs()[name], box, use_kernel=True)
    expected = crop_or_reason(damaged_jpegs()[name], box, use_kernel=False)
    if isinstance(result, str) or isinstance(expected, str):
        assert isinstance(result, str)
        assert result == expected
    else:
        assert np.array_equal(result, expected)


@with_kernel
@pytest.mark.parametrize("box", BOXES)
def test_a_cut_picture_is_refused_wherever_it_is_cut_and_wherever_the_box_is(
    box: tuple[float, float, float, float],
) -> None:
    for name, data in cut_jpegs().items():
        assert isinstance(crop_or_reason(data, box, use_kernel=True), str), name


# ---------------------------------------------------------------------------------------------------------- anything


@st.composite
def jpegs(draw: st.DrawFn) -> bytes:
    """Draw a picture of 1..70 pixels a side, of any kind that Pillow writes."""
    picture = photo(draw(st.integers(1, 70)), draw(st.integers(1, 70)), seed=draw(st.integers(0, 3)))
    options: dict[str, object] = {"quality": draw(st.integers(5, 100))}
    options["subsampling"] = draw(st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]))
    options["progressive"] = draw(st.booleans())
    options["restart_marker_rows"] = draw(st.integers(0, 2))
    options["restart_marker_blocks"] = draw(st.integers(0, 6))
    return encode(picture.convert(draw(st.sampled_from(["RGB", "L"]))), "JPEG", **options)


shares = st.floats(0, 1, allow_subnormal=False)


@st.composite
def crops(draw: st.DrawFn, size: tuple[int, int]) -> Crop:
    """Draw a box inside of a picture of this size."""
    w, h = draw(st.floats(0.02, 1)), draw(st.floats(0.02, 1))
    box = (draw(shares) * (1 - w), draw(shares) * (1 - h), w, h)
    return share_of(box, size, whole=draw(st.booleans()), flip=draw(st.booleans()))


@with_kernel
@settings(max_examples=150)
@given(st.data())
def test_any_box_of_any_picture_gives_pillows_pixels_to_the_bit(data: st.DataObject) -> None:
    jpeg = data.draw(jpegs())
    crop = data.draw(crops(decode_rgb(jpeg).size))
    size = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    result = kernel_crop(jpeg, crop, size=size)
    assert not isinstance(result, str)
    assert np.array_equal(result, pillow_crop(jpeg, crop, size=size))


@with_kernel
@settings(max_examples=150)
@given(jpegs(), st.data())
def test_a_picture_cut_at_any_byte_is_refused_by_both(jpeg: bytes, data: st.DataObject) -> None:
    cut = jpeg[: data.draw(st.integers(0, len(jpeg) - 1))]
    box = data.draw(st.sampled_from(BOXES))
    assert isinstance(crop_or_reason(cut, box, use_kernel=True), str)
    assert isinstance(crop_or_reason(cut, box, use_kernel=False), str)


@with_kernel
@settings(max_examples=200)
@given(jpegs(), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4))
def test_flipped_bits_never_crash_and_never_part_the_two_paths(jpeg: bytes, flips: list[tuple[float, int]]) -> None:
    damaged = bytearray(jpeg)
    for share, bits in flips:
        damaged[int(share * len(damaged))] ^= bits
    whole = crop_or_reason(bytes(damaged), BOXES[0], use_kernel=True)
    assert isinstance(whole, str) == isinstance(crop_or_reason(bytes(damaged), BOXES[0], use_kernel=False), str)
    part = crop_or_reason(bytes(damaged), BOXES[2], use_kernel=True)
    assert isinstance(part, str) == isinstance(whole, str)


@with_kernel
@settings(max_examples=200)
@given(st.binary(max_size=300))
@example(
    b"\xff\xd8" + segment(0xC0, b"\x08\xff\xff\xff\xff\x01\x01\x11\x00") + segment(0xDA, b"\x01\x01\x00\x00\x3f\x00")
)
def test_any_bytes_are_refused_or_left_to_pillow(data: bytes) -> None:
    assert isinstance(kernel_crop(data, Crop(0, 0, 1, 1)), str)
    assert isinstance(insert_or_reason(data), str)


# ------------------------------------------------------------------------------------------------------------- rules


@with_kernel
@pytest.mark.parametrize(
    "crop",
    [Crop(-1, 0, 5, 5), Crop(0, 0, 132, 5), Crop(0, 93, 5, 5), Crop(0, 0, 0, 5), Crop(float("nan"), 0, 5, 5)],
)
def test_a_box_outside_of_the_picture_is_not_for_the_kernel(crop: Crop) -> None:
    assert kernel_crop(whole_jpegs()["optimized"], crop) == "the box reaches outside of the picture"


@with_kernel
@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 4), (0, 8, 3), (8, 8, 3, 1)])
def test_a_slot_of_another_shape_is_a_value_error(shape: tuple[int, ...]) -> None:
    from wdsloader import _crop

    with pytest.raises(ValueError, match="height, width, 3"):
        _crop.crop(whole_jpegs()["optimized"], (0, 0, 5, 5), np.zeros(shape, np.uint8), False, False)


@with_kernel
def test_dct_scaling_stays_near_where_the_box_is_large_and_changes_nothing_where_it_is_not() -> None:
    data = encode(photo(400, 320), "JPEG", quality=90)
    large, small = Crop(11, 7, 380, 300), Crop(11, 7, 60, 60)
    scaled = kernel_crop(data, large, size=(50, 60), dct_scaling=True)
    assert not isinstance(scaled, str)
    assert 0 < np.abs(scaled.astype(int) - pillow_crop(data, large, size=(50, 60))).mean() <= 5.0
    result = kernel_crop(data, small, size=(50, 60), dct_scaling=True)
    assert not isinstance(result, str)
    assert np.array_equal(result, pillow_crop(data, small, size=(50, 60)))


@with_kernel
def test_the_pixels_of_the_kernel_are_golden() -> None:
    """One digest over crops of stored pictures. A change is a breaking change: raise the kernel's VERSION."""
    digest = hashlib.sha256()
    for name in ("4:1:1", "4:4:0", "4:1:0", "rgb"):
        result = kernel_crop(whole_jpegs()[name], Crop(3.5, 2.25, 39.5, 30, flip=True), size=(16, 20))
        assert not isinstance(result, str)
        digest.update(result.tobytes())
    assert digest.hexdigest() == "b144acef62f61644a0fb5d5fb9bf843aa6f2cdc61ad1ec94df297f95b2a3c096"


@with_kernel
def test_a_machine_without_vector_instructions_gets_the_same_pixels(tmp_path: Path) -> None:
    if shutil.which("cc") is None or not Path("/usr/include/jpeglib.h").exists():
        pytest.skip("no C compiler, or no headers of libjpeg-turbo")
    from wdsloader import _crop

    portable = built_portably(tmp_path)
    for name in sorted(whole_jpegs().keys() - FOR_PILLOW):
        data, out = whole_jpegs()[name], np.zeros((23, 19, 3), np.uint8)
        width, height = portable.read_size(data)
        # Of few inputs an output, and of many.
        for crop in (Crop(0.25, 0, 0.5, 1, flip=True), Crop(0, 0, width, height, flip=True)):
            assert portable.crop(data, (crop.x, crop.y, crop.width, crop.height), out, crop.flip, False) is None
            assert np.array_equal(out, kernel_crop(data, crop))
    images = np.arange(2 * 7 * 11 * 3).astype(np.uint8).reshape(2, 7, 11, 3)
    for channels_last in (True, False):
        floats, expected = np.zeros(images.size, np.float32), np.zeros(images.size, np.float32)
        for kernel, to in ((portable, floats), (_crop, expected)):
            kernel.normalize(images, to, (1, 20.5, 99), (0.1, 2, 3), channels_last)
        assert np.array_equal(floats, expected)


@with_kernel
@pytest.mark.parametrize(("shape", "kind"), [((2, 3, 5), np.float32), ((2, 3, 5, 3), np.float64), ((7,), np.float32)])
def test_floats_of_another_form_are_a_value_error(shape: tuple[int, ...], kind: type) -> None:
    from wdsloader import _crop

    with pytest.raises(ValueError, match="n, height, width, 3"):
        _crop.normalize(np.zeros((2, 3, 5, 3), np.uint8), np.zeros(shape, kind), (0, 0, 0), (1, 1, 1), True)


@with_kernel
def test_images_of_another_form_are_a_value_error_however_few_floats_there_are() -> None:
    from wdsloader import _crop

    for shape in [(2, 3, 5, 4), (2, 3), ()]:
        with pytest.raises(ValueError, match="n, height, width, 3"):
            _crop.normalize(np.zeros(shape, np.uint8), np.zeros(0, np.float32), (0, 0, 0), (1, 1, 1), True)


def built_portably(folder: Path) -> Any:
    """Build the kernel without AVX2 and load it."""
    sources = Path(__file__).parents[2] / "packages" / "wdsloader" / "src" / "kernel"
    library = folder / "_crop.so"
    options = ["-std=c11", "-O1", "-shared", "-fPIC", "-D_GNU_SOURCE", "-DKERNEL_PORTABLE"]
    options += ["-I", sysconfig.get_path("include"), "-o", str(library)]
    subprocess.run(["cc", *options, *map(str, sources.glob("*.c")), "-ljpeg", "-lm"], check=True)
    spec = importlib.util.spec_from_file_location("portable._crop", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@with_kernel
def test_many_threads_at_once_give_what_one_gives() -> None:
    pictures = [data for name, data in whole_jpegs().items() if name not in FOR_PILLOW] * 6
    one = [crop_or_reason(data, BOXES[1], use_kernel=True) for data in pictures]
    with ThreadPoolExecutor(8) as pool:
        many = list(pool.map(lambda data: crop_or_reason(data, BOXES[1], use_kernel=True), pictures))
    assert all(np.array_equal(a, b) for a, b in zip(one, many, strict=True))


# --------------------------------------------------------------------------------------------------- restart markers


def insert_or_reason(data: bytes) -> bytes | str:
    try:
        return insert_restart_markers(data)
    except PictureError as error:
        return str(error)


@with_kernel
@pytest.mark.parametrize("units", [1, 4, 7])
@pytest.mark.parametrize("name", sorted(whole_jpegs().keys() - FOR_PILLOW))
def test_restart_markers_leave_every_pixel_as_it_was(name: str, units: int) -> None:
    data = whole_jpegs()[name]
    marked = insert_restart_markers(data, units=units)
    assert b"\xff\xdd\x00\x04" in marked
    assert np.array_equal(np.asarray(decode_rgb(marked)), np.asarray(decode_rgb(data)))
    for box in BOXES:
        assert np.array_equal(crop_or_reason(marked, box, use_kernel=True), crop_or_reason(data, box, use_kernel=True))


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
