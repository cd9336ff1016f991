from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from shardkit import OutputExistsError, TableError, build_index, read_columns, table_writer
from shardkit.index.table import TABLE_COLUMNS, is_table, num_rows
from tests.helpers.shards import jpeg_bytes, write_samples, write_shard
from tests.helpers.tables import write_table

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def test_a_row_says_all_of_its_sample(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "x.tar", 3, first=7, size=(21, 13))
    index = build_index(shard)
    rows = rows_of(write_table(tmp_path / "t.parquet", [shard]))
    assert [row["key"] for row in rows] == ["000007", "000008", "000009"]
    row, data = rows[1], shard.read_bytes()
    picture = data[row["picture_offset"] : row["picture_offset"] + row["picture_size"]]
    assert picture == jpeg_bytes(8, size=(21, 13))
    assert data[row["label_offset"] : row["label_offset"] + row["label_size"]] == b"8"
    assert row["xxh3_128"] == xxhash.xxh3_128_digest(picture)
    assert (row["shard"], row["label"], row["picture_extension"]) == ("x.tar", 8, "jpg")
    assert (row["width"], row["height"]) == (21, 13)
    assert (row["offset"], row["size"]) == (index.offsets[1], index.sizes[1])


def test_what_a_sample_lacks_is_null(tmp_path: Path) -> None:
    members = [("a.jpg", jpeg_bytes(1)), ("b.cls", b"3"), ("c.png", b"no picture"), ("c.cls", b"tench"), ("d.jpg", b"")]
    a, b, c, d = rows_of(write_table(tmp_path / "t.parquet", [write_shard(tmp_path / "x.tar", members)]))
    assert (a["label"], a["label_offset"], a["width"]) == (None, None, 20)
    assert [b[name] for name in ("picture_extension", "picture_offset", "width", "xxh3_128")] == [None] * 4
    assert (c["label"], c["label_size"], c["picture_extension"], c["width"]) == (None, 5, "png", None)
    assert c["xxh3_128"] == xxhash.xxh3_128_digest(b"no picture")
    assert (d["picture_size"], d["width"]) == (0, None)


def test_of_several_pictures_the_one_that_loaders_take_is_in_the_row(tmp_path: Path) -> None:
    members = [("a.png", b"123"), ("a.cls", b"0"), ("a.jpg", jpeg_bytes(1))]
    (row,) = rows_of(write_table(tmp_path / "t.parquet", [write_shard(tmp_path / "x.tar", members)]))
    assert (row["picture_extension"], row["picture_size"]) == ("jpg", len(jpeg_bytes(1)))
    assert row["xxh3_128"] == xxhash.xxh3_128_digest(jpeg_bytes(1))


def test_names_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "x.tar", [("caf\udce9.jpg", jpeg_bytes(1)), ("caf\udce9.cls", b"0")])
    assert rows_of(write_table(tmp_path / "t.parquet", [shard]))[0]["key"] == "caf\\xe9"


def test_a_shard_without_samples_has_no_rows(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.parquet", [write_shard(tmp_path / "x.tar", [])])
    assert (is_table(table), num_rows(table)) == (True, 0)
    assert list(read_columns(table, ("label", "xxh3_128"))) == []


def test_columns_come_back_in_pieces_with_minus_1_for_what_is_not_there(tmp_path: Path) -> None:
    members = [("a.jpg", jpeg_bytes(1)), ("b.cls", b"3")]
    shards = [write_shard(tmp_path / "x.tar", members), write_samples(tmp_path / "y.tar", 2)]
    table = write_table(tmp_path / "t.parquet", shards)
    pieces = list(read_columns(table, ("label", "width", "xxh3_128", "key"), batch_rows=3))
    assert [len(piece["label"]) for piece in pieces] == [3, 1]
    assert np.concatenate([piece["label"] for piece in pieces]).tolist() == [-1, 3, 0, 1]
    assert np.concatenate([piece["width"] for piece in pieces]).tolist() == [20, -1, 20, 20]
    hashes = np.concatenate([piece["xxh3_128"] for piece in pieces])
    assert [row.tobytes() for row in hashes[[0, 1, 3]]] == [
        xxhash.xxh3_128_digest(jpeg_bytes(1)),
        bytes(16),
        xxhash.xxh3_128_digest(jpeg_bytes(1)),
    ]
    assert pieces[0]["key"].tolist() == ["a", "b", "000000"]


def test_the_columns_are_the_documented_ones(tmp_path: Path) -> None:
    schema = pq.read_schema(write_table(tmp_path / "t.parquet", [write_samples(tmp_path / "x.tar", 1)]))
    assert tuple(schema.names) == tuple(TABLE_COLUMNS)
    assert schema.metadata == {b"format": b"shardkit-table", b"version": b"1"}


def test_a_table_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="stop"), table_writer(tmp_path / "t.parquet"):
        raise RuntimeError("stop")
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_replaced_and_no_other_file(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "x.tar", 2)
    write_table(tmp_path / "t.parquet", [shard])
    assert num_rows(write_table(tmp_path / "t.parquet", [shard, shard])) == 4
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    (tmp_path / "text").write_text("mine")
    for name in ("other.parquet", "text"):
        with pytest.raises(OutputExistsError, match=f"{name} exists and is no table"):
            write_table(tmp_path / name, [shard])
    assert (tmp_path / "text").read_text() == "mine"


def test_reading_says_what_is_wrong(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.parquet", [write_samples(tmp_path / "x.tar", 1)])
    with pytest.raises(TableError, match=r"no column 'colour'\. Columns: shard, key"):
        list(read_columns(table, ("colour",)))
    with pytest.raises(TableError, match=r"x\.tar: not a table of samples"):
        list(read_columns(tmp_path / "x.tar", ("label",)))
    with pytest.raises(FileNotFoundError):
        list(read_columns(tmp_path / "none", ("label",)))


def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"pip install 'shardkit\[parquet\]'"), table_writer(tmp_path / "t.parquet"):
        pass
