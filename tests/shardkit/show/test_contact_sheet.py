from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from shardkit import Tile, contact_sheet
from shardkit.show.contact_sheet import caption
from shardkit.show.tiles import TILE_PX

RED = (250, 10, 10)


def red_tile(key: str = "a") -> Tile:
    return Tile(shard="a.tar", key=key, label=1, picture=Image.new("RGB", (TILE_PX, TILE_PX), RED))


def opened(png: bytes) -> Image.Image:
    assert png.startswith(b"\x89PNG")
    return Image.open(io.BytesIO(png)).convert("RGB")


def pixels_of(image: Image.Image, colour: tuple[int, int, int]) -> int:
    return sum(count for count, found in image.getcolors(1 << 24) or [] if found == colour)


@pytest.mark.parametrize(("num_tiles", "columns", "rows"), [(1, 3, 1), (4, 3, 2), (64, 8, 8), (65, 9, 8)])
def test_the_grid_is_about_square(num_tiles: int, columns: int, rows: int) -> None:
    image = opened(contact_sheet([red_tile()] * num_tiles, title="t"))
    assert image.width // TILE_PX == columns
    assert image.height // (TILE_PX + 30) == rows
    assert pixels_of(image, RED) == num_tiles * TILE_PX**2


def test_the_same_tiles_give_the_same_bytes() -> None:
    sheets = {contact_sheet([red_tile(), red_tile("b")], title="t", classes=("x", "y")) for _ in range(3)}
    assert len(sheets) == 1


def test_key_class_and_title_are_written_on_it() -> None:
    plain = contact_sheet([red_tile()], title="t", classes=("x", "y"))
    assert contact_sheet([red_tile("b")], title="t", classes=("x", "y")) != plain
    assert contact_sheet([red_tile()], title="t", classes=("x", "z")) != plain
    assert contact_sheet([red_tile()], title="u", classes=("x", "y")) != plain


@pytest.mark.parametrize(("one", "other"), [("é", "è"), ("щ", "ю"), ("鳥", "魚")])
def test_letters_that_differ_look_different(one: str, other: str) -> None:
    """Boxes in place of letters would be the same for both."""
    for kind in ("key", "class", "title", "reason"):
        sheets = set()
        for word in (one, other):
            tile = Tile(shard="a", key=word if kind == "key" else "k", label=0, reason=word if kind == "reason" else "")
            title, name = word if kind == "title" else "t", word if kind == "class" else "c"
            sheets.add(contact_sheet([tile], title=title, classes=(name,)))
        assert len(sheets) == 2, kind


def test_a_broken_picture_is_a_marked_tile_with_its_reason() -> None:
    broken = [Tile(shard="a.tar", key="a", reason=reason) for reason in ("cut", "empty")]
    images = [opened(contact_sheet([tile], title="t")) for tile in broken]
    assert images[0].tobytes() != images[1].tobytes()
    colours: list[Any] = images[0].getcolors(1 << 24) or []
    reds = sum(count for count, (red, green, _) in colours if red - green > 20)
    assert reds > TILE_PX**2 * 0.9


@pytest.mark.parametrize(
    "text",
    ["word " * 5000, "x" * 100_000, "\x1b[31m\udcff\u202e", "鳥" * 500, ""],
    ids=["words", "x", "raw", "cjk", "no"],
)
def test_text_of_any_kind_and_length_stays_in_its_place(text: str) -> None:
    tiles = [red_tile(), Tile(shard="s", key=text, label=0, reason=text), red_tile()]
    image = opened(contact_sheet(tiles, title=text, classes=(text,)))
    assert pixels_of(image, RED) == 2 * TILE_PX**2


def test_without_a_sample_there_is_a_title_alone() -> None:
    assert opened(contact_sheet([], title="t")).height > 0


@pytest.mark.parametrize(
    ("label", "text"), [(None, "no label"), (1, r"1 b\x1b"), (2, "2"), (-1, "-1"), (10**18, str(10**18))]
)
def test_a_label_is_named_where_its_class_is_known(label: int | None, text: str) -> None:
    assert caption(label, ("a", "b\x1b")) == text
