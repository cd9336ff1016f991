"""The content of a ``cls`` member -> its class number. Pure."""

from __future__ import annotations

import re

__all__ = ["is_plain_label", "parse_label"]

# Plain ASCII digits only: int() would also take 1_000, full-width digits and other surprises.
_INTEGER = re.compile(rb"\s*([+-]?[0-9]{1,18})\s*")
_PLAIN = re.compile(rb"0|-?[1-9][0-9]*")


def parse_label(content: bytes) -> int | None:
    """Return the integer the content holds, None where it holds none. It may be negative: ranges are checked apart."""
    # Nearly every label is so.
    if content.isdigit() and len(content) <= 18:
        return int(content)
    match = _INTEGER.fullmatch(content)
    return None if match is None else int(match[1])


def is_plain_label(content: bytes) -> bool:
    """Tell whether the content is an integer as it is usually written: ``0``, ``42`` or ``-1``, and nothing else."""
    return _PLAIN.fullmatch(content) is not None
