"""Which samples of shards to take, under which labels and keys, in which order. Owns the filters and their files.

Pure but for the files of keys and labels: works on columns of numbers, a few bytes a sample.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.errors import PackError
from shardkit.seeded import seeded_permutation

__all__ = ["Relabelling", "Selection", "choose_share", "parse_labels", "read_keys", "read_relabelling"]

# 18 digits fit into 64 bits.
_LABELS = re.compile(r"(-?[0-9]{1,18})(?:-([0-9]{1,18}))?")
_LABEL = re.compile(r"-?[0-9]{1,18}")
_MAX_LABELS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What to take from shards; without settings all, as it is and as it comes.

    ``labels``: these alone. ``keys``, ``drop_keys``: files with a key a line, to take or to leave out. ``min_bytes``,
    ``max_bytes``: size of the picture's file. ``min_side``: its shorter side in pixels, at least; ``max_side``: its
    longer side, at most. ``share``: in (0, 1], this share of every class, drawn by the seed. ``relabel``: a file
    with old and new labels; samples whose label it lacks are an error, or left out with ``drop_unmapped``. ``rekey``:
    new keys ``NUMBER_KEY``. ``shuffle``: one seeded permutation of all, else in the order of the shards.
    Raises: PackError: a value out of range.
    """

    labels: tuple[int, ...] | None = None
    keys: Path | None = None
    drop_keys: Path | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    min_side: int | None = None
    max_side: int | None = None
    share: float | None = None
    relabel: Path | None = None
    drop_unmapped: bool = False
    rekey: bool = False
    shuffle: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.share is not None and not 0 < self.share <= 1:
            raise PackError(f"share {self.share}: give one above 0, and at most 1")
        if self.drop_unmapped and self.relabel is None:
            raise PackError("dropping unmapped labels needs a table of labels (--relabel)")
        for least, most, what in (
            (self.min_bytes, self.max_bytes, "bytes"),
            (self.min_side, self.max_side, "pixels a side"),
        ):
            if least is not None and most is not None and least > most:
                raise PackError(f"at least {least} and at most {most} {what}: no picture is both")

    def as_options(self) -> dict[str, object]:
        """Return what is set, as JSON values; files by the digest of their content, not by name."""
        options: dict[str, object] = {}
        for name in ("labels", "min_bytes", "max_bytes", "min_side", "max_side", "share"):
            if (value := getattr(self, name)) is not None:
                options[name] = list(value) if isinstance(value, tuple) else value
        for name in ("keys", "drop_keys", "relabel"):
            if (path := getattr(self, name)) is not None:
                options[name] = _digest(path)
        options.update({name: True for name in ("drop_unmapped", "rekey", "shuffle") if getattr(self, name)})
        return options

    def as_recipe(self) -> dict[str, object]:
        """Return all settings as JSON values, files by their absolute paths."""
        settings = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {n: str(v.absolute()) if isinstance(v, Path) else v for n, v in settings.items() if v is not None}

    @classmethod
    def from_recipe(cls, recipe: Mapping[str, Any]) -> Selection:
        """Return the selection of a recipe. Raises: TypeError: it is none. PackError."""
        paths = {name: Path(recipe[name]) for name in ("keys", "drop_keys", "relabel") if name in recipe}
        labels = {"labels": tuple(recipe["labels"])} if "labels" in recipe else {}
        return cls(**{**recipe, **paths, **labels})


@dataclass(frozen=True, slots=True)
class Relabelling:
    """New labels by old ones. ``names``: of the new classes in the order of their numbers, where the table has all."""

    labels: Mapping[int, int]
    names: tuple[str, ...]


def parse_labels(text: str) -> tuple[int, ...]:
    """Return the labels that ``0,3,7-9`` stands for, sorted. Raises: PackError: it stands for none."""
    labels: set[int] = set()
    for part in text.split(","):
        match = _LABELS.fullmatch(part.strip())
        if match is None:
            raise PackError(f"labels {text!r}: {part!r} is none. Write them like 0,3,7-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= _MAX_LABELS:
            raise PackError(f"labels {text!r}: {part!r} is no range of at most {_MAX_LABELS} labels")
        labels.update(range(first, last + 1))
    return tuple(sorted(labels))


@functools.lru_cache(maxsize=4)
def read_keys(path: Path) -> frozenset[str]:
    """Return the keys of a file, one a line; blank lines are none. Raises: PackError: no key. OSError."""
    lines = path.read_text(encoding="utf-8-sig", errors="surrogateescape").split("\n")
    keys = frozenset(key for line in lines if (key := line.removesuffix("\r")))
    if not keys:
        raise PackError(f"{path}: no keys. Write one a line")
    return keys


def read_relabelling(path: Path) -> Relabelling:
    """Read a table of labels: CSV lines ``old,new`` or ``old,new,name``; JSON ``{"old": new}`` or a list of such rows.

    Raises: PackError: a row that is none, or an old label with two new ones. OSError.
    """
    text = path.read_text(encoding="utf-8-sig")
    try:
        rows = _json_rows(text) if text.lstrip()[:1] in ("{", "[") else _csv_rows(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise PackError(f"{path}: {error}. Write lines like 17,3 (old label, new label)") from error
    labels: dict[int, int] = {}
    names: dict[int, str] = {}
    for old, new, name in rows:
        if new < 0:
            raise PackError(f"{path}: new label {new}: labels begin at 0")
        if labels.setdefault(old, new) != new:
            raise PackError(f"{path}: label {old} becomes both {labels[old]} and {new}")
        if name and names.setdefault(new, name) != name:
            raise PackError(f"{path}: label {new} is called both {names[new]!r} and {name!r}")
    if not labels:
        raise PackError(f"{path}: no labels. Write lines like 17,3 (old label, new label)")
    complete = set(names) == set(range(len(names))) and set(labels.values()) <= set(names)
    return Relabelling(labels, tuple(names[number] for number in range(len(names))) if complete else ())


def choose_share(labels: npt.NDArray[np.int64], *, share: float, seed: int) -> npt.NDArray[np.int64]:
    """Return the rows of a seeded share of every class, in order: exactly the rounded share of all in total.

    Each class gets its share rounded down; what is missing goes to the classes that lost most by it.
    """
    # The number as it is written: 0.1 has no exact float.
    exact = Fraction(str(share))
    classes, numbers = np.unique(labels, return_inverse=True)
    counts = [int(count) for count in np.bincount(numbers, minlength=len(classes))]
    quotas = [int(exact * count) for count in counts]
    missing = round(exact * len(labels)) - sum(quotas)
    by_loss = sorted(range(len(classes)), key=lambda c: (quotas[c] - exact * counts[c], c))
    for number in by_loss[:missing]:
        quotas[number] += 1
    order = np.argsort(numbers, kind="stable")
    starts = np.concatenate(([0], np.cumsum(counts)))
    chosen = [
        order[starts[c] : starts[c + 1]][seeded_permutation(counts[c], key=(seed, "sample", int(label)))[: quotas[c]]]
        for c, label in enumerate(classes)
    ]
    return np.sort(np.concatenate(chosen)) if chosen else np.empty(0, np.int64)


def _csv_rows(text: str) -> list[tuple[int, int, str]]:
    rows = []
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        is_header = number == 1 and bool(row) and not _LABEL.fullmatch(row[0].strip())
        if row and not is_header:
            rows.append(_row(row))
    return rows


def _json_rows(text: str) -> list[tuple[int, int, str]]:
    document = json.loads(text)
    rows = list(document.items()) if isinstance(document, dict) else document
    return [_row([str(value) for value in row]) for row in rows]


def _row(row: Sequence[str]) -> tuple[int, int, str]:
    """Return (old label, new label, name or nothing). Raises: ValueError."""
    if len(row) not in (2, 3) or not all(_LABEL.fullmatch(value.strip()) for value in row[:2]):
        raise ValueError(f"row {list(row)!r} is not of two labels, with a name or without")
    return int(row[0]), int(row[1]), row[2].strip() if len(row) == 3 else ""


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
