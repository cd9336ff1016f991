from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from shardkit import (
    IndexFileError,
    ShardFile,
    ShardIndex,
    ShardReadError,
    build_index,
    file_checksum,
    index_from_json,
    index_path_of,
    read_index,
    write_index,
)
from shardkit.index.shard_index import index_to_json
from tests.helpers.shards import layout, sample_members, tar_bytes, write_samples, write_shard


def document(path: Path) -> dict[str, Any]:
    """Return the index of a shard of three samples as its JSON object."""
    loaded: dict[str, Any] = json.loads(index_to_json(build_index(write_samples(path, 3))))
    return loaded


def same(first: ShardIndex, second: ShardIndex) -> bool:
    return index_to_json(first) == index_to_json(second)


class TestBuilding:
    def test_keys_labels_and_places_are_those_of_the_shard(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path / "x.tar", 3, first=4)
        index = build_index(path)
        places = layout(path.read_bytes())
        assert index.shard == "x.tar"
        assert index.keys == ("000004", "000005", "000006")
        assert index.labels.tolist() == [4, 5, 6]
        assert index.extensions == ("cls", "jpg")
        assert index.offsets.tolist() == [place.header for place in places[::2]]
        assert index.member_offsets.tolist() == [[places[n + 1].content, places[n].content] for n in (0, 2, 4)]
        assert index.member_sizes.tolist() == [[places[n + 1].size, places[n].size] for n in (0, 2, 4)]
        assert (index.offsets + index.sizes).tolist() == [5 * 512, 10 * 512, 15 * 512]
        assert (index.num_bytes, index.checksum) == (path.stat().st_size, file_checksum(path))

    def test_a_member_that_a_sample_lacks_is_minus_1(self, tmp_path: Path) -> None:
        members = [*sample_members(1), ("b.jpg", b"j"), ("b.json", b"{}"), ("c.jpg", b"j"), ("c.cls", b"tench")]
        index = build_index(write_shard(tmp_path / "x.tar", members))
        assert index.extensions == ("cls", "jpg", "json")
        assert index.labels.tolist() == [0, -1, -1]
        assert (index.member_sizes == -1).tolist() == [[False, False, True], [True, False, False], [False, False, True]]

    def test_side_files_are_not_indexed(self, tmp_path: Path) -> None:
        members = [("README", b"r"), ("notes.txt", b"n"), *sample_members(1), ("._x.jpg", b"a")]
        assert build_index(write_shard(tmp_path / "x.tar", members)).keys == ("000000",)

    def test_a_shard_without_samples_has_an_empty_index(self, tmp_path: Path) -> None:
        index = build_index(write_shard(tmp_path / "x.tar", []))
        assert (index.num_samples, index.extensions) == (0, ())
        assert same(index_from_json(index_to_json(index)), index)

    @pytest.mark.parametrize(
        ("data", "rule"),
        [
            (b"<html>" * 100, "WDS001"),
            (tar_bytes(sample_members(3))[:6000], "WDS002"),
            (tar_bytes([("a.jpg", b"1"), ("a.jpg", b"2")]), "WDS004"),
            (tar_bytes(sample_members(2)) * 2, "WDS007"),
            (b"", "WDS008"),
            (gzip.compress(tar_bytes(sample_members(2))), "WDS012"),
            (tar_bytes([("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"0")]), "WDS020"),
        ],
    )
    def test_a_damaged_shard_is_not_indexed_at_all(self, tmp_path: Path, data: bytes, rule: str) -> None:
        path = tmp_path / "x.tar"
        path.write_bytes(data)
        with pytest.raises(ShardReadError) as caught:
            build_index(path)
        assert caught.value.rule == rule

    def test_a_shard_that_may_be_cut_in_its_last_sample_is_not_indexed(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path / "x.tar", 3)
        path.write_bytes(path.read_bytes()[: layout(path.read_bytes())[5].header])
        with pytest.raises(ShardReadError, match="lacks cls"):
            build_index(path)

    def test_every_sample_can_be_read_at_its_place(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path / "x.tar", 4)
        index = build_index(path)
        with ShardFile(path) as shard:
            for row, key in enumerate(index.keys):
                assert shard.read_sample(int(index.offsets[row]), int(index.sizes[row])).key == key


class TestFile:
    def test_an_index_survives_its_file(self, tmp_path: Path) -> None:
        index = build_index(write_samples(tmp_path / "x.tar", 3))
        write_index(index, tmp_path / "x.tar.index.json")
        assert same(read_index(tmp_path / "x.tar.index.json"), index)

    def test_names_that_are_not_utf8_survive(self, tmp_path: Path) -> None:
        index = build_index(write_shard(tmp_path / "x.tar", [("caf\udce9.jpg", b"1"), ("caf\udce9.cls", b"0")]))
        data = index_to_json(index)
        data.decode("ascii")
        assert index_from_json(data).keys == ("caf\udce9",)

    @pytest.mark.parametrize(
        ("shard", "path"),
        [
            ("d/x.tar", "d/x.tar.index.json"),
            ("http://host/x.tar?sig=a", "http://host/x.tar.index.json?sig=a"),
            ("d/what?.tar", "d/what?.tar.index.json"),
        ],
    )
    def test_the_index_lies_beside_its_shard(self, shard: str, path: str) -> None:
        assert index_path_of(shard) == path

    @pytest.mark.parametrize("data", [b"", b"{", b"[]", b"5", b'"text"', b"null", b"\xff\xfe", b"[" * 100_000, b"{}"])
    def test_what_is_no_index_is_refused(self, data: bytes) -> None:
        with pytest.raises(IndexFileError, match="not an index file"):
            index_from_json(data)

    def test_every_cut_of_an_index_file_is_refused(self, tmp_path: Path) -> None:
        data = index_to_json(build_index(write_samples(tmp_path / "x.tar", 1)))
        for length in range(len(data) - 2):
            with pytest.raises(IndexFileError):
                index_from_json(data[:length])

    def test_a_version_from_the_future_is_refused_by_name(self, tmp_path: Path) -> None:
        with pytest.raises(IndexFileError, match="version 2 is not known here"):
            index_from_json(json.dumps(document(tmp_path / "x.tar") | {"version": 2}).encode())

    @pytest.mark.parametrize(
        "change",
        [
            {"keys": ["a", "b"]},
            {"keys": ["a", "b", "b"]},
            {"keys": ["a", "b", 3]},
            {"keys": None},
            {"labels": [0, 1]},
            {"labels": [0, 1, 2**70]},
            {"labels": [0, 1, 1.5]},
            {"labels": [[0], [1], [2]]},
            {"labels": [True, False, True]},
            {"offsets": [0, 2560, "x"]},
            {"offsets": [0, 0, 2560]},
            {"offsets": [-512, 2560, 5120]},
            {"sizes": [2560, 0, 2560]},
            {"sizes": [2560, -2560, 2560]},
            {"extensions": "jpg"},
            {"extensions": ["jpg", "cls", "png"]},
            {"member_offsets": {"jpg": [0, 1], "cls": [0, 1]}},
            {"member_sizes": {"jpg": [0, 1, 2], "cls": [0, 1]}},
            {"member_sizes": [0, 1, 2]},
            {"num_bytes": "many"},
            {"num_bytes": 2**70},
            {"xxh3_128": None},
            {"shard": 7},
            {"origins": ["a.jpg"]},
            {"origins": 5},
        ],
        ids=str,
    )
    def test_an_index_that_fits_no_shard_is_refused(self, tmp_path: Path, change: dict[str, object]) -> None:
        damaged = document(tmp_path / "x.tar") | change
        with pytest.raises(IndexFileError):
            index_from_json(json.dumps(damaged).encode())

    def test_the_file_and_the_remedy_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "x.tar.index.json").write_bytes(b"{}")
        with pytest.raises(IndexFileError, match=r"x\.tar\.index\.json: not an index file .* index the shard again"):
            read_index(tmp_path / "x.tar.index.json")
