"""Text that a font can draw: which font has its letters; letters that none has are written as escapes.

Pillow brings a font of ASCII and a few signs; others are taken where the machine has them. So no letter is drawn as the
empty box that stands for one a font lacks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from PIL import ImageFont

from shardkit.errors import printable

__all__ = ["Font", "fonts_here", "legible"]

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# What systems bring, by what they have: European letters first, then those of East Asia. Pillow knows the folders.
_SYSTEM_FONTS = (
    *("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial Unicode.ttf", "arial.ttf"),
    *("NotoSansCJK-Regular.ttc", "wqy-microhei.ttc", "Hiragino Sans GB.ttc", "msyh.ttc", "malgun.ttf"),
)
# No character: what a font draws for it, it draws for all that it lacks.
_NOTHING = "\uffff"


@functools.cache
def fonts_here(size_px: int) -> tuple[Font, ...]:
    """Return the fonts of this machine in that size, in pixels, Pillow's own first."""
    fonts: list[Font] = [ImageFont.load_default(size=size_px)]
    for name in _SYSTEM_FONTS:
        try:
            fonts.append(ImageFont.truetype(name, size_px))
        except OSError:  # it is not here
            continue
    return tuple(fonts)


def legible(text: str, *, fonts: Sequence[Font]) -> tuple[str, Font]:
    """Return the text and the first font that has all its letters; else the one that has most, and the rest escaped.

    Args: text: of any kind and length; what is not printable is escaped too.
    """
    shown = printable(text)
    if shown.isascii():
        return shown, fonts[0]
    letters = set(shown) - {" "}
    lacking = [{letter for letter in letters if not _has(font)(letter)} for font in fonts]
    best = min(range(len(fonts)), key=lambda number: len(lacking[number]))
    escapes = {ord(letter): letter.encode("ascii", "backslashreplace").decode() for letter in lacking[best]}
    return shown.translate(escapes), fonts[best]


@functools.cache
def _has(font: Font) -> Callable[[str], bool]:
    """Return what tells whether the font has a letter."""
    if isinstance(font, ImageFont.ImageFont):
        return lambda letter: letter.isascii()  # Pillow without FreeType: a picture of each letter
    box = _drawn(font, _NOTHING)
    return functools.cache(lambda letter: _drawn(font, letter) != box)


def _drawn(font: ImageFont.FreeTypeFont, letter: str) -> tuple[tuple[int, int], bytes]:
    mask = font.getmask(letter)
    return mask.size, bytes(mask)
