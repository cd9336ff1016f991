"""What an extension says of a member, so that it is asked once for each of the few that there are. Pure: no I/O."""

from __future__ import annotations

from typing import NamedTuple

from shardkit.keys import LABEL_EXTENSION, PICTURE_EXTENSIONS, is_part_of_sample

__all__ = ["Extension", "extension_of"]

# What readers unpickle by its extension.
_PICKLED = frozenset({"pickle", "pkl", "pt", "pth", "pyd"})


class Extension(NamedTuple):
    """What is to be known of an extension; ``name``, in lower case, is the one string of it that all parts share."""

    name: str
    is_label: bool
    is_picture: bool
    is_part: bool
    is_pickle: bool


def extension_of(name: str) -> Extension:
    """Return what is to be known of an extension in lower case."""
    return Extension(
        name=name,
        is_label=name == LABEL_EXTENSION,
        is_picture=name in PICTURE_EXTENSIONS,
        is_part=is_part_of_sample(name),
        is_pickle=name.rpartition(".")[2] in _PICKLED,
    )
