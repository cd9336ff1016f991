from __future__ import annotations

import pytest
from PIL import ImageFont

from shardkit.show.lettering import fonts_here, legible

PLAIN = ImageFont.load_default(size=12)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tench · 1…", "tench · 1…"),
        ("1 鳥.x", r"1 \u9ce5.x"),
        ("caf\udce9\x1b", r"caf\xe9\x1b"),
        ("🐦", r"\U0001f426"),
        ("", ""),
    ],
)
def test_what_no_font_has_is_escaped(text: str, shown: str) -> None:
    assert legible(text, fonts=[PLAIN]) == (shown, PLAIN)


def test_the_first_font_that_has_all_letters_is_taken() -> None:
    try:
        wide = ImageFont.truetype("DejaVuSans.ttf", 12)
    except OSError:
        pytest.skip("no font with Cyrillic letters is here")
    assert legible("щука", fonts=[PLAIN, wide]) == ("щука", wide)
    assert legible("щука 鳥", fonts=[PLAIN, wide]) == (r"щука \u9ce5", wide)
    assert legible("tench", fonts=[PLAIN, wide]) == ("tench", PLAIN)


def test_pillows_own_font_comes_first() -> None:
    assert fonts_here(12)[0].getbbox("tench") == PLAIN.getbbox("tench")
