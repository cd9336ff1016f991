"""Samples as columns of numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardkit import Selection, ShardFile, ShardReadError, build_index
from shardkit.sources.rows import Rows, ShardInput, join_rows, load_rows, repeated_key
from tests.helpers.shards import jpeg_bytes, sample_members, tar_bytes, write_samples, write_shard


def loaded(path: Path) -> tuple[ShardInput, Rows]:
    shard, rows, _ = load_rows(ShardInput(location=str(path), path=path), selection=Selection())
    return shard, rows


def test_rows_of_shards_with_other_members_are_joined_with_gaps(tmp_path: Path) -> None:
    one = loaded(write_samples(tmp_path / "a.tar", 2))[1]
    members = [("x.json", b"{}"), ("x.jpg", jpeg_bytes(1)), ("x.cls", b"7")]
    rows = join_rows([one, loaded(write_shard(tmp_path / "b.tar", members))[1]])
    assert rows.extensions == ("cls", "jpg", "json")
    assert rows.shards.tolist() == [0, 0, 1]
    assert rows.labels.tolist() == [0, 1, 7]
    assert dict(rows.members(0)) == {"cls": 1, "jpg": len(jpeg_bytes(0))}
    assert dict(rows.members(2)) == {"cls": 1, "jpg": len(jpeg_bytes(1)), "json": 2}
    assert rows.take(np.array([2, 0])).labels.tolist() == [7, 0]


def test_equal_hashes_of_different_keys_are_no_repeated_key(tmp_path: Path) -> None:
    shard, rows = loaded(write_samples(tmp_path / "a.tar", 2))
    rows.hashes[:] = 1
    assert repeated_key([shard], rows) is None
    assert "key '000000'" in str(repeated_key([shard, shard], join_rows([rows.take(np.array([0]))] * 2)))


@pytest.mark.parametrize("format", [0, 1, 2])
def test_a_key_is_read_from_the_first_header_in_every_format(tmp_path: Path, format: int) -> None:
    keys = ["a", "f/" + "n" * 90, "f" * 90 + "/" + "n" * (90 if format == 0 else 200)]
    members = [(f"{key}.{e}", c) for key in keys for e, c in (("jpg", jpeg_bytes(1)), ("cls", b"1"))]
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes(members, format=format))
    index = build_index(path)
    with ShardFile(path) as file:
        assert [file.read_key(int(o), int(s)) for o, s in zip(index.offsets, index.sizes, strict=True)] == keys
        for offset in (512, int(index.offsets[1]) + 3, path.stat().st_size - 10):
            with pytest.raises(ShardReadError):
                file.read_key(offset, 1024)


def test_what_lies_beside_the_samples_is_counted(tmp_path: Path) -> None:
    members = [("README", b""), *sample_members(1), ("notes", b""), *sample_members(1, first=1)]
    path = write_shard(tmp_path / "a.tar", members)
    assert load_rows(ShardInput(location=str(path), path=path), selection=Selection())[2]["beside"] == 2


def test_the_zeros_that_fill_the_last_record_are_no_member(tmp_path: Path) -> None:
    # Behind the samples the end marker takes two blocks; where they open a record of 20, 19 more of zeros follow.
    for content_blocks in range(20):
        members = [*sample_members(1), ("000000.json", b"x" * 512 * content_blocks)]
        path = write_shard(tmp_path / f"{content_blocks}.tar", members)
        counts = load_rows(ShardInput(location=str(path), path=path), selection=Selection())[2]
        assert counts["beside"] == 0, content_blocks


def test_a_small_file_behind_the_samples_is_counted(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.tar", [*sample_members(2), (".note", b"")])
    assert load_rows(ShardInput(location=str(path), path=path), selection=Selection())[2]["beside"] == 1
