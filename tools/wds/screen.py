"""What there is to draw on: width, whether bars may be blocks, and text cut and padded to columns."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from wds.text import visible

__all__ = ["Column", "Screen", "table"]

# Off a terminal the same on every machine, so that outputs can be compared.
_PLAIN_WIDTH = 100
_NARROWEST = 40
_INDENT = 4


@dataclass(frozen=True, slots=True)
class Screen:
    """``width`` in columns; ``cuts``: lines longer than that are cut; ``bar``: the letter that bars are made of."""

    width: int = _PLAIN_WIDTH
    cuts: bool = False
    bar: str = "#"

    @classmethod
    def of_stdout(cls) -> Screen:
        """Return what stdout is: off a terminal of fixed width, where nothing is cut."""
        if sys.stdout is None or not sys.stdout.isatty():
            return cls()
        blocks = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8" and os.environ.get("TERM") != "dumb"
        width = max(shutil.get_terminal_size().columns, _NARROWEST)
        return cls(width=width, cuts=True, bar="█" if blocks else "#")

    def cut(self, text: str, *, width: int) -> str:
        """Return visible text, its middle left out where it is wider than so many columns; whole off a terminal."""
        from rich.cells import cell_len, set_cell_size

        text = visible(text)
        if not self.cuts or cell_len(text) <= width:
            return text
        # The end of a name tells more than its middle.
        behind = max((width - 1) // 3, 0)
        return (
            set_cell_size(text, max(width - 1 - behind, 0)).rstrip()
            + "…"
            + set_cell_size(text[::-1], behind)[::-1].lstrip()
        )

    def wrapped(self, text: str, *, indent: int) -> list[str]:
        """Return the lines of a text that is broken between words on a terminal, and whole off one."""
        text = visible(text)
        if not self.cuts:
            return [text]
        further = " " * indent
        return textwrap.wrap(text, self.width, subsequent_indent=further, break_on_hyphens=False) or [text]

    def bars(self, rows: Sequence[tuple[str, int]], *, side: Literal["<", ">"] = ">") -> list[str]:
        """Return a line with a bar for each (name, count), the names to this side."""
        if not rows:
            return []
        names = [self.cut(name, width=self.width // 3) for name, _ in rows]
        wide, most = max(map(_width, names)), max(count for _, count in rows)
        numbers = max(len(f"{count:,}") for _, count in rows)
        space = min(40, self.width - _INDENT - wide - numbers - 3)
        lines = []
        for name, (_, count) in zip(names, rows, strict=True):
            bar = self.bar * max(round(space * count / max(most, 1)), 1 if count else 0)
            lines.append(f"{' ' * _INDENT}{_padded(name, wide, side)} {count:>{numbers},} {bar}".rstrip())
        return lines


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its title, its cells, and whether it is a number's (to the right)."""

    title: str
    cells: tuple[str, ...]
    right: bool = False

    @property
    def width(self) -> int:
        """The columns of text that it takes."""
        return max(map(_width, (self.title, *self.cells)))


def table(columns: Sequence[Column], screen: Screen) -> list[str]:
    """Return the lines of a table; on a terminal the first column is cut, and the last ones left out, to fit."""
    kept = list(columns)
    while screen.cuts and len(kept) > 2 and _total(kept[1:]) + min(kept[0].width, 24) > screen.width:
        kept.pop()
    first, rest = kept[0], kept[1:]
    width = max(screen.width - _total(rest), 12) if screen.cuts else first.width
    kept = [Column(first.title, tuple(screen.cut(cell, width=width) for cell in first.cells)), *rest]
    widths = [column.width for column in kept]
    rows = [[column.title for column in kept], *(list(row) for row in zip(*(c.cells for c in kept), strict=True))]
    return [
        "  ".join(
            _padded(cell, width, ">" if column.right else "<")
            for cell, width, column in zip(row, widths, kept, strict=True)
        ).rstrip()
        for row in rows
    ]


def _total(columns: Sequence[Column]) -> int:
    return sum(column.width + 2 for column in columns)


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _padded(text: str, width: int, side: str) -> str:
    space = " " * (width - _width(text))
    return space + text if side == ">" else text + space
