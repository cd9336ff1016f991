from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shardkit import PictureError, decode_rgb, load, open_picture, picture_facts, to_rgb
from tests.helpers.pictures import bomb_png, cmyk_jpeg, cut_jpeg, encode, jpeg_with_bad_exif, noisy_jpeg, turned_jpeg
from tests.helpers.shards import jpeg_bytes

RED = Image.new("RGB", (32, 24), (200, 30, 40))


def palette_with_alpha() -> bytes:
    return encode(RED.quantize(16), "PNG", transparency=0)


def gray_16(value: int) -> bytes:
    return encode(Image.new("I;16", (32, 24), value), "PNG")


@pytest.mark.parametrize(
    "data",
    [
        jpeg_bytes(0, size=(32, 24)),
        encode(RED.convert("L"), "JPEG"),
        encode(RED, "PNG"),
        encode(RED.convert("RGBA"), "PNG"),
        encode(RED.convert("LA"), "PNG"),
        encode(RED.convert("1"), "PNG"),
        palette_with_alpha(),
        gray_16(30000),
        cmyk_jpeg(),
        encode(RED, "WEBP", lossless=True),
        encode(RED, "GIF"),
        encode(RED, "BMP"),
        encode(RED, "PPM"),
        encode(RED, "TIFF"),
        encode(RED.convert("F"), "TIFF"),
        turned_jpeg(6),
        jpeg_bytes(0, size=(32, 24)) + bytes(258),
        jpeg_bytes(0, size=(32, 24))[:-2] + bytes(102) + b"\xff\xd9",
    ],
    ids=range(18),
)
def test_every_kind_of_picture_becomes_rgb_of_its_stored_size(data: bytes) -> None:
    pixels = np.asarray(decode_rgb(data))
    assert pixels.shape == (24, 32, 3)
    assert pixels.dtype == np.uint8


@pytest.mark.parametrize(
    ("data", "colour"),
    [
        (cmyk_jpeg(), (255, 0, 0)),
        (encode(RED, "WEBP", lossless=True), (200, 30, 40)),
        (encode(RED.convert("RGBA"), "PNG"), (200, 30, 40)),
        (palette_with_alpha(), (200, 30, 40)),
        (encode(RED, "GIF"), (200, 30, 40)),
        (encode(Image.new("1", (32, 24), 1), "PNG"), (255, 255, 255)),
        (gray_16(30000), (117, 117, 117)),
        (gray_16(65535), (255, 255, 255)),
        (encode(Image.new("L", (32, 24), 77), "PNG"), (77, 77, 77)),
    ],
)
def test_colours_are_right(data: bytes, colour: tuple[int, int, int]) -> None:
    pixel = np.asarray(decode_rgb(data))[12, 16].astype(int)
    assert np.abs(pixel - colour).max() <= 3


def test_exif_rotation_is_ignored_and_counted() -> None:
    assert decode_rgb(turned_jpeg(6)).size == (32, 24)
    assert picture_facts(turned_jpeg(6)).turned


@pytest.mark.parametrize("orientation", [0, 1, 9, 255])
def test_an_orientation_that_turns_nothing_is_not_counted(orientation: int) -> None:
    assert not picture_facts(turned_jpeg(orientation)).turned


@pytest.mark.parametrize("kind", ["short", "points outside"])
def test_damaged_exif_is_counted_and_never_a_warning(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert picture_facts(jpeg_with_bad_exif(kind)).bad_exif
        assert decode_rgb(jpeg_with_bad_exif(kind)).size == (32, 24)


def test_good_exif_is_not_called_damaged() -> None:
    assert not picture_facts(turned_jpeg(6)).bad_exif
    assert not picture_facts(jpeg_bytes(0)).bad_exif


def test_facts_are_of_the_stored_picture() -> None:
    facts = picture_facts(cmyk_jpeg())
    assert (facts.format, facts.mode, facts.width, facts.height, facts.frames) == ("JPEG", "CMYK", 32, 24, 1)


def test_more_frames_than_one_are_told_without_counting_them() -> None:
    data = encode(RED, "GIF", save_all=True, append_images=[Image.new("RGB", (32, 24), n) for n in (0, 255)])
    assert picture_facts(data).frames == 2
    assert decode_rgb(data).size == (32, 24)


class TestRefused:
    @pytest.mark.parametrize(
        ("data", "rule", "reason"),
        [
            (b"", "WDS043", "empty"),
            (b"not a picture", "WDS040", "not a picture"),
            (b"\xff\xd8\xff\xe0 this is not a picture", "WDS040", "damaged picture header|not a picture"),
            (b"%PDF-1.4", "WDS040", "not a picture"),
            (cut_jpeg(), "WDS040", "does not decode: .*truncated"),
            (encode(RED, "PNG")[:-30], "WDS040", "does not decode"),
            (encode(RED, "GIF")[:-20], "WDS040", "does not decode|damaged"),
        ],
    )
    def test_what_is_no_whole_picture_is_refused_with_its_rule(self, data: bytes, rule: str, reason: str) -> None:
        for look in (picture_facts, decode_rgb):
            with pytest.raises(PictureError, match=reason) as caught:
                look(data)
            assert caught.value.rule == rule

    def test_no_cut_of_a_jpeg_gives_other_pixels(self) -> None:
        data = noisy_jpeg(size=(24, 16))
        whole = decode_rgb(data).tobytes()
        for length in range(0, len(data), 7):
            try:
                assert decode_rgb(data[:length]).tobytes() == whole
            except PictureError:
                continue

    def test_a_bomb_is_refused_by_its_pixels_before_it_is_unpacked(self) -> None:
        with pytest.raises(PictureError, match="400000000 pixels, more than the limit of 89478485") as caught:
            open_picture(bomb_png(20000))
        assert caught.value.rule == "WDS042"

    def test_the_limit_can_be_lowered(self) -> None:
        with pytest.raises(PictureError, match="32x24 = 768 pixels, more than the limit of 767"):
            open_picture(encode(RED, "PNG"), max_pixels=767)
        assert open_picture(encode(RED, "PNG"), max_pixels=768).size == (32, 24)

    def test_the_limit_can_be_raised_beyond_that_of_pillow(self) -> None:
        usual = Image.MAX_IMAGE_PIXELS
        assert open_picture(bomb_png(20000), max_pixels=400_000_000).size == (20000, 20000)
        with pytest.raises(PictureError):
            open_picture(bomb_png(20000))
        assert usual == Image.MAX_IMAGE_PIXELS

    def test_a_bomb_takes_no_memory(self, tmp_path: Path) -> None:
        (tmp_path / "bomb").write_bytes(bomb_png(20000))
        code = (
            "import resource, sys; from shardkit import *; before = resource.getrusage(0).ru_maxrss\n"
            "try: decode_rgb(open(sys.argv[1], 'rb').read())\n"
            "except PictureError: print(resource.getrusage(0).ru_maxrss - before)"
        )
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "bomb")], check=True, capture_output=True)
        # In KiB. Unpacked it has 48 MiB as bits, 1.2 GB as RGB.
        assert int(done.stdout) < 20_000

    def test_postscript_is_not_run(self, tmp_path: Path) -> None:
        """Pillow hands EPS to Ghostscript."""
        data = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(x) run\n%%EOF\n"
        assert Image.open(io.BytesIO(data)).format == "EPS"
        with pytest.raises(PictureError, match=r"not a picture \(JPEG, PNG"):
            picture_facts(data)

    @pytest.mark.parametrize("mode", ["LAB", "YCbCr", "HSV", "PA", "I", "F"])
    def test_a_rare_colour_space_is_converted_or_refused(self, mode: str) -> None:
        _survives(lambda _: to_rgb(Image.new(mode, (8, 8))), b"")

    @pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM"])
    def test_damage_anywhere_is_a_picture_error_or_none(self, format: str) -> None:
        frames = (
            {"save_all": True, "append_images": [RED.rotate(90)]} if format in ("GIF", "PNG", "WEBP", "TIFF") else {}
        )
        data = encode(RED, format, **frames)
        for position in range(0, len(data), max(1, len(data) // 150)):
            for value in (0, 0x7F, 0xFF):
                damaged = data[:position] + bytes([value]) + data[position + 1 :]
                for look in (picture_facts, decode_rgb, lambda d: picture_facts(d, decode=False)):
                    _survives(look, damaged)
            _survives(picture_facts, data[:position])


def _survives(look: Callable[[bytes], object], data: bytes) -> None:
    """Any other error than this ends the test."""
    with contextlib.suppress(PictureError):
        look(data)


def test_header_alone_is_read_unless_told_to_decode() -> None:
    assert picture_facts(cut_jpeg(), decode=False).width == 160


def test_a_picture_is_unpacked_in_place() -> None:
    picture = open_picture(encode(RED, "PNG"))
    assert load(picture) is picture
    assert to_rgb(picture) is picture


def test_pictures_may_be_opened_in_many_threads() -> None:
    limits, bomb = [1000, 10**9] * 4, bomb_png(15000)
    wrong: list[int] = []

    def look(limit: int) -> None:
        for _ in range(30):
            try:
                open_picture(bomb, max_pixels=limit)
            except PictureError:
                if limit > 10**8:
                    wrong.append(limit)

    threads = [threading.Thread(target=look, args=(limit,)) for limit in limits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
