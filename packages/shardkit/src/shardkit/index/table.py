"""The table of a dataset: one row a sample, as columns in one Parquet file, written and read shard by shard.

Format ``shardkit-table`` version 1. Owns its columns and what is read of a picture for them. Needs pyarrow, imported on
use. Nothing here holds an object a sample: rows are columns from the shard to the disk and back.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xxhash

from shardkit.atomic import atomic_file
from shardkit.errors import OutputExistsError, PictureError, TableError
from shardkit.index.shard_index import Int64s, ShardIndex
from shardkit.keys import LABEL_EXTENSION, PICTURE_EXTENSIONS, picture_extension
from shardkit.pictures import open_picture
from shardkit.tar.reader import Group

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "TABLE_COLUMNS",
    "PictureLooks",
    "TableWriter",
    "is_table",
    "num_rows",
    "read_columns",
    "sample_rows",
    "table_writer",
]

_FORMAT, _VERSION = b"shardkit-table", b"1"
# Name -> (Arrow type, whether a row may lack it).
TABLE_COLUMNS: Mapping[str, tuple[str, bool]] = {
    "shard": ("string", False),
    "key": ("string", False),
    "label": ("int64", True),
    "offset": ("int64", False),
    "size": ("int64", False),
    "picture_extension": ("string", True),
    "picture_offset": ("int64", True),
    "picture_size": ("int64", True),
    "label_offset": ("int64", True),
    "label_size": ("int64", True),
    "width": ("int32", True),
    "height": ("int32", True),
    "xxh3_128": ("hash", True),
}
_HASH_BYTES = 16
# 131,072 rows are some 12 MB of columns: large enough to compress and to skip, small enough to hold a few.
_ROW_GROUP = 1 << 17


class PictureLooks:
    """What is read of the pictures of one shard, in the order of its samples: hand it to ``build_index``.

    ``widths``, ``heights``: pixels, -1 where no picture says them. ``hashes``: XXH3 (128 bits) of each picture's bytes.
    """

    def __init__(self) -> None:
        self.widths = array("i")
        self.heights = array("i")
        self.hashes = bytearray()

    def __call__(self, sample: Group) -> None:
        """Look at one sample's picture: its header and its bytes; nothing is decoded."""
        contents = {extension: content for extension, _, content in sample.parts}
        extension = picture_extension(contents)
        content = None if extension is None else contents[extension]
        width = height = -1
        if content is not None:
            with contextlib.suppress(PictureError):
                width, height = open_picture(content).size
        self.widths.append(width)
        self.heights.append(height)
        self.hashes += bytes(_HASH_BYTES) if content is None else xxhash.xxh3_128_digest(content)


def sample_rows(index: ShardIndex, looks: PictureLooks) -> pa.RecordBatch:
    """Return the rows of one shard."""
    pa = _pyarrow()
    pictures, offsets, sizes = _picture_places(index)
    labels = _places(index, LABEL_EXTENSION)
    widths, heights = np.frombuffer(looks.widths, np.int32), np.frombuffer(looks.heights, np.int32)
    names = pa.array([None, *(_text(e) for e in index.extensions)], pa.string())
    columns = {
        "shard": pa.repeat(pa.scalar(_text(index.shard)), index.num_samples),
        "key": pa.array([_text(key) for key in index.keys], pa.string()),
        "label": _nullable(index.labels, missing=index.labels == -1),
        "offset": pa.array(index.offsets),
        "size": pa.array(index.sizes),
        "picture_extension": names.take(pa.array(pictures + 1)),
        "picture_offset": _nullable(offsets, missing=pictures < 0),
        "picture_size": _nullable(sizes, missing=pictures < 0),
        "label_offset": _nullable(labels[0], missing=labels[0] < 0),
        "label_size": _nullable(labels[1], missing=labels[0] < 0),
        "width": _nullable(widths, missing=widths < 0),
        "height": _nullable(heights, missing=heights < 0),
        "xxh3_128": _hashes(bytes(looks.hashes)),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=_schema())


def _schema() -> pa.Schema:
    """Return the Arrow schema of the table, with its format and version as metadata."""
    pa = _pyarrow()
    types = {"string": pa.string(), "int64": pa.int64(), "int32": pa.int32(), "hash": pa.binary(_HASH_BYTES)}
    fields = [pa.field(name, types[kind], nullable) for name, (kind, nullable) in TABLE_COLUMNS.items()]
    return pa.schema(fields, metadata={b"format": _FORMAT, b"version": _VERSION})


class TableWriter:
    """Takes the rows of one shard after the other, and holds them until they fill a row group."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._held: list[pa.RecordBatch] = []
        self._num_held = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Append the rows of one shard."""
        self._held.append(rows)
        self._num_held += rows.num_rows
        if self._num_held >= _ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        """Write what is held as a row group."""
        if self._num_held:
            self._writer.write_table(_pyarrow().Table.from_batches(self._held), row_group_size=_ROW_GROUP)
        self._held, self._num_held = [], 0


@contextlib.contextmanager
def table_writer(path: Path) -> Iterator[TableWriter]:
    """Open a table for one block; it gets its name only after the block, whole. A table that is there is replaced.

    Raises: OutputExistsError: another kind of file has the name. TableError: no pyarrow. OSError.
    """
    if path.exists() and not is_table(path):
        raise OutputExistsError(f"{path} exists and is no table of samples. Choose another name, or remove it")
    with (
        atomic_file(path, replace=True) as file,
        _parquet().ParquetWriter(file, _schema(), compression="zstd") as written,
    ):
        writer = TableWriter(written)
        yield writer
        writer.flush()


def is_table(path: Path) -> bool:
    """Tell whether the file is a table of samples of the version known here. Raises: TableError: no pyarrow."""
    pa, pq = _pyarrow(), _parquet()
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (OSError, pa.ArrowException):
        return False
    return (metadata.get(b"format"), metadata.get(b"version")) == (_FORMAT, _VERSION)


def read_columns(
    path: Path, names: Sequence[str], *, batch_rows: int = _ROW_GROUP
) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield the named columns piece by piece, as arrays of equal length; no other column is read.

    Numbers come as int64 or int32 with -1 where a row has none; ``xxh3_128`` as uint64 (rows, 2), zeros where a row has
    no picture; text as objects, so ask for it in small pieces.
    Raises: TableError: no table, or no such column. OSError.
    """
    if not path.exists():
        raise FileNotFoundError(2, "No such file", str(path))
    if not is_table(path):
        raise TableError(
            f"{path}: not a table of samples (format shardkit-table, version 1). Make one: wds index --table"
        )
    if unknown := [name for name in names if name not in TABLE_COLUMNS]:
        raise TableError(f"{path}: no column {unknown[0]!r}. Columns: {', '.join(TABLE_COLUMNS)}")
    with _parquet().ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=batch_rows, columns=list(names)):
            yield {name: _as_numpy(batch.column(name), kind=TABLE_COLUMNS[name][0]) for name in names}


def num_rows(path: Path) -> int:
    """Return the number of rows of a table. Raises: TableError. OSError."""
    with _parquet().ParquetFile(path) as file:
        return int(file.metadata.num_rows)


def _text(name: str) -> str:
    r"""Return a name as valid Unicode, as Arrow's text has to be: a byte that is not UTF-8 becomes ``\xff``."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _as_numpy(column: pa.Array, *, kind: str) -> npt.NDArray[Any]:
    if kind == "string":
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if kind == "hash":
        filled = column.fill_null(bytes(_HASH_BYTES))
        words = np.frombuffer(filled.buffers()[1], np.uint64).reshape(-1, 2)
        return words[filled.offset : filled.offset + len(filled)]
    return np.asarray(column.fill_null(-1).to_numpy())


def _picture_places(index: ShardIndex) -> tuple[Int64s, Int64s, Int64s]:
    """Return for each sample its picture's column in the index (-1: none), byte offset and size."""
    column = np.full(index.num_samples, -1, np.int64)
    offsets, sizes = np.full(index.num_samples, -1, np.int64), np.full(index.num_samples, -1, np.int64)
    for extension in reversed(PICTURE_EXTENSIONS):
        if extension in index.extensions:
            number = index.extensions.index(extension)
            there = index.member_offsets[:, number] >= 0
            column[there] = number
            offsets[there] = index.member_offsets[there, number]
            sizes[there] = index.member_sizes[there, number]
    return column, offsets, sizes


def _places(index: ShardIndex, extension: str) -> tuple[Int64s, Int64s]:
    if extension not in index.extensions:
        none = np.full(index.num_samples, -1, np.int64)
        return none, none
    number = index.extensions.index(extension)
    return index.member_offsets[:, number], index.member_sizes[:, number]


def _nullable(values: npt.NDArray[Any], *, missing: npt.NDArray[np.bool_]) -> pa.Array:
    return _pyarrow().array(values, mask=missing)


def _hashes(data: bytes) -> pa.Array:
    """Return hashes side by side as a column; zeros are those of no picture."""
    pa = _pyarrow()
    there = np.frombuffer(data, np.uint64).reshape(-1, 2).any(axis=1)
    valid = pa.py_buffer(np.packbits(there, bitorder="little").tobytes())
    num_rows = len(data) // _HASH_BYTES
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(_HASH_BYTES), num_rows, [valid, pa.py_buffer(data)])


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise TableError("tables need pyarrow. Install it: pip install 'shardkit[parquet]'") from error
    return pyarrow


def _parquet() -> Any:
    _pyarrow()
    import pyarrow.parquet

    return pyarrow.parquet
