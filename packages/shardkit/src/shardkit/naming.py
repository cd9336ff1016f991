"""What the names of shards say where no manifest does: which shards are one dataset, and what it is for. Pure."""

from __future__ import annotations

import re

from shardkit.locations import bare_url, is_url

__all__ = ["dataset_named", "split_named"]

_NUMBER = re.compile(r"[0-9]+")
# `block_00001` is one of many folders, `cifar10` a name.
_NUMBERED_FOLDER = re.compile(r"(?:(?<=[-_/])|^)[0-9]+(?=/)")
_SUFFIX = re.compile(r"\.(?:tar|tar\.gz|tgz)$", re.IGNORECASE)
_SPLITS = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip


def dataset_named(location: str) -> str:
    """Return what tells the dataset of a shard from others: shards whose names differ in numbers alone are one.

    Shards without a number in their names are one dataset in each folder, unless their names say different splits.
    """
    folder, slash, name = _SUFFIX.sub("", _place(location)).rpartition("/")
    folder = _NUMBERED_FOLDER.sub("#", folder + slash)
    return folder + (_NUMBER.sub("#", name) if _NUMBER.search(name) else split_named(name) or "")


def split_named(location: str) -> str | None:
    """Return the split (``train``, ``val``, ``test``) that the last such word of a shard's and its folder's name says.

    Returns: None where none does. Folders further up hold more than one dataset.
    """
    names = _place(location).lower().split("/")[-2:]
    words = re.split(r"[^a-z]+", "/".join(names))
    return next((_SPLITS[word] for word in reversed(words) if word in _SPLITS), None)


def _place(location: str) -> str:
    return bare_url(location) if is_url(location) else location
