"""What the names of shards say where no manifest does: which are one dataset, what it is for, what is missing. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from shardkit.locations import bare_url, is_command, is_url

__all__ = ["dataset_named", "missing_between", "split_named"]

_NUMBER = re.compile(r"[0-9]+")
# No more digits than int() is quick with.
_NUMBER_APART = re.compile(r"([0-9]{1,18})")
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


def missing_between(locations: Iterable[str], *, there: Iterable[str] = ()) -> list[str]:
    """Return the shards that are missing in the numbering of these of one dataset, in each folder from the first on.

    Nothing where names have more than one number that changes, or where more would be missing than are there: dates,
    and what was chosen.
    Args: there: further shards, of other datasets.
    """
    by_folder: dict[str, set[str]] = {}
    for location in locations:
        folder, slash, name = _place(location).rpartition("/")
        if not is_command(location):
            by_folder.setdefault(folder + slash, set()).add(name)
    missing = [folder + name for folder, names in sorted(by_folder.items()) for name in _missing_names(names)]
    known = {_place(location) for location in there} if missing else set()
    return [location for location in missing if location not in known]


def _missing_names(names: set[str]) -> list[str]:
    split = [_NUMBER_APART.split(name) for name in sorted(names)]
    changing = [column for column, parts in enumerate(zip(*split, strict=False)) if len(set(parts)) > 1]
    # Every second part is a number.
    if len({len(parts) for parts in split}) != 1 or len(changing) != 1 or changing[0] % 2 == 0:
        return []
    (column,) = changing
    numbers = {int(parts[column]) for parts in split}
    first, last = min(numbers), max(numbers)
    if last - first + 1 > 2 * len(numbers):
        return []
    before, after = "".join(split[0][:column]), "".join(split[0][column + 1 :])
    width = min(len(parts[column]) for parts in split)
    return [f"{before}{number:0{width}d}{after}" for number in range(first, last) if number not in numbers]


def split_named(location: str) -> str | None:
    """Return the split (``train``, ``val``, ``test``) that the last such word of a shard's and its folder's name says.

    Returns: None where none does. Folders further up hold more than one dataset.
    """
    names = _place(location).lower().split("/")[-2:]
    words = re.split(r"[^a-z]+", "/".join(names))
    return next((_SPLITS[word] for word in reversed(words) if word in _SPLITS), None)


def _place(location: str) -> str:
    return bare_url(location) if is_url(location) else location
