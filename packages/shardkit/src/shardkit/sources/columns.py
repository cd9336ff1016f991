"""Text of many rows without a Python object for each: one block of bytes, and where each row ends in it."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

__all__ = ["Int64s", "TextColumn", "TextColumnBuilder"]

Int64s = npt.NDArray[np.int64]


class TextColumn:
    """Texts by number: their bytes and 8 more each. Bytes that are not UTF-8 stay what they are (surrogates)."""

    def __init__(self, data: bytes, ends: Int64s) -> None:
        self._data = data
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        begin = int(self._ends[number - 1]) if number else 0
        return self._data[begin : int(self._ends[number])].decode("utf-8", "surrogateescape")


class TextColumnBuilder:
    """Texts that come one after the other."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ends = array("q")

    def append(self, text: str) -> None:
        """Add one."""
        self._data += text.encode("utf-8", "surrogateescape")
        self._ends.append(len(self._data))

    def column(self) -> TextColumn:
        """Return what has come."""
        return TextColumn(bytes(self._data), np.array(self._ends, np.int64))
