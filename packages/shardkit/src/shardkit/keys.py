"""Split member names into (key, extension), as every WebDataset reader does. Pure: no I/O.

The key is the folder and the base name up to its first dot; the extension is all that follows. Files that share a key
are one sample.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NewType

__all__ = [
    "LABEL_EXTENSION",
    "PICTURE_EXTENSIONS",
    "SampleKey",
    "is_hidden",
    "is_part_of_sample",
    "picture_extension",
    "split_name",
]

SampleKey = NewType("SampleKey", str)

LABEL_EXTENSION = "cls"
# In order of preference where one sample holds several.
PICTURE_EXTENSIONS = ("jpg", "jpeg", "png", "webp", "ppm", "bmp", "gif", "tif", "tiff")


def split_name(name: str) -> tuple[SampleKey, str] | None:
    """Return (key, extension in lower case), or None for a name that belongs to no sample.

    Dots in folder names stay in the key. A base name without a dot, or that begins with one, has no sample.
    """
    base = name.rfind("/") + 1
    dot = name.find(".", base)
    if dot <= base:
        return None
    # Calling SampleKey would take a fifth of the time, for every member of every shard.
    return name[:dot], name[dot + 1 :].lower()  # type: ignore[return-value]


def is_hidden(name: str) -> bool:
    """Tell whether the base name begins with a dot (``._twin``, ``.DS_Store``), as no sample's does."""
    return name.rpartition("/")[2].startswith(".")


def picture_extension(extensions: Container[str]) -> str | None:
    """Return the extension that holds the picture among those given, or None."""
    for extension in PICTURE_EXTENSIONS:
        if extension in extensions:
            return extension
    return None


def is_part_of_sample(extension: str) -> bool:
    """Tell whether the extension is a picture's or a label's, at least by its last suffix (``v2.jpg``)."""
    suffix = extension.rpartition(".")[2]
    return suffix == LABEL_EXTENSION or suffix in PICTURE_EXTENSIONS
