from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

from shardkit import PictureError, decode_rgb
from tests.helpers.crops import with_broken_decoders
from tests.helpers.pictures import encode, jpeg_with_bad_exif, turned_jpeg
from tests.helpers.shards import jpeg_bytes
from wdsloader import decode_faults
from wdsloader.augment import Crop, centre_crop
from wdsloader.decode import HAS_KERNEL, HAS_SIMPLEJPEG, Decoder, Uint8s, decode_crop, decode_path


@pytest.fixture(params=["kernel", "simplejpeg", "pillow"])
def decoder(request: pytest.FixtureRequest) -> Decoder:
    chosen: Decoder = request.param
    if not {"kernel": HAS_KERNEL, "simplejpeg": HAS_SIMPLEJPEG, "pillow": True}[chosen]:
        pytest.skip(f"there is no {chosen}")
    return chosen


def decoded(data: bytes, crop: Crop, *, size: int, decoder: Decoder) -> Uint8s:
    out = np.zeros((size, size, 3), np.uint8)
    decode_crop(data, lambda width, height: crop, out=out, decoder=decoder)
    return out


@pytest.mark.parametrize("box", [(3, 5, 40, 31), (0, 0, 97, 83), (50, 60, 7, 9)])
def test_a_box_of_whole_pixels_gives_torchvisions_resized_crop_bit_for_bit(
    box: tuple[int, int, int, int], decoder: Decoder
) -> None:
    data = jpeg_bytes(4, size=(97, 83))
    x, y, width, height = box
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    expected = F.resized_crop(picture, y, x, height, width, [24, 24], InterpolationMode.BILINEAR, antialias=True)
    assert np.array_equal(decoded(data, Crop(x, y, width, height), size=24, decoder=decoder), np.asarray(expected))


def test_a_high_narrow_box_is_within_rounding_of_torchvision(decoder: Decoder) -> None:
    """Pillow 13 takes its rows first; its order depends on the version, ours does not."""
    data = jpeg_bytes(4, size=(97, 183))
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    expected = F.resized_crop(picture, 2, 30, 170, 30, [24, 24], InterpolationMode.BILINEAR, antialias=True)
    ours = decoded(data, Crop(30, 2, 30, 170), size=24, decoder=decoder)
    assert np.abs(ours.astype(int) - np.asarray(expected)).max() <= 1


def test_a_mirrored_crop_is_the_crop_mirrored(decoder: Decoder) -> None:
    data = jpeg_bytes(4, size=(97, 83))
    plain = decoded(data, Crop(3, 5, 40, 31), size=24, decoder=decoder)
    assert np.array_equal(decoded(data, Crop(3, 5, 40, 31, flip=True), size=24, decoder=decoder), plain[:, ::-1])


def test_the_evaluation_crop_is_near_resize_then_centre_crop(decoder: Decoder) -> None:
    data = jpeg_bytes(9, size=(500, 375))
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    expected = np.asarray(F.center_crop(F.resize(picture, 256, InterpolationMode.BILINEAR), [224, 224]))
    ours = decoded(data, centre_crop(width=500, height=375), size=224, decoder=decoder)
    assert np.abs(ours.astype(int) - expected).mean() < 1.0


def test_the_box_is_chosen_by_the_size_in_the_header(decoder: Decoder) -> None:
    asked: list[tuple[int, int]] = []

    def choose(width: int, height: int) -> Crop:
        asked.append((width, height))
        return Crop(0, 0, width, height)

    decode_crop(jpeg_bytes(0, size=(31, 17)), choose, out=np.zeros((8, 8, 3), np.uint8), decoder=decoder)
    assert asked == [(31, 17)]


def test_a_cut_picture_is_an_error_not_gray(decoder: Decoder) -> None:
    data = jpeg_bytes(1, size=(64, 64))
    with pytest.raises(PictureError, match="does not decode"):
        decoded(data[:-40], Crop(0, 0, 64, 64), size=16, decoder=decoder)


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_unpacked(decoder: Decoder) -> None:
    with pytest.raises(PictureError, match="more than the limit of 100"):
        decode_crop(
            jpeg_bytes(1, size=(64, 64)),
            lambda w, h: Crop(0, 0, w, h),
            out=np.zeros((8, 8, 3), np.uint8),
            max_pixels=100,
            decoder=decoder,
        )


@pytest.mark.parametrize("kind", ["short", "points outside"])
def test_damaged_exif_is_no_warning(kind: str, decoder: Decoder) -> None:
    """IMG-04: a warning would be an error here."""
    assert decoded(jpeg_with_bad_exif(kind), Crop(0, 0, 32, 24), size=8, decoder=decoder).any()


def test_a_turned_picture_is_taken_as_it_is_stored(decoder: Decoder) -> None:
    """IMG-08."""
    asked: list[tuple[int, int]] = []

    def choose(width: int, height: int) -> Crop:
        asked.append((width, height))
        return Crop(0, 0, width, height)

    decode_crop(turned_jpeg(6), choose, out=np.zeros((8, 8, 3), np.uint8), decoder=decoder)
    assert asked == [(32, 24)]


def test_a_gray_picture_fills_three_equal_channels(decoder: Decoder) -> None:
    buffer = io.BytesIO()
    Image.new("L", (20, 20), 77).save(buffer, "PNG")
    out = decoded(buffer.getvalue(), Crop(0, 0, 20, 20), size=8, decoder=decoder)
    assert np.array_equal(out, np.full((8, 8, 3), 77))


def test_a_slot_with_gaps_between_its_rows_is_filled_all_the_same(decoder: Decoder) -> None:
    data, crop = jpeg_bytes(4, size=(97, 83)), Crop(3, 5, 40, 31)
    wide = np.zeros((24, 48, 3), np.uint8)
    decode_crop(data, lambda width, height: crop, out=wide[:, ::2], decoder=decoder)
    assert np.array_equal(wide[:, ::2], decoded(data, crop, size=24, decoder=decoder))
    assert not wide[:, 1::2].any()


def test_a_row_of_a_batch_is_filled_and_its_neighbours_are_left_alone(decoder: Decoder) -> None:
    data, crop = jpeg_bytes(4, size=(97, 83)), Crop(3, 5, 40, 31)
    batch = np.full((3, 24, 24, 3), 7, np.uint8)
    decode_crop(data, lambda width, height: crop, out=batch[1], decoder=decoder)
    assert np.array_equal(batch[1], decoded(data, crop, size=24, decoder=decoder))
    assert (batch[[0, 2]] == 7).all()


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_only_pillow_needs_a_pillow_that_knows_jpegs(
    mode: str, decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the paths would be one and the same, and the tests of their likeness would prove nothing."""
    buffer = io.BytesIO()
    Image.new(mode, (20, 20)).save(buffer, "JPEG")
    monkeypatch.delitem(Image.OPEN, "JPEG")
    if decoder == "pillow":
        with pytest.raises(PictureError, match="JPEG"):
            decoded(buffer.getvalue(), Crop(0, 0, 20, 20), size=8, decoder=decoder)
    else:
        decoded(buffer.getvalue(), Crop(0, 0, 20, 20), size=8, decoder=decoder)


@pytest.mark.parametrize("crop", [Crop(-2, 0, 9, 9), Crop(0, 80, 9, 9), Crop(120, 120, 4, 4)])
def test_what_of_a_box_lies_outside_of_the_picture_is_black(crop: Crop, decoder: Decoder) -> None:
    picture = Image.new("RGB", (160, 160))
    picture.paste(decode_rgb(jpeg_bytes(4, size=(97, 83))), (10, 10))
    shifted = Crop(crop.x + 10, crop.y + 10, crop.width, crop.height)
    expected = decoded(encode(picture, "PNG"), shifted, size=24, decoder="pillow")
    assert np.array_equal(decoded(jpeg_bytes(4, size=(97, 83)), crop, size=24, decoder=decoder), expected)


def test_a_box_that_reaches_outside_of_the_picture_by_rounding_gives_pillows_pixels(decoder: Decoder) -> None:
    data, crop = jpeg_bytes(4, size=(97, 83)), Crop(96.9, 0, 0.1 + 1e-12, 5)
    expected = decoded(data, crop, size=24, decoder="pillow")
    assert np.array_equal(decoded(data, crop, size=24, decoder=decoder), expected)


def test_a_kernel_and_a_simplejpeg_that_do_not_load_are_done_without_and_told(tmp_path: Path) -> None:
    """The one is built for a libjpeg that is gone, say, the other for another numpy, which can raise anything."""
    tell = "print(*wdsloader.decode_faults().items(), wdsloader.decode_path(), sep='\\n')"
    kernel, simplejpeg, path = with_broken_decoders(tmp_path, f"import wdsloader; {tell}")
    assert "'kernel'" in kernel
    assert "file too short" in kernel
    assert simplejpeg == "('simplejpeg', 'ValueError: numpy.dtype size changed')"
    assert path.startswith("pillow ")


def test_nothing_is_at_fault_with_what_loads_here_or_is_not_installed() -> None:
    assert decode_faults() == {}


def test_the_path_is_told_with_its_version() -> None:
    without_kernel = "simplejpeg " if HAS_SIMPLEJPEG else "pillow "
    assert decode_path().startswith("kernel 1.1 (libjpeg-turbo " if HAS_KERNEL else without_kernel)
