"""Text fit for a terminal: names that are not UTF-8 escaped, secrets in URLs masked, colour only where it is wanted."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

__all__ = ["WIPE", "can_redraw", "counted", "masked", "valid", "visible", "wants_colour"]

# Goes to the first column and wipes the line.
WIPE = "\r\x1b[K"
# What moves the cursor, changes colours, or turns the direction of writing (which hides what a name is).
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def counted(number: int, noun: str, *, spec: str = "") -> str:
    """Return ``1 shard`` or ``2 shards``: shardkit's function of that name, imported when it is needed."""
    from shardkit import counted as with_noun

    return with_noun(number, noun, spec=spec)


def masked(text: str) -> str:
    """Return the text with users, passwords and query values of its URLs masked."""
    if "://" not in text:
        return text
    from shardkit import mask_urls

    return mask_urls(text)


def valid(text: str) -> str:
    r"""Return the text as valid Unicode: a byte of a file name that is not UTF-8 becomes ``\xff``."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def visible(text: str) -> str:
    r"""Return the text as valid Unicode without control characters but line ends and tabs: ``\x1b`` for an escape."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), valid(text))


def wants_colour(stream: TextIO | None = None) -> bool:
    """Honour NO_COLOR, FORCE_COLOR and TERM=dumb for what goes to a stream (stderr unless told otherwise)."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or can_redraw(stream)


def can_redraw(stream: TextIO | None = None) -> bool:
    """Tell whether a stream (stderr unless told otherwise) is a terminal that can wipe a line."""
    stream = sys.stderr if stream is None else stream
    # A closed stderr is None.
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
