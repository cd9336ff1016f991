"""Samples to pack from a table: one row a picture, by its path or URL, with its label and perhaps its key."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import numpy as np
import xxhash

from shardkit.errors import PackError, PictureError, SourceError, printable
from shardkit.keys import LABEL_EXTENSION, PICTURE_EXTENSIONS, split_name
from shardkit.locations import bare_url
from shardkit.pictures import open_picture
from shardkit.seeded import seeded_permutation
from shardkit.sources.columns import Int64s, TextColumn, TextColumnBuilder
from shardkit.sources.fetch import FetchError, fetch, require_fetching
from shardkit.sources.folder import plain_stem, read_picture
from shardkit.sources.labels import NO_LABEL, LabelNumbers
from shardkit.sources.source import SourceSample, listing_digest
from shardkit.sources.table_rows import Columns, Row, read_rows

__all__ = ["TableSource", "open_table"]

# Any scheme but these two is refused: nothing that a table says is run, and no local file is read by URL.
_WEB = ("http://", "https://")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|pipe:")
_UNKNOWN_SIZE = -1
_EXTENSIONS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "PPM": "ppm", "BMP": "bmp", "GIF": "gif", "TIFF": "tif"}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TableSource:
    """The pictures of a table, with their bytes as they are. Make one with :func:`open_table`.

    By row: ``images`` (path or URL), ``keys`` (None: made from number and name), ``labels``, ``sizes`` in bytes when
    listed (-1: not known), ``numbers`` (the line or row in the file), ``problems`` (why a row cannot be used).
    ``order``: the rows in packing order.
    """

    table: Path
    root: Path
    columns: Columns
    images: TextColumn
    keys: TextColumn | None
    labels: Int64s
    sizes: Int64s
    numbers: Int64s
    problems: Mapping[int, str]
    order: Int64s
    classes: tuple[str, ...]
    num_classes: int
    class_order: str
    shuffled: bool
    split: str
    seed: int
    val_share: float | None

    @property
    def options(self) -> Mapping[str, object]:
        """How the table was read; not where it lies."""
        return {
            "source": "table",
            "image_column": self.columns.image,
            "label_column": self.columns.label,
            "key_column": self.columns.key,
            "val_share": self.val_share,
        }

    @property
    def recipe(self) -> Mapping[str, object]:
        """The arguments of :func:`open_table`."""
        return {
            "kind": "table",
            "table": str(self.table.absolute()),
            "root": str(self.root.absolute()),
            "image_column": self.columns.image,
            "label_column": self.columns.label,
            "key_column": self.columns.key,
            "split": self.split,
            "seed": self.seed,
            "val_share": self.val_share,
            "shuffle": self.shuffled,
        }

    @property
    def fingerprint(self) -> str:
        """Over path or URL, key, label, size and problem of every row, in order."""
        rows = (int(row) for row in self.order)
        return listing_digest(
            (
                self.images[row],
                None if self.keys is None else self.keys[row],
                int(self.labels[row]),
                int(self.sizes[row]),
                self.problems.get(row),
            )
            for row in rows
        )

    def __len__(self) -> int:
        return len(self.order)

    def content_sizes(self, number: int) -> tuple[int, ...] | None:
        """Return the size of the file when it was listed, and of the label; None for a URL."""
        row = int(self.order[number])
        if row in self.problems:
            return ()
        size = int(self.sizes[row])
        return None if size == _UNKNOWN_SIZE else (size, len(str(int(self.labels[row]))))

    def member_names(self, number: int) -> tuple[str, ...]:
        """Return the names that the picture and its label get."""
        row = int(self.order[number])
        if row in self.problems:
            return ()
        key = self._key(number)
        return f"{key}.{_extension_in(self.images[row]) or 'jpg'}", f"{key}.{LABEL_EXTENSION}"

    def sample(self, number: int) -> SourceSample:
        """Read or fetch one picture and see that it begins as one does.

        Raises: SourceError: naming row and picture: the row cannot be used, or the picture is gone, none, or has
            changed since it was listed.
        """
        row = int(self.order[number])
        image = self.images[row]
        is_url = image.startswith(_WEB)
        shown = bare_url(image) if is_url else image
        where = f"{self.table.name}: row {int(self.numbers[row])}" + (f": {shown}" if shown else "")
        if row in self.problems:
            raise SourceError(where, self.problems[row])
        picture = (
            _fetched(image, where)
            if is_url
            else read_picture(self.root / image, origin=where, size=int(self.sizes[row]))
        )
        extension = _extension_in(image) or _extension_of(picture)
        members = ((extension, picture), (LABEL_EXTENSION, str(int(self.labels[row])).encode()))
        return SourceSample(self._key(number), members, origin=shown)

    def _key(self, number: int) -> str:
        row = int(self.order[number])
        if self.keys is not None:
            return self.keys[row]
        return f"{number:08d}_{plain_stem(_name_in(self.images[row]).partition('.')[0])}"


def open_table(
    table: Path,
    *,
    columns: Columns = Columns(),  # noqa: B008  # frozen
    root: Path | None = None,
    split: str = "train",
    seed: int = 0,
    val_share: float | None = None,
    shuffle: bool = True,
) -> TableSource:
    """List a table: CSV, TSV (with a header), JSONL (an object a line) or Parquet, by its suffix; text is UTF-8.

    Labels that are all whole numbers are taken as they are; others are classes, numbered by name. A row without path or
    label, with a scheme other than http(s), or with a key that is taken or cannot be stored, is a sample that cannot be
    used.
    About 60 bytes and the texts are kept of each row.
    Args: columns: those that are not given are found by their usual names. root: where relative paths begin, else the
        table's folder. val_share, shuffle: as for ``open_folder``; rows that cannot be used belong to ``train``.
    Raises: PackError: a table or a column that cannot be read, no row. OSError.
    """
    if val_share is not None and not 0 < val_share < 1:
        raise PackError(f"val share {val_share}: give a share between 0 and 1, such as 0.1")
    chosen, rows = read_rows(table, columns)
    listing = _Listing(root if root is not None else table.parent, with_keys=chosen.key is not None)
    for row in rows:
        listing.add(row)
    source = listing.source(table, chosen)
    order = np.arange(len(source.images), dtype=np.int64)
    if val_share is not None:
        order = _chosen(source, split=split, seed=seed, val_share=val_share)
    if not len(order):
        raise PackError(f"{table}: no row is left to pack for the split '{split}'")
    if shuffle:
        order = order[seeded_permutation(len(order), key=(seed, "pack", split))]
    return replace(source, order=order, shuffled=shuffle, split=split, seed=seed, val_share=val_share)


class _Listing:
    """The rows so far, in columns."""

    def __init__(self, root: Path, *, with_keys: bool) -> None:
        self._root = root
        self._images = TextColumnBuilder()
        self._keys = TextColumnBuilder() if with_keys else None
        self._labels = LabelNumbers()
        self._provisional, self._sizes, self._numbers = array("q"), array("q"), array("q")
        # 64 bits of each key: 10 million of them collide by chance once in 370,000 tables.
        self._seen_keys: set[int] = set()
        self._problems: dict[int, str] = {}
        self._with_urls = False

    def add(self, row: Row) -> None:
        """Take in one row."""
        number = self._labels.number_of(row.label)
        image = row.image if isinstance(row.image, str) else ""
        key = "" if row.key is None else str(row.key)
        problem = row.problem or self._problem_of(row, image) or (self._problem_of_key(key) if self._keys else "")
        if problem:
            self._problems[len(self._numbers)] = problem
        self._images.append(image)
        self._provisional.append(number)
        self._numbers.append(row.number)
        self._sizes.append(_UNKNOWN_SIZE if image.startswith(_WEB) else _size_of(self._root, image, problem=problem))
        if self._keys is not None:
            self._keys.append(key)

    def source(self, table: Path, columns: Columns) -> TableSource:
        """Return all rows in the order of the table, once the labels' meaning is known."""
        if not self._numbers:
            raise PackError(f"{table}: no rows")
        try:
            labels = self._labels.resolve(self._provisional)
        except PackError as error:
            first = next(iter(self._problems.items()), None)
            told = "" if first is None else f"row {self._numbers[first[0]]}: {first[1]}; "
            raise PackError(f"{table}: {told}{error}") from error
        for row in np.flatnonzero(labels.numbers == NO_LABEL).tolist():
            self._problems.setdefault(row, "a label that is no class: whole numbers from 0 up, or text")
        return TableSource(
            table=table,
            root=self._root,
            columns=columns,
            images=self._images.column(),
            keys=None if self._keys is None else self._keys.column(),
            labels=labels.numbers,
            sizes=np.array(self._sizes, np.int64),
            numbers=np.array(self._numbers, np.int64),
            problems=self._problems,
            order=np.empty(0, np.int64),
            classes=labels.classes,
            num_classes=labels.num_classes,
            class_order=labels.class_order,
            shuffled=False,
            split="train",
            seed=0,
            val_share=None,
        )

    def _problem_of(self, row: Row, image: str) -> str:
        if not image.strip() or "\0" in image:
            return "no path" if row.image is None or not str(row.image).strip() else "a path that is none"
        if row.label is None or not str(row.label).strip():
            return "no label"
        if _SCHEME.match(image) and not image.startswith(_WEB):
            return "only http and https are fetched, and nothing is run. Give a path"
        if image.startswith(_WEB) and not self._with_urls:
            require_fetching()
            self._with_urls = True
        return ""

    def _problem_of_key(self, key: str) -> str:
        if split_name(f"{key}.jpg") != (key, "jpg") or "\0" in key:
            return f"key '{printable(key)}' cannot be stored: no dot in its last part, and not empty"
        digest = xxhash.xxh3_64_intdigest(key.encode())
        if digest in self._seen_keys:
            return f"key '{printable(key)}' is another row's too"
        self._seen_keys.add(digest)
        return ""


def _chosen(source: TableSource, *, split: str, seed: int, val_share: float) -> Int64s:
    """Return the rows that belong to the split: of every class its share."""
    usable = np.ones(len(source.images), bool)
    usable[list(source.problems)] = False
    is_val = np.zeros(len(usable), bool)
    for label in np.unique(source.labels[usable]).tolist():
        rows = np.flatnonzero(usable & (source.labels == label))
        name = source.classes[label] if source.classes else str(label)
        order = seeded_permutation(len(rows), key=(seed, "split", name))
        is_val[rows[order[: round(val_share * len(rows))]]] = True
    return np.flatnonzero(is_val if split == "val" else ~is_val)


def _size_of(root: Path, image: str, *, problem: str) -> int:
    """Return the size of a file; 0 for one that cannot be looked at: reading it will say why."""
    if problem:
        return 0
    try:
        # Not pathlib, which would keep each name for good, and takes three times as long.
        return os.stat(os.path.join(root, image)).st_size
    except (OSError, ValueError):
        return 0


def _name_in(image: str) -> str:
    """Return the last part of a path or URL."""
    # Not urlsplit, which raises ValueError for half an IPv6 address.
    path = image.partition("://")[2].partition("?")[0].partition("#")[0].partition("/")[2]
    return PurePosixPath(unquote(path) if image.startswith(_WEB) else image).name


def _extension_in(image: str) -> str | None:
    """Return the extension that the name has, None where it has no picture's."""
    suffix = _name_in(image).rpartition(".")[2].lower()
    suffix = "jpg" if suffix == "jpeg" else suffix
    return suffix if suffix in PICTURE_EXTENSIONS else None


def _extension_of(picture: bytes) -> str:
    """Return the extension that goes with the content."""
    return _EXTENSIONS.get(open_picture(picture).format or "", "jpg")


def _fetched(url: str, where: str) -> bytes:
    try:
        picture = fetch(url)
        open_picture(picture)
    except FetchError as error:
        raise SourceError(where, str(error)) from error
    except PictureError as error:
        raise SourceError(where, error.reason) from error
    return picture
