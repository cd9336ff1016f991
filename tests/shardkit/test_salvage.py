from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from shardkit import ShardReadError, build_index, salvage_index
from tests.helpers.shards import sample_members, write_samples, write_shard


def test_a_sound_shard_has_the_index_it_always_has_and_no_faults(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 4)
    salvage, index = salvage_index(path), build_index(path)
    assert not salvage.faults
    assert (salvage.index.keys, salvage.index.checksum) == (index.keys, index.checksum)
    assert salvage.index.offsets.tolist() == index.offsets.tolist()


def test_a_duplicate_and_parts_that_lie_apart_are_rows_that_cannot_be_read(tmp_path: Path) -> None:
    members = sample_members(4)
    twice = [*members[:3], members[2], *members[3:6], members[6], members[0], members[7]]
    salvage = salvage_index(write_shard(tmp_path / "s.tar", twice))
    assert salvage.index.keys == ("000000", "000001", "000002", "000003")
    assert {row: fault.rule for row, fault in salvage.faults.items()} == {0: "WDS020", 1: "WDS004", 3: "WDS020"}


@pytest.mark.parametrize(("num_bytes", "keys"), [(8300, ("000003",)), (7700, ("(from byte 7680 on)",))])
def test_a_cut_is_one_row_more_at_the_place_of_the_damage(tmp_path: Path, num_bytes: int, keys: tuple[str]) -> None:
    path = write_samples(tmp_path / "s.tar", 6)
    path.write_bytes(path.read_bytes()[:num_bytes])
    salvage = salvage_index(path)
    last = salvage.index.num_samples - 1
    assert salvage.index.keys[last:] == keys
    assert {row: fault.rule for row, fault in salvage.faults.items()} == {last: "WDS002"}
    assert salvage.index.num_bytes == num_bytes


def test_gzip_has_no_offsets_to_salvage(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 2)
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(ShardReadError, match="WDS012"):
        salvage_index(path)
