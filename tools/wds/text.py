"""Text fit for a terminal: names that are not UTF-8 escaped, secrets in URLs masked, colour only where it is wanted."""

from __future__ import annotations

import os
import sys

__all__ = ["WIPE", "can_redraw", "masked", "visible", "wants_colour"]

# Goes to the first column and wipes the line.
WIPE = "\r\x1b[K"


def masked(text: str) -> str:
    """Return the text with users, passwords and query values of its URLs masked."""
    if "://" not in text:
        return text
    from shardkit import mask_urls

    return mask_urls(text)


def visible(text: str) -> str:
    r"""Return the text as valid Unicode: a byte of a file name that is not UTF-8 becomes ``\xff``."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def wants_colour() -> bool:
    """Honour NO_COLOR, FORCE_COLOR and TERM=dumb for what goes to stderr."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or can_redraw()


def can_redraw() -> bool:
    """Tell whether stderr is a terminal that can wipe a line."""
    # A closed stderr is None.
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
