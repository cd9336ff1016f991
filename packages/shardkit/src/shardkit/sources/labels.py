"""From the labels of a table's rows to class numbers: whole numbers as they are, or text classes sorted by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardkit.errors import PackError, counted, printable
from shardkit.sources.columns import Int64s

__all__ = ["NO_LABEL", "LabelNumbers", "Labels"]

# The number of a row whose label cannot be used.
NO_LABEL = -1
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# More digits than any label has, and few enough for int().
_MAX_DIGITS = 18
# Each class may have a name in the manifest, and has a row in the model.
_MAX_CLASSES = 1 << 20


@dataclass(frozen=True, slots=True)
class Labels:
    """The class number of each row, NO_LABEL where it has none; how many classes there are, and in which order.

    ``classes``: their names; empty where the labels are numbers.
    """

    numbers: Int64s
    classes: tuple[str, ...]
    num_classes: int
    class_order: str


class LabelNumbers:
    """Labels as they come, row by row: each different one is kept once."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}

    def number_of(self, label: object) -> int:
        """Return the number that stands for the label for now, NO_LABEL for none, or one of no use."""
        if label is None or isinstance(label, bool) or not isinstance(label, str | int):
            return NO_LABEL
        text = str(label).strip()
        return self._texts.setdefault(text, len(self._texts)) if text else NO_LABEL

    def resolve(self, provisional: Sequence[int]) -> Labels:
        """Return the true numbers, once all labels are known.

        Raises: PackError: no label at all, numbers that are not all whole, or more than 2**20 classes.
        """
        texts = list(self._texts)
        classes: tuple[str, ...] = ()
        if not texts:
            raise PackError("no row has a label. Name the column that holds it (--label-column)")
        if all(_INTEGER.fullmatch(text) for text in texts):
            longest = max(texts, key=len)
            values = [int(text) for text in texts] if len(longest) <= _MAX_DIGITS else []
            if not values or max(values) >= _MAX_CLASSES:
                largest = max(values) if values else f"{longest[:_MAX_DIGITS]}.."
                raise PackError(f"label {largest}: at most {_MAX_CLASSES - 1}. Number the classes from 0")
            numbers = np.array([value if value >= 0 else NO_LABEL for value in values], np.int64)
            # Numbers as names would make two sets differ where just their highest labels do.
            num_classes = max(values) + 1
            order = "by number, as the table has them"
        elif all(_NUMBER.fullmatch(text) for text in texts):
            # As text, 10.0 would come before 2.0.
            odd = next(text for text in texts if not _INTEGER.fullmatch(text))
            raise PackError(
                f"the labels are numbers, but not all whole ones, such as {printable(odd)}. Write whole numbers"
            )
        else:
            if len(texts) > _MAX_CLASSES:
                raise PackError(
                    f"{counted(len(texts), 'class/classes')}, such as {printable(texts[0])}: at most {_MAX_CLASSES}"
                )
            classes, num_classes = tuple(sorted(texts)), len(texts)
            place = {text: number for number, text in enumerate(classes)}
            numbers = np.array([place[text] for text in texts], np.int64)
            order = "by name, as text"
        # The row without a label looks up the last entry.
        lookup = np.append(numbers, NO_LABEL)
        return Labels(lookup[np.asarray(provisional, np.int64)], classes, num_classes, order)
