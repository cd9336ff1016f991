"""Sheets of samples: one PNG with rows of small pictures, each with its key and its class beneath.

Owns the drawing; which samples are on it is ``tiles``'. A picture that does not decode is a marked tile with the
reason. The same tiles give the same bytes; on another machine, letters beyond ASCII may come from another font.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from PIL import Image, ImageDraw

from shardkit.errors import printable
from shardkit.show.lettering import Font, fonts_here, legible
from shardkit.show.tiles import TILE_PX, Tile

__all__ = ["caption", "contact_sheet", "tile_sheet"]

_MIN_COLUMNS = 3
_GAP_PX = 10
_LINE_PX = 15
_TITLE_PX = 34
_BACKGROUND, _EMPTY = (250, 250, 250), (236, 236, 236)
_INK, _PALE_INK = (25, 25, 25), (105, 105, 105)
_BROKEN, _BROKEN_INK = (252, 228, 226), (176, 30, 22)
_TEXT_PX, _TITLE_TEXT_PX = 12, 15


def contact_sheet(tiles: Sequence[Tile], *, title: str, classes: Sequence[str] = ()) -> bytes:
    """Return a sheet about as many tiles wide as high, as a PNG.

    Args: title: a line at the top. classes: names by number, where they are known.
    """
    columns = max(math.ceil(math.sqrt(len(tiles))), _MIN_COLUMNS)
    rows = [tiles[first : first + columns] for first in range(0, len(tiles), columns)]
    return tile_sheet(rows, title=title, classes=classes)


def tile_sheet(
    rows: Sequence[Sequence[Tile]], *, title: str, classes: Sequence[str] = (), side_px: int = TILE_PX
) -> bytes:
    """Return a sheet of rows of tiles as a PNG. A tile of neither picture nor reason is a grey field.

    Args: title: a line at the top. classes: names by number, where they are known. side_px: of the square in which a
        tile's picture stands, at least as long as the picture's sides.
    """
    columns = max(_MIN_COLUMNS, *(len(row) for row in rows)) if rows else _MIN_COLUMNS
    wide, high = side_px + _GAP_PX, side_px + 2 * _LINE_PX + _GAP_PX + 4
    sheet = Image.new("RGB", (columns * wide + _GAP_PX, _TITLE_PX + max(len(rows), 1) * high), _BACKGROUND)
    text, font = legible(title, fonts=fonts_here(_TITLE_TEXT_PX))
    text = _cut(text, width=sheet.width - 2 * _GAP_PX, font=font)
    ImageDraw.Draw(sheet).text((_GAP_PX, 9), text, fill=_INK, font=font)
    for y, row in enumerate(rows):
        for x, tile in enumerate(row):
            corner = (_GAP_PX + x * wide, _TITLE_PX + y * high)
            _draw_tile(sheet, tile, corner=corner, side_px=side_px, classes=classes)
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


def caption(label: int | None, classes: Sequence[str]) -> str:
    """Return how a label is shown: its number and, where it is known, the name of its class."""
    if label is None:
        return "no label"
    return f"{label} {printable(classes[label])}" if 0 <= label < len(classes) else str(label)


def _draw_tile(
    sheet: Image.Image, tile: Tile, *, corner: tuple[int, int], side_px: int, classes: Sequence[str]
) -> None:
    draw = ImageDraw.Draw(sheet)
    fonts = fonts_here(_TEXT_PX)
    left, top = corner
    frame = (left, top, left + side_px - 1, top + side_px - 1)
    if tile.reason and tile.picture is None:
        draw.rectangle(frame, fill=_BROKEN, outline=_BROKEN_INK)
        reason, font = legible(tile.reason, fonts=fonts)
        lines = ["broken", *_wrapped(reason, width=side_px - 16, font=font)]
        for row, line in enumerate(lines[: (side_px - 16) // _LINE_PX]):
            draw.text((left + 8, top + 8 + row * _LINE_PX), line, fill=_BROKEN_INK, font=font)
    else:
        draw.rectangle(frame, fill=_EMPTY)
    if tile.picture is not None:
        spare_x, spare_y = (side_px - side for side in tile.picture.size)
        sheet.paste(tile.picture, (left + spare_x // 2, top + spare_y // 2))
    below = top + side_px + 3
    for row, (words, ink) in enumerate(((tile.key, _INK), (caption(tile.label, classes), _PALE_INK))):
        text, font = legible(words, fonts=fonts)
        draw.text((left, below + row * _LINE_PX), _cut(text, width=side_px, font=font), fill=ink, font=font)


def _cut(text: str, *, width: int, font: Font) -> str:
    """Return the text, its middle left out where it is wider than so many pixels."""
    # No more than this could fit; a name may be of any length.
    text = text if len(text) <= 2 * width else text[:width] + text[-width:]
    kept = len(text)
    shown = text
    while kept > 2 and font.getlength(shown) > width:
        kept -= 1
        behind = kept // 3
        shown = f"{text[: kept - behind]}…{text[len(text) - behind :]}"
    return shown


def _wrapped(text: str, *, width: int, font: Font) -> list[str]:
    """Break the text between words into lines of so many pixels."""
    lines: list[str] = []
    for word in text[:400].split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(_cut(word, width=width, font=font))
    return lines
