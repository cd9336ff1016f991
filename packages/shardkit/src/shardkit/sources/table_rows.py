"""Read the rows of a table: CSV, TSV, JSONL or Parquet, one after the other, whatever its length.

Owns the formats, the encoding and which columns are meant. A row that cannot be understood is handed out as such, with
its line; a file that cannot be understood as a whole is an error.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from shardkit.errors import PackError, counted, printable

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

__all__ = ["Columns", "Row", "read_rows"]

_IMAGE_NAMES = (
    "path",
    "filename",
    "file",
    "file_name",
    "filepath",
    "file_path",
    "image",
    "image_path",
    "url",
    "image_url",
)
_LABEL_NAMES = ("label", "class", "cls", "target", "class_name")
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns that hold path or URL, label, and key (None: no such column)."""

    image: str | None = None
    label: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its number (the line in a text file, else the row, from 1), and its values as they stand there.

    ``problem``: why the row cannot be used; the values mean nothing then.
    """

    number: int
    image: object = None
    label: object = None
    key: object = None
    problem: str = ""


def read_rows(table: Path, columns: Columns) -> tuple[Columns, Iterator[Row]]:
    """Return the columns that are meant, and the rows.

    Raises: PackError, also while rows are read: a format that is not known, no such column or several that may be
        meant, a file that is damaged. OSError.
    """
    reader = _READERS.get(table.suffix.lower())
    if reader is None:
        raise PackError(f"{table}: a table ends in one of {', '.join(sorted(_READERS))}. Rename or convert it")
    return reader(table, columns)


def _read_csv(table: Path, columns: Columns, *, delimiter: str = ",") -> tuple[Columns, Iterator[Row]]:
    def rows() -> Iterator[Row]:
        with _open_text(table) as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            try:
                next(reader, None)
                for fields in reader:
                    if fields:
                        yield _csv_row(fields, header, number=reader.line_num, columns=chosen)
            except csv.Error as error:
                raise PackError(f"{table}: line {reader.line_num}: {error}. Mend the quotes of the table") from error

    with _open_text(table) as file:
        try:
            header = next(csv.reader(file, delimiter=delimiter, strict=True), [])
        except csv.Error as error:
            raise PackError(f"{table}: line 1: {error}") from error
    chosen = _choose(table, header, columns=columns)
    return chosen, rows()


def _csv_row(fields: Sequence[str], header: Sequence[str], *, number: int, columns: Columns) -> Row:
    if len(fields) != len(header):
        return Row(number, problem=f"{counted(len(fields), 'field')}, the header has {len(header)}")
    values = dict(zip(header, fields, strict=True))
    return _checked(values, number=number, columns=columns)


def _read_tsv(table: Path, columns: Columns) -> tuple[Columns, Iterator[Row]]:
    return _read_csv(table, columns, delimiter="\t")


def _read_jsonl(table: Path, columns: Columns) -> tuple[Columns, Iterator[Row]]:
    def rows() -> Iterator[Row]:
        with _open_text(table) as file:
            for number, line in enumerate(file, 1):
                if not line.isspace():
                    yield _json_row(line, number=number, columns=chosen)

    first: object = None
    with _open_text(table) as file:
        for line in file:
            if not line.isspace():
                first = _parsed(line)
                break
    if not isinstance(first, dict):
        raise PackError(f"{table}: the first line is no JSON object. JSONL has one object a line")
    chosen = _choose(table, list(first), columns=columns)
    return chosen, rows()


def _json_row(line: str, *, number: int, columns: Columns) -> Row:
    values = _parsed(line)
    return (
        _checked(values, number=number, columns=columns)
        if isinstance(values, dict)
        else Row(number, problem="no JSON object")
    )


def _parsed(line: str) -> object:
    """Return what the line holds; None for what is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _read_parquet(table: Path, columns: Columns) -> tuple[Columns, Iterator[Row]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise PackError(f"{table}: Parquet needs pyarrow. Install it: pip install 'shardkit[parquet]'") from error

    def rows() -> Iterator[Row]:
        try:
            with pyarrow.parquet.ParquetFile(table) as file:
                yield from _parquet_rows(file, chosen)
        except (pyarrow.ArrowException, OSError) as error:
            raise PackError(f"{table}: damaged: {error}") from error

    try:
        schema = pyarrow.parquet.read_schema(table)
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise PackError(f"{table}: no Parquet file: {error}") from error
    chosen = _choose(table, schema.names, columns=columns)
    return chosen, rows()


def _parquet_rows(file: ParquetFile, columns: Columns) -> Iterator[Row]:
    names = [name for name in (columns.image, columns.label, columns.key) if name is not None]
    number = 0
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(dict.fromkeys(names))):
        lists = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        for row in range(batch.num_rows):
            number += 1
            values = {name: column[row] for name, column in lists.items()}
            yield _checked(values, number=number, columns=columns)


def _checked(values: Mapping[str, object], *, number: int, columns: Columns) -> Row:
    """Return the row, its text known to be UTF-8."""
    image, label = values.get(columns.image or ""), values.get(columns.label or "")
    key = None if columns.key is None else values.get(columns.key)
    if not all(_is_utf8(value) for value in (image, label, key) if isinstance(value, str)):
        return Row(number, problem="not UTF-8")
    return Row(number, image, label, key)


def _is_utf8(text: str) -> bool:
    """Tell whether it has no surrogates: bytes that are not UTF-8 were read as such; JSON can spell them too."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _choose(table: Path, header: Sequence[str], *, columns: Columns) -> Columns:
    """Return the columns by name: those that were given, else those that are called as usual."""
    if not header:
        raise PackError(f"{table}: the first line is empty. It names the columns")
    image = _found(header, columns.image, usual=_IMAGE_NAMES)
    label = _found(header, columns.label, usual=_LABEL_NAMES)
    key = [] if columns.key is None else _found(header, columns.key, usual=())
    for what, found, given in (
        ("image", image, columns.image),
        ("label", label, columns.label),
        ("key", key, columns.key),
    ):
        if len(found) == 1 or (what == "key" and given is None):
            continue
        names = printable(", ".join(found or header)[:500])
        problem = f"no column '{given}'" if given is not None else "which column is meant is not clear"
        raise PackError(f"{table}: {problem}. There are: {names}. Name the one with the {what} (--{what}-column)")
    return Columns(image[0], label[0], key[0] if key else None)


def _found(header: Sequence[str], name: str | None, *, usual: Sequence[str]) -> list[str]:
    """Return the columns that may be meant."""
    if name is not None:
        return [column for column in header if column == name]
    return [column for column in header if column.strip().lower() in usual]


def _open_text(table: Path) -> TextIO:
    """Open a text file for the csv module; what is not UTF-8 becomes surrogates, found row by row."""
    file = open(table, encoding="utf-8-sig", errors="surrogateescape", newline="")  # noqa: SIM115  # the caller closes it
    if file.read(2).encode("utf-8", "surrogateescape") in (b"\xff\xfe", b"\xfe\xff"):
        file.close()
        raise PackError(f"{table}: UTF-16. Save the table as UTF-8")
    file.seek(0)
    return file


_READERS: dict[str, Callable[[Path, Columns], tuple[Columns, Iterator[Row]]]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
}
