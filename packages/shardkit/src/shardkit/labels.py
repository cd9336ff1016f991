"""The content of a ``cls`` member -> its class number. Pure."""

from __future__ import annotations

import re

__all__ = ["parse_label"]

# Plain ASCII digits only: int() would also take 1_000, full-width digits and other surprises.
_INTEGER = re.compile(rb"\s*([+-]?[0-9]{1,18})\s*")


def parse_label(content: bytes) -> int | None:
    """Return the integer the content holds, None where it holds none. It may be negative: ranges are checked apart."""
    match = _INTEGER.fullmatch(content)
    return None if match is None else int(match[1])
