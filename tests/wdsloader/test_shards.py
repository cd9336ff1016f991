from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from shardkit import build_index, index_path_of, write_index
from tests.helpers.shards import jpeg_bytes, sample_members, write_samples, write_shard
from wdsloader.dataset import open_dataset
from wdsloader.errors import DatasetError, SampleError
from wdsloader.shards import SampleReader, ShardEntry, ShardTable


def table_of(folder: Path, counts: list[int]) -> ShardTable:
    for number, count in enumerate(counts):
        write_samples(folder / f"s-{number}.tar", count, first=sum(counts[:number]))
    return open_dataset([str(folder / "s-*.tar")]).table


def test_every_sample_number_leads_to_its_sample(tmp_path: Path) -> None:
    reader = SampleReader(table_of(tmp_path, [2, 0, 3]), max_indexes=8)
    assert [reader.read(number).content.key for number in range(5)] == [f"{n:06d}" for n in range(5)]
    assert [reader.read(number).label for number in range(5)] == list(range(5))
    reader.close()


def test_files_and_indexes_in_use_stay_within_their_limits(tmp_path: Path) -> None:
    table = table_of(tmp_path, [1] * 30)
    reader = SampleReader(table, max_indexes=4, max_files=2)
    before = open_files()
    for number in [*range(30), *range(30)]:
        reader.read(number)
        assert open_files() - before <= 2
    reader.close()
    assert open_files() == before


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_table_can_be_sent_to_another_process(tmp_path: Path) -> None:
    table = pickle.loads(pickle.dumps(table_of(tmp_path, [2, 3])))
    assert table.locate(4) == (1, 2)
    assert SampleReader(table, max_indexes=1).read(4).content.key == "000004"


def test_a_stale_index_is_an_error_that_names_both_keys(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 3)
    index = build_index(path)
    write_index(replace(index, keys=("000000", "other", "000002")), Path(index_path_of(str(path))))
    reader = SampleReader(open_dataset([str(path)]).table, max_indexes=1)
    with pytest.raises(SampleError, match="the index has 'other' here, the shard '000001'") as caught:
        reader.read(1)
    assert (caught.value.shard, caught.value.key) == (str(path), "000001")
    assert caught.value.offset == index.offsets[1]


def test_a_shard_replaced_by_one_of_the_same_layout_is_found_by_its_labels(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 3)
    table = open_dataset([str(path)]).table
    data = path.read_bytes()
    write_shard(path, [("000000.jpg", jpeg_bytes(0)), ("000000.cls", b"7"), *sample_members(2, first=1)])
    assert len(path.read_bytes()) == len(data)
    with pytest.raises(SampleError, match="the index has label 0 here, the shard 7: the index is stale") as caught:
        SampleReader(table, max_indexes=1).read(0)
    assert (caught.value.shard, caught.value.key) == (str(path), "000000")


def test_damage_inside_a_shard_is_an_error_of_that_sample_alone(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 3)
    table = open_dataset([str(path)]).table
    data = bytearray(path.read_bytes())
    data[int(build_index(path).offsets[1]) + 3] ^= 1
    path.write_bytes(data)
    reader = SampleReader(table, max_indexes=1)
    assert reader.read(0).content.key == "000000"
    with pytest.raises(SampleError, match=r"s.tar: '000001' at byte \d+: header checksum is"):
        reader.read(1)
    assert reader.read(2).content.key == "000002"


def test_counts_of_manifest_and_index_that_differ_are_an_error(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 3)
    open_dataset([str(path)])
    table = ShardTable((ShardEntry(url=str(path), num_samples=4),))
    with pytest.raises(DatasetError, match=r"3 samples and checksum \w+ in its index, 4 and None in its manifest"):
        SampleReader(table, max_indexes=1).read(0)


def test_a_sample_without_an_integer_label_has_label_minus_one(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "s.tar", [("a.jpg", jpeg_bytes(0)), ("b.jpg", jpeg_bytes(1)), ("b.cls", b"cat")])
    reader = SampleReader(open_dataset([str(path)]).table, max_indexes=1)
    assert [reader.read(number).label for number in (0, 1)] == [-1, -1]
