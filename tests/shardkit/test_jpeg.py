from __future__ import annotations

import pytest
from PIL import Image

from shardkit.jpeg import baseline_size, jpeg_damage
from tests.helpers.jpegs import segment
from tests.helpers.pictures import cmyk_jpeg, cut_jpeg, encode, jpeg_with_bad_exif, noisy_jpeg, turned_jpeg
from tests.helpers.shards import jpeg_bytes

PICTURE = Image.new("RGB", (200, 100), (200, 30, 40))
NOISE = noisy_jpeg()


def restarting() -> bytes:
    """Return a JPEG with a restart marker behind every two blocks."""
    return encode(PICTURE, "JPEG", restart_marker_blocks=2)


def at_restart(data: bytes, number: int) -> int:
    return data.index(bytes([0xFF, 0xD0 + number]))


@pytest.mark.parametrize(
    "data",
    [
        NOISE,
        jpeg_bytes(0),
        cmyk_jpeg(),
        turned_jpeg(6),
        jpeg_with_bad_exif("short"),
        restarting(),
        encode(PICTURE, "JPEG", restart_marker_rows=1, subsampling="4:2:0"),
        encode(PICTURE.convert("L"), "JPEG", restart_marker_blocks=3),
        encode(PICTURE, "JPEG", progressive=True),
        encode(PICTURE, "JPEG", progressive=True, restart_marker_blocks=2),
        encode(PICTURE, "JPEG", optimize=True),
        encode(PICTURE, "MPO", save_all=True, append_images=[PICTURE]),
        NOISE + b"junk" * 100,
        NOISE + bytes(700),
        NOISE + NOISE,
        NOISE[:2] + b"junk" + NOISE[2:],
        NOISE[:-2] + b"\xff" + NOISE[-2:],
    ],
)
def test_a_whole_picture_has_no_damage(data: bytes) -> None:
    assert jpeg_damage(data) is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (cut_jpeg(), "the end marker is missing"),
        (NOISE[:4000] + b"\xff\x42" + NOISE[4002:], "byte 4000 in a scan is the marker 0x42"),
        (
            NOISE[:4000] + b"\xff\xd9" + NOISE[4002:],
            f"an end marker at byte 4000, and another at byte {len(NOISE) - 2}",
        ),
        (NOISE[:4000] + b"\xff\xd3" + NOISE[4002:], "a restart marker at byte 4000 in a scan that has none"),
        (restarting()[: at_restart(restarting(), 1)] + restarting()[at_restart(restarting(), 2) :], "out of step"),
        (restarting()[: at_restart(restarting(), 4)] + b"\xff\xd9", "4 restart markers in a scan that needs"),
        (b"\xff\xd8\xff\xd9", "it ends before its first scan"),
        (NOISE[:4] + b"\xff\xff" + NOISE[6:], "goes beyond the end"),
        (b"", "the end marker is missing"),
        (b"\xff", "the end marker is missing"),
    ],
)
def test_damage_is_told_with_its_place(data: bytes, said: str) -> None:
    damage = jpeg_damage(data)
    assert damage is not None
    assert said in damage


def test_what_the_markers_do_not_show_is_not_found() -> None:
    """One wrong bit in the codes: Pillow decodes it in silence too."""
    data = NOISE[:4000] + bytes([NOISE[4000] ^ 1]) + NOISE[4001:]
    assert jpeg_damage(data) is None


PLAIN = encode(PICTURE, "JPEG", subsampling="4:2:0")
FRAME = PLAIN.index(b"\xff\xc0")


@pytest.mark.parametrize(
    "data",
    [
        PLAIN,
        restarting(),
        encode(PICTURE.convert("L"), "JPEG"),
        encode(PICTURE, "JPEG", optimize=True, icc_profile=b"profile" * 99),
        PLAIN[:2] + segment(0xEE, b"Adobe\0\x64\0\0\0\0\1") + PLAIN[2:],
        PLAIN[:-40],
    ],
)
def test_a_baseline_picture_tells_its_size(data: bytes) -> None:
    assert baseline_size(data) == (200, 100)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8",
        encode(PICTURE, "PNG"),
        encode(PICTURE, "JPEG", progressive=True),
        encode(PICTURE, "MPO", save_all=True, append_images=[PICTURE]),
        cmyk_jpeg(),
        PLAIN[:FRAME],
        PLAIN[:FRAME] + b"\xff\xc9" + PLAIN[FRAME + 2 :],  # arithmetic
        PLAIN[: FRAME + 4] + b"\x0c" + PLAIN[FRAME + 5 :],  # 12 bits
        PLAIN[: FRAME + 5] + b"\0\0" + PLAIN[FRAME + 7 :],  # no rows
        PLAIN[: FRAME + 10] + b"R" + PLAIN[FRAME + 11 :],
        PLAIN[:FRAME] + PLAIN[FRAME : FRAME + 19] + PLAIN[FRAME:],  # two frames
        PLAIN[:2] + segment(0xEE, b"Adobe\0\x64\0\0\0\0\0") + PLAIN[2:],  # RGB
        PLAIN[:2] + segment(0xEE, b"Adobe") + PLAIN[2:],
        PLAIN[:2] + segment(0xE0, b"JFIF") + PLAIN[20:],
        PLAIN[:2] + segment(0xE2, b"ICC_PROFILE\0") + PLAIN[2:],
        PLAIN[:2] + segment(0xED, b"Photoshop 3.0\x008BIM\1\2") + PLAIN[2:],
        PLAIN[:2] + b"junk" + PLAIN[2:],
    ],
)
def test_any_other_picture_has_no_size_as_one(data: bytes) -> None:
    assert baseline_size(data) is None


def test_a_picture_cut_in_front_of_its_scan_tells_no_size_and_is_damaged_wherever_it_is_cut() -> None:
    scan = PLAIN.index(b"\xff\xda")
    cuts = [PLAIN[:end] for end in range(scan + 4)]
    assert not any(map(baseline_size, cuts))
    assert all(map(jpeg_damage, cuts))
