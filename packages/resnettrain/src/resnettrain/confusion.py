"""What was taken for what, as a picture: a row for each class, a column for what its samples were taken for.

Right answers are blue, wrong ones red, the darker the greater their share of the row. The same figures give the same
bytes; on another machine, letters beyond ASCII may come from another font.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from torch import Tensor

from resnettrain.errors import ReportError
from resnettrain.metrics import ClassFigures
from shardkit import Font, fonts_here, legible

__all__ = ["confusion_picture"]

# The matrix is at most so wide, or one pixel a class where there are more.
_WIDEST_PX = 960
# Up to so many classes there is room beside the matrix for all names; for every tenth number, and beyond for every
# hundredth; and in memory for the picture, of 16 million pixels.
_MOST_NAMED, _MOST_BY_TEN, _MOST_CLASSES = 48, 400, 4000
_CELL_PX, _FONT_PX, _GAP_PX = 44, 12, 8
_LONGEST_NAME = 24
_PAPER, _INK, _PALE_INK, _GRID = (255, 255, 255), (25, 25, 25), (105, 105, 105), (222, 222, 222)
_RIGHT, _WRONG = (31, 99, 178), (200, 40, 32)
# Above this share of its row a cell is so dark that its count is written in the paper's colour.
_DARK_SHARE = 0.55


def confusion_picture(figures: ClassFigures) -> bytes:
    """Return the picture as a PNG: with names for up to 48 classes, with every tenth or hundredth number beyond.

    Raises: ReportError: over 4000 classes.
    """
    counts_KK = figures.confusion.numpy()
    num_classes = len(counts_KK)
    if num_classes > _MOST_CLASSES:
        raise ReportError(f"{num_classes} classes make no picture: at most {_MOST_CLASSES}. Take --per-class --json.")
    cell_px = min(_CELL_PX, max(1, _WIDEST_PX // num_classes))
    fonts = fonts_here(_FONT_PX)
    font, labels = fonts[0], _labels(figures, fonts=fonts)
    left = _GAP_PX + max((round(face.getlength(text)) for _, text, face in labels), default=0) + _GAP_PX
    top = 2 * _GAP_PX + 3 * _FONT_PX
    side = cell_px * num_classes
    title = f"{int(figures.correct1.sum()):,} of {int(counts_KK.sum()):,} right. Rows: the class; columns: taken for."
    width = max(left + side + _GAP_PX, _GAP_PX * 2 + round(font.getlength(title)))
    picture = Image.new("RGB", (width, top + side + _GAP_PX), _PAPER)
    cells = Image.fromarray(_colours(figures.confusion)).resize((side, side), Image.Resampling.NEAREST)
    picture.paste(cells, (left, top))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((left - 1, top - 1, left + side, top + side), outline=_GRID)
    draw.text((_GAP_PX, _GAP_PX), title, fill=_INK, font=font)
    for number, text, face in labels:
        middle = cell_px * number + cell_px // 2
        draw.text((left - _GAP_PX, top + middle), text, fill=_INK, font=face, anchor="rm")
        draw.text((left + middle, top - _GAP_PX // 2), f"{number}", fill=_PALE_INK, font=font, anchor="ms")
    if cell_px >= 2 * _FONT_PX:
        for true, said in np.argwhere(counts_KK > 0).tolist():
            share = counts_KK[true, said] / counts_KK[true].sum()
            draw.text(
                (left + cell_px * said + cell_px // 2, top + cell_px * true + cell_px // 2),
                _short(int(counts_KK[true, said])),
                fill=_PAPER if share > _DARK_SHARE else _INK,
                font=font,
                anchor="mm",
            )
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def _labels(figures: ClassFigures, *, fonts: Sequence[Font]) -> list[tuple[int, str, Font]]:
    """Return the classes that are named at the sides, how, and the font that has the letters."""
    num_classes = len(figures.confusion)
    if num_classes > _MOST_NAMED:
        step = 10 if num_classes <= _MOST_BY_TEN else 100
        return [(number, f"{number}", fonts[0]) for number in range(0, num_classes, step)]
    labels = []
    for number, name in enumerate(figures.names or ("",) * num_classes):
        text, font = legible(f"{number} {name}".strip(), fonts=fonts)
        labels.append((number, text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…", font))
    return labels


def _colours(confusion_KK: Tensor) -> npt.NDArray[np.uint8]:
    """Return uint8 (K, K, 3): the paper's colour for nothing, the full one for a whole row."""
    counts_KK = confusion_KK.numpy().astype(np.float64)
    shares_KK = counts_KK / np.maximum(counts_KK.sum(axis=1, keepdims=True), 1)
    inks_KK3 = np.where(np.eye(len(counts_KK), dtype=bool)[..., None], _RIGHT, _WRONG)
    # The root: among a thousand classes an error of a few per cent is still seen.
    mixed_KK3 = np.array(_PAPER) + np.sqrt(shares_KK)[..., None] * (inks_KK3 - np.array(_PAPER))
    colours_KK3: npt.NDArray[np.uint8] = np.rint(mixed_KK3).astype(np.uint8)
    return colours_KK3


def _short(count: int) -> str:
    return f"{count}" if count < 10_000 else f"{count / 1000:.0f}k"
