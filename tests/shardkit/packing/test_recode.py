from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shardkit import (
    PackConfig,
    PackError,
    PictureError,
    Recode,
    SourceError,
    SourceSample,
    Transform,
    decode_rgb,
    recode_sample,
)
from tests.helpers.pictures import cmyk_jpeg, cut_jpeg, encode, noisy_jpeg, turned_jpeg
from tests.helpers.shards import jpeg_bytes

RESTART_INTERVAL = b"\xff\xdd"
LARGE = noisy_jpeg(size=(160, 120))
UPPER = Transform(name="upper", version="upper 1", apply=bytes.upper)


def recoded(picture: bytes, recode: Recode, *, extension: str = "jpg") -> tuple[str, bytes]:
    sample = recode_sample(SourceSample("a", ((extension, picture), ("cls", b"7")), "in/a"), recode)
    assert (sample.key, sample.members[1], sample.origin) == ("a", ("cls", b"7"), "in/a")
    return sample.members[0]


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def restart_markers(data: bytes) -> int:
    """Return how many restart markers the scan has; in it, a 0xff of the data is followed by a zero."""
    return len(re.findall(rb"\xff[\xd0-\xd7]", data[data.index(b"\xff\xda") :]))


class TestWhichPicturesChange:
    def test_a_jpeg_within_the_limit_keeps_its_bytes(self) -> None:
        assert recoded(LARGE, Recode(max_size_px=160)) == ("jpg", LARGE)

    def test_a_larger_one_is_scaled_to_the_limit(self) -> None:
        assert opened(recoded(LARGE, Recode(max_size_px=80))[1]).size == (80, 60)

    def test_with_a_quality_every_picture_is_reencoded(self) -> None:
        _, data = recoded(LARGE, Recode(quality=60))
        assert opened(data).size == (160, 120)
        assert len(data) < len(LARGE)

    @pytest.mark.parametrize("extension", ["png", "jpg"])
    def test_what_is_no_jpeg_by_content_becomes_one(self, extension: str) -> None:
        png = encode(Image.new("RGBA", (20, 10), (200, 10, 10, 255)), "PNG")
        made, data = recoded(png, Recode(max_size_px=100), extension=extension)
        assert (made, opened(data).format, opened(data).size) == ("jpg", "JPEG", (20, 10))

    def test_without_settings_nothing_changes(self) -> None:
        sample = SourceSample("a", (("jpg", b"not even a picture"),))
        assert recode_sample(sample, None) == sample


class TestWhatComesOut:
    def test_baseline_420_rgb_without_metadata(self) -> None:
        data = recoded(turned_jpeg(6), Recode(quality=90))[1]
        picture = opened(data)
        assert (picture.mode, picture.size, picture.getexif().get(0x0112)) == ("RGB", (32, 24), None)
        # SOF0 with three components, the first sampled 2x2.
        start = data.index(b"\xff\xc0")
        assert (data[start + 9], data[start + 11]) == (3, 0x22)
        assert b"Exif" not in data

    def test_equal_pictures_give_equal_bytes(self) -> None:
        recode = Recode(max_size_px=90, quality=85, crop_ready=True)
        assert recoded(LARGE, recode) == recoded(LARGE, recode)

    def test_the_colours_of_cmyk_stay(self) -> None:
        pixel = np.asarray(decode_rgb(recoded(cmyk_jpeg(), Recode(quality=95))[1]))[12, 16]
        assert abs(pixel.astype(int) - [255, 0, 0]).max() < 25

    def test_scaling_is_antialiased(self) -> None:
        stripes = np.zeros((64, 64, 3), np.uint8)
        stripes[:, ::2] = 255
        data = recoded(encode(Image.fromarray(stripes), "PNG"), Recode(max_size_px=16))[1]
        assert np.ptp(np.asarray(opened(data).convert("L"))[:, 2:-2].astype(int)) < 40

    @pytest.mark.parametrize(
        ("size", "limit", "after"), [((160, 120), 100, (100, 75)), ((120, 160), 50, (38, 50)), ((900, 2), 90, (90, 1))]
    )
    def test_the_longest_side_meets_the_limit_and_none_vanishes(
        self, size: tuple[int, int], limit: int, after: tuple[int, int]
    ) -> None:
        assert opened(recoded(jpeg_bytes(1, size=size), Recode(max_size_px=limit))[1]).size == after

    def test_crop_ready_puts_a_restart_marker_after_every_four_units(self) -> None:
        data = recoded(LARGE, Recode(quality=90, crop_ready=True))[1]
        plain = recoded(LARGE, Recode(quality=90))[1]
        assert RESTART_INTERVAL in data
        # 160 x 120 pixels are 10 x 8 units of 16 x 16.
        assert (restart_markers(data), restart_markers(plain)) == (19, 0)
        assert np.array_equal(np.asarray(opened(data)), np.asarray(opened(plain)))


def test_a_picture_of_another_format_than_its_name_says_is_told_where_it_stays_so() -> None:
    """MK-07."""
    png, reasons = encode(Image.new("RGB", (4, 4)), "PNG"), []  # type: tuple[bytes, list[str]]
    members = (("jpg", png), ("mask.png", png), ("b.png", LARGE), ("c.jpeg", LARGE), ("d.jpg", b"none"), ("cls", png))
    sample = SourceSample("a", members)
    assert recode_sample(sample, None, on_kept=reasons.append) == sample
    assert reasons == ["named jpg, but PNG", "named png, but JPEG"]
    recode_sample(SourceSample("a", (("jpg", png),)), Recode(quality=90), on_kept=reasons.append)
    assert len(reasons) == 2


class TestTransform:
    def test_it_sees_the_jpegs_that_keep_their_bytes_alone(self) -> None:
        png = encode(Image.new("RGB", (4, 4)), "PNG")
        sample = SourceSample("a", (("jpg", LARGE), ("png", png), ("cls", b"1")))
        changed = recode_sample(sample, None, transform=UPPER)
        assert changed.members == (("jpg", LARGE.upper()), ("png", png), ("cls", b"1"))
        small = recode_sample(SourceSample("a", (("jpg", LARGE),)), Recode(max_size_px=20), transform=UPPER)
        assert opened(small.members[0][1]).size == (20, 15)

    def test_what_it_can_do_nothing_with_stays_as_it_is_and_is_told(self) -> None:
        def refuse(_: bytes) -> bytes:
            raise PictureError("4 components")

        reasons: list[str] = []
        members = (("jpg", LARGE), ("png", encode(Image.new("RGB", (4, 4)), "PNG")), ("seg.jpg", b"no picture"))
        sample = SourceSample("a", members)
        transform = Transform(name="refuse", version="1", apply=refuse)
        assert recode_sample(sample, None, transform=transform, on_kept=reasons.append) == sample
        assert reasons[:2] == ["4 components", "no JPEG but PNG"]
        assert reasons[2].startswith("not a picture")

    def test_any_other_error_of_it_is_an_unusable_source(self) -> None:
        def fail(_: bytes) -> bytes:
            raise ValueError("no such tool")

        transform = Transform(name="fail", version="1", apply=fail)
        with pytest.raises(SourceError, match=r"in/a: no such tool"):
            recode_sample(SourceSample("a", (("jpg", LARGE),), "in/a"), None, transform=transform)


def test_a_picture_that_does_not_decode_is_an_unusable_source() -> None:
    with pytest.raises(SourceError, match=r"^in/a: the picture does not decode"):
        recoded(cut_jpeg(), Recode(quality=90))


@pytest.mark.parametrize(
    "settings", [{}, {"max_size_px": 0}, {"max_size_px": 70_000}, {"quality": 0}, {"quality": 101}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(PackError):
        Recode(**settings)  # type: ignore[arg-type]  # whole numbers alone


def test_crop_ready_originals_need_somebody_who_makes_them(tmp_path: Path) -> None:
    for recode in (Recode(crop_ready=True), Recode(crop_ready=True, max_size_px=500)):
        with pytest.raises(PackError, match="need a transform that adds restart markers"):
            PackConfig(folder=tmp_path, prefix="t", recode=recode)
        PackConfig(folder=tmp_path, prefix="t", recode=recode, transform=UPPER)
    PackConfig(folder=tmp_path, prefix="t", recode=Recode(crop_ready=True, quality=90))
