"""Which class each picture of the ILSVRC2012 val archive has: the development kit's files, as text.

The kit numbers its classes from 1 in an order of its own; only its table of synsets says which WordNet id a number is.
Nothing is guessed: numbers without that table are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from shardkit.errors import PackError, counted, printable

__all__ = ["read_ground_truth"]

_WNID = re.compile(r"n[0-9]{8}")
# In the kit's table the ids above are no classes but their hypernyms.
_LAST_CLASS_ID = 1000


def read_ground_truth(
    ground_truth: Path, synsets: Path | None, *, names: Mapping[str, int]
) -> tuple[list[str], tuple[str, ...]]:
    """Return the WordNet id of every picture, and all classes sorted by theirs.

    Args: names: of the pictures, each with its number from 1 on.
    Raises: PackError: a file of another shape, another count than the pictures', or numbers without synsets. OSError.
    """
    rows = _lines(ground_truth)
    by_id = None if synsets is None else _synsets(synsets)
    if len(rows) != len(names):
        raise PackError(
            f"{ground_truth}: {counted(len(rows), 'line')} for {counted(len(names), 'picture')} of the val "
            "archive. One of them is not whole"
        )
    rows = [
        (line, [*words[:-1], _wnid(words[-1], by_id, where=f"{ground_truth}: line {line}")]) for line, words in rows
    ]
    assign = _by_name if len(rows[0][1]) > 1 else _by_number
    wnids = assign(ground_truth, rows, names=names)
    classes = tuple(sorted(set(by_id.values()) if by_id is not None else set(wnids)))
    if strange := sorted(set(wnids) - set(classes)):
        raise PackError(f"{ground_truth}: {', '.join(strange[:10])}: not in {synsets}")
    return wnids, classes


def _wnid(word: str, by_id: Mapping[str, str] | None, *, where: str) -> str:
    """Return the WordNet id that a word is, or that it is the kit's id of."""
    if word.isdecimal():
        if by_id is None:
            raise PackError(
                f"{where}: ids, whose order only the development kit's table knows (meta.mat). Give it as text, a line "
                "an id: '1 n02119789 ..' (--synsets)"
            )
        word = by_id.get(word.lstrip("0"), word)
    if _WNID.fullmatch(word) is None:
        raise PackError(f"{where}: '{printable(word)}' is no WordNet id, nor an id of a class")
    return word


def _by_number(ground_truth: Path, rows: list[tuple[int, list[str]]], *, names: Mapping[str, int]) -> list[str]:
    """Return the word of every picture from the line of its number."""
    if sorted(names.values()) != list(range(1, len(names) + 1)):
        raise PackError(f"{ground_truth}: the pictures are not numbered from 1 to {len(names)}: lines fit none of them")
    return [rows[number - 1][1][0] for number in names.values()]


def _by_name(ground_truth: Path, rows: list[tuple[int, list[str]]], *, names: Mapping[str, int]) -> list[str]:
    """Return the word of every picture from the line that begins with its name, with or without its suffix."""
    words = {}
    for line, (name, *rest) in rows:
        if len(rest) != 1 or _stem(name) in words:
            raise PackError(f"{ground_truth}: line {line}: not a file name and a WordNet id, or the name again")
        words[_stem(name)] = rest[0]
    missing = [name for name in names if _stem(name) not in words]
    if missing:
        raise PackError(f"{ground_truth}: no line for {printable(', '.join(missing[:10]))}")
    return [words[_stem(name)] for name in names]


def _stem(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def _synsets(path: Path) -> dict[str, str]:
    """Return the WordNet id of each class by its number."""
    found: dict[str, str] = {}
    for line, (number, *rest) in _lines(path):
        if not number.isdecimal() or not rest or _WNID.fullmatch(rest[0]) is None:
            raise PackError(f"{path}: line {line}: not an id and a WordNet id, such as '1 n02119789'")
        if int(number) <= _LAST_CLASS_ID and found.setdefault(str(int(number)), rest[0]) != rest[0]:
            raise PackError(f"{path}: line {line}: id {number} is there twice")
    if len(set(found.values())) != len(found):
        raise PackError(f"{path}: a WordNet id has two ids")
    return found


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Return the words of each line that has any, with its number; commas part words too."""
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PackError(f"{path}: not a text file in UTF-8") from error
    rows = [(number, line.replace(",", " ").split()) for number, line in enumerate(text.splitlines(), 1)]
    if not (rows := [row for row in rows if row[1]]):
        raise PackError(f"{path}: an empty file")
    return rows
