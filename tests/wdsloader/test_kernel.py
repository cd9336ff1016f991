"""The crop kernel, and simplejpeg, against Pillow: the same pictures taken and refused, the same pixels, no crash."""

from __future__ import annotations

import hashlib
import importlib.util
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
from shardkit import decode_rgb
from tests.helpers.crops import (
    BOXES,
    FOR_PILLOW,
    by_each_fast_path,
    crop_or_reason,
    cropped,
    insert_or_reason,
    kernel_crop,
    share_of,
    with_kernel,
)
from tests.helpers.jpegs import cut_jpegs, damaged_jpegs, photo, segment, whole_jpegs
from tests.helpers.pictures import encode
from wdsloader.augment import Crop
from wdsloader.decode import HAS_KERNEL, Decoder


def test_an_installed_package_has_the_kernel_where_it_can_be_built() -> None:
    can_be_built = shutil.which("cc") is not None and Path("/usr/include/jpeglib.h").exists()
    if "site-packages" in str(wdsloader.__file__) and can_be_built:
        assert HAS_KERNEL


# ------------------------------------------------------------------------------------------- the same as with Pillow


@by_each_fast_path
@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("name", whole_jpegs())
def test_a_whole_picture_gives_pillows_pixels_to_the_bit(
    name: str, box: tuple[float, float, float, float], decoder: Decoder
) -> None:
    result = crop_or_reason(whole_jpegs()[name], box, decoder=decoder)
    expected = crop_or_reason(whole_jpegs()[name], box, decoder="pillow")
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


@by_each_fast_path
@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("name", damaged_jpegs())
def test_a_damaged_picture_is_taken_or_refused_as_by_pillow(
    name: str, box: tuple[float, float, float, float], decoder: Decoder
) -> None:
    result = crop_or_reason(damaged_jpegs()[name], box, decoder=decoder)
    expected = crop_or_reason(damaged_jpegs()[name], box, decoder="pillow")
    if isinstance(result, str) or isinstance(expected, str):
        assert isinstance(result, str)
        assert result == expected
    else:
        assert np.array_equal(result, expected)


@by_each_fast_path
@pytest.mark.parametrize("box", BOXES)
def test_a_cut_picture_is_refused_wherever_it_is_cut_and_wherever_the_box_is(
    box: tuple[float, float, float, float], decoder: Decoder
) -> None:
    for name, data in cut_jpegs().items():
        assert isinstance(crop_or_reason(data, box, decoder=decoder), str), name


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


@by_each_fast_path
@settings(max_examples=150)
@given(data=st.data())
def test_any_box_of_any_picture_gives_pillows_pixels_to_the_bit(decoder: Decoder, data: st.DataObject) -> None:
    jpeg = data.draw(jpegs())
    crop = data.draw(crops(decode_rgb(jpeg).size))
    size = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    if decoder == "kernel":
        assert not isinstance(kernel_crop(jpeg, crop, size=size), str)
    expected = cropped(jpeg, crop, size=size, decoder="pillow")
    assert np.array_equal(cropped(jpeg, crop, size=size, decoder=decoder), expected)


@by_each_fast_path
@settings(max_examples=150)
@given(jpeg=jpegs(), data=st.data())
def test_a_picture_cut_at_any_byte_is_refused_by_both(decoder: Decoder, jpeg: bytes, data: st.DataObject) -> None:
    """At any byte in front of its end marker: of 30,488 that lacked this alone Pillow took 862, whole."""
    cut = jpeg[: data.draw(st.integers(0, len(jpeg) - len(b"\xff\xd9") - 1))]
    box = data.draw(st.sampled_from(BOXES))
    assert isinstance(crop_or_reason(cut, box, decoder=decoder), str)
    assert isinstance(crop_or_reason(cut, box, decoder="pillow"), str)


@by_each_fast_path
@settings(max_examples=100)
@given(jpeg=jpegs(), num_lost=st.integers(1, 2))
def test_a_picture_without_its_end_marker_is_refused_or_whole(decoder: Decoder, jpeg: bytes, num_lost: int) -> None:
    expected = crop_or_reason(jpeg[:-num_lost], BOXES[1], decoder="pillow")
    result = crop_or_reason(jpeg[:-num_lost], BOXES[1], decoder=decoder)
    assert isinstance(result, str) == isinstance(expected, str)
    if not isinstance(result, str):
        assert np.array_equal(result, crop_or_reason(jpeg, BOXES[1], decoder="pillow"))


@by_each_fast_path
@settings(max_examples=200)
@given(
    jpeg=jpegs(),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_flipped_bits_never_crash_and_never_part_the_two_paths(
    decoder: Decoder, jpeg: bytes, flips: list[tuple[float, int]]
) -> None:
    damaged = bytearray(jpeg)
    for share, bits in flips:
        damaged[int(share * len(damaged))] ^= bits
    whole = crop_or_reason(bytes(damaged), BOXES[0], decoder=decoder)
    assert isinstance(whole, str) == isinstance(crop_or_reason(bytes(damaged), BOXES[0], decoder="pillow"), str)
    part = crop_or_reason(bytes(damaged), BOXES[2], decoder=decoder)
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
    assert 0 < np.abs(scaled.astype(int) - cropped(data, large, size=(50, 60), decoder="pillow")).mean() <= 5.0
    result = kernel_crop(data, small, size=(50, 60), dct_scaling=True)
    assert not isinstance(result, str)
    assert np.array_equal(result, cropped(data, small, size=(50, 60), decoder="pillow"))


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
    one = [crop_or_reason(data, BOXES[1], decoder="kernel") for data in pictures]
    with ThreadPoolExecutor(8) as pool:
        many = list(pool.map(lambda data: crop_or_reason(data, BOXES[1], decoder="kernel"), pictures))
    assert all(np.array_equal(a, b) for a, b in zip(one, many, strict=True))
