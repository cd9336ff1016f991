from __future__ import annotations

import gzip
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardkit import (
    IndexedShard,
    IndexOptions,
    PatternError,
    build_index,
    index_path_of,
    index_shards,
    index_state,
    keys_in_several,
    read_index,
    write_index,
)
from shardkit.index.shard_index import index_to_json
from tests.helpers.shards import sample_members, tar_bytes, write_samples, write_shard

SECOND = 1_000_000_000


def run(shards: list[Path], **options: object) -> list[IndexedShard]:
    return list(index_shards([str(shard) for shard in shards], replace(IndexOptions(), **options)))  # type: ignore[arg-type]


def outcomes(shards: list[Path], **options: object) -> list[str]:
    return [shard.outcome for shard in run(shards, **options)]


def index_file(shard: Path) -> Path:
    return Path(index_path_of(str(shard)))


def move_time(path: Path, seconds: int) -> None:
    now = path.stat().st_mtime_ns
    os.utime(path, ns=(now + seconds * SECOND, now + seconds * SECOND))


def change_same_size(shard: Path) -> None:
    """Exchange the pictures' bytes, and leave sizes and names as they are."""
    data = shard.read_bytes()
    place = data.index(b"\xff\xd8") + 200
    shard.write_bytes(data[:place] + bytes(byte ^ 1 for byte in data[place : place + 8]) + data[place + 8 :])


class TestState:
    def test_an_index_as_old_as_its_shard_is_fresh(self, tmp_path: Path) -> None:
        shard = write_samples(tmp_path / "x.tar", 2)
        assert index_state(shard) == "missing"
        write_index(build_index(shard), index_file(shard), shard_mtime_ns=shard.stat().st_mtime_ns)
        assert index_state(shard) == "fresh"
        assert index_file(shard).stat().st_mtime_ns == shard.stat().st_mtime_ns

    def test_a_newer_shard_of_the_same_size_is_unsure_and_one_of_another_size_stale(self, tmp_path: Path) -> None:
        shard = write_samples(tmp_path / "x.tar", 2)
        run([shard])
        move_time(shard, 1)
        assert index_state(shard) == "unsure"
        shard.write_bytes(shard.read_bytes() + bytes(512))
        assert index_state(shard) == "stale"

    @pytest.mark.parametrize("content", [b"", b"{}", b'{"num_bytes":7}', b"\xff" * 5000])
    def test_what_is_no_index_is_stale(self, tmp_path: Path, content: bytes) -> None:
        shard = write_samples(tmp_path / "x.tar", 2)
        index_file(shard).write_bytes(content)
        assert index_state(shard) == "stale"

    def test_the_size_is_found_behind_a_name_of_any_length(self, tmp_path: Path) -> None:
        shard = write_samples(tmp_path / "x.tar", 2)
        named = replace(build_index(shard), shard='"num_bytes":7,' + "x" * 5000)
        write_index(named, index_file(shard))
        move_time(index_file(shard), 1)
        assert index_state(shard) == "fresh"

    def test_the_index_may_lie_elsewhere(self, tmp_path: Path) -> None:
        shard = write_samples(tmp_path / "x.tar", 2)
        run([shard], folder=tmp_path / "there")
        assert index_state(shard) == "missing"
        assert index_state(shard, index=tmp_path / "there/x.tar.index.json") == "fresh"


class TestIncremental:
    def test_only_missing_and_stale_indexes_are_made(self, tmp_path: Path) -> None:
        shards = [write_samples(tmp_path / f"s-{n}.tar", 2 + n, first=10 * n) for n in range(3)]
        assert outcomes(shards) == ["made"] * 3
        write_samples(shards[1], 30)
        index_file(shards[2]).unlink()
        assert outcomes(shards) == ["kept", "renewed", "made"]
        assert outcomes(shards) == ["kept"] * 3

    def test_a_newer_shard_of_equal_bytes_keeps_its_index_and_is_not_hashed_again(self, tmp_path: Path) -> None:
        shard = write_samples(tmp_path / "x.tar", 2)
        run([shard])
        before = index_file(shard).read_bytes()
        move_time(shard, 5)
        assert outcomes([shard]) == ["kept"]
        assert (index_state(shard), index_file(shard).read_bytes()) == ("fresh", before)

    def test_a_newer_shard_of_the_same_size_and_other_bytes_is_indexed_anew(self, tmp_path: Path) -> None:
        shard = write_samples(tmp_path / "x.tar", 2)
        run([shard])
        change_same_size(shard)
        move_time(shard, 5)
        assert outcomes([shard]) == ["renewed"]
        assert read_index(index_file(shard)).checksum == build_index(shard).checksum

    def test_other_bytes_of_the_same_size_and_time_are_found_by_check_alone(self, tmp_path: Path) -> None:
        shard = write_samples(tmp_path / "x.tar", 2)
        run([shard])
        changed = shard.stat().st_mtime_ns
        change_same_size(shard)
        os.utime(shard, ns=(changed, changed))
        assert outcomes([shard]) == ["kept"]
        assert outcomes([shard], check=True) == ["renewed"]
        assert outcomes([shard], check=True) == ["kept"]

    def test_a_shard_that_changes_while_it_is_read_is_newer_than_its_index(self, tmp_path: Path) -> None:
        shard = write_samples(tmp_path / "x.tar", 2)
        earlier = shard.stat().st_mtime_ns
        index = build_index(shard)
        move_time(shard, 1)
        write_index(index, index_file(shard), shard_mtime_ns=earlier)
        assert index_state(shard) == "unsure"

    def test_the_sources_that_packing_noted_are_not_lost(self, tmp_path: Path) -> None:
        shard = write_samples(tmp_path / "x.tar", 2)
        noted = replace(build_index(shard), origins=("a.JPEG", "b.JPEG"))
        write_index(noted, index_file(shard))
        move_time(index_file(shard), -5)
        assert outcomes([shard]) == ["kept"]
        assert read_index(index_file(shard)).origins == ("a.JPEG", "b.JPEG")

    def test_without_writing_nothing_is_touched(self, tmp_path: Path) -> None:
        shards = [write_samples(tmp_path / f"s-{n}.tar", 2) for n in range(2)]
        run(shards[:1])
        move_time(shards[0], 5)
        before = index_file(shards[0]).stat().st_mtime_ns
        assert outcomes(shards, write=False, dali=True) == ["kept", "made"]
        assert index_file(shards[0]).stat().st_mtime_ns == before
        assert not index_file(shards[1]).exists()

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_after_any_changes_the_indexes_are_those_made_from_scratch(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        folder = tmp_path_factory.mktemp("shards")
        shards = [write_samples(folder / f"s-{n}.tar", 2, first=10 * n) for n in range(3)]
        steps = st.sampled_from(["run", "other size", "same size", "remove", "break", "touch"])
        for number, (step, which) in enumerate(data.draw(st.lists(st.tuples(steps, st.integers(0, 2)), max_size=6))):
            shard = shards[which]
            if step == "run":
                run(shards)
            elif step == "other size":
                write_samples(shard, 20 + number, first=100 * number)
            elif step == "same size":
                change_same_size(shard)
                move_time(shard, 10 * number)
            elif step == "remove":
                index_file(shard).unlink(missing_ok=True)
            elif step == "break":
                index_file(shard).write_bytes(b"{}")
            else:
                move_time(shard, 10 * number)
        run(shards)
        for shard in shards:
            assert index_file(shard).read_bytes() == index_to_json(build_index(shard))
        assert outcomes(shards) == ["kept"] * 3


class TestOutcome:
    @pytest.mark.parametrize("jobs", [1, 3])
    def test_bad_shards_are_all_named_and_good_ones_indexed(self, tmp_path: Path, jobs: int) -> None:
        good = [write_samples(tmp_path / f"s-{n}.tar", 2, first=10 * n) for n in range(2)]
        bad = [tmp_path / "cut.tar", tmp_path / "gz.tar", tmp_path / "none.tar"]
        bad[0].write_bytes(good[0].read_bytes()[:700])
        bad[1].write_bytes(gzip.compress(good[0].read_bytes()))
        found = run([bad[0], good[0], *bad[1:], good[1]], jobs=jobs)
        assert [shard.outcome for shard in found] == ["failed", "made", "failed", "failed", "made"]
        assert "WDS002" in found[0].error
        assert "Unpack it (gunzip) and index the plain tar" in found[2].error
        assert found[3].error == f"{bad[2]}: No such file or directory"
        assert [index_file(shard).exists() for shard in [*good, *bad]] == [True, True, False, False, False]

    def test_counts_labels_and_checksums_are_said(self, tmp_path: Path) -> None:
        shard = write_shard(tmp_path / "x.tar", [*sample_members(12), ("z.jpg", b"1")])
        (found,) = run([shard], md5=True)
        assert (found.num_samples, found.num_bytes) == (13, shard.stat().st_size)
        assert found.labels == {-1: 1, 0: 2, 1: 2, **dict.fromkeys(range(2, 10), 1)}
        assert found.checksum == build_index(shard).checksum
        assert found.md5 == hashlib.md5(shard.read_bytes()).hexdigest()
        assert run([shard], md5=True)[0].md5 == found.md5

    def test_a_shard_without_an_end_marker_is_indexed_with_a_warning(self, tmp_path: Path) -> None:
        shard = tmp_path / "x.tar"
        shard.write_bytes(tar_bytes(sample_members(2))[: 2 * 2560])
        (found,) = run([shard])
        assert (found.outcome, len(found.warnings)) == ("made", 1)
        assert "end-of-archive marker missing" in found.warnings[0]

    def test_the_dali_index_lies_beside_ours(self, tmp_path: Path) -> None:
        run([write_samples(tmp_path / "x-0.tar", 2)], dali=True, folder=tmp_path / "there")
        assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["x-0.idx", "x-0.tar.index.json"]

    def test_a_folder_that_cannot_be_made_is_an_error_of_the_run(self, tmp_path: Path) -> None:
        shard = write_samples(tmp_path / "x.tar", 2)
        with pytest.raises(OSError, match="exists"):
            run([shard], folder=shard)

    def test_shards_whose_indexes_would_have_one_name_are_refused_before_any_is_read(self, tmp_path: Path) -> None:
        shards = [write_samples(tmp_path / folder / "x.tar", 2) for folder in ("a", "b")]
        with pytest.raises(PatternError, match=r"both indexes would be .*x\.tar\.index\.json"):
            run(shards, folder=tmp_path / "there")
        with pytest.raises(PatternError, match="Name each shard once"):
            run([shards[0], shards[0]])
        assert not (tmp_path / "there").exists()

    def test_a_remote_shard_needs_a_folder_for_its_index(self) -> None:
        with pytest.raises(PatternError, match="--out DIR"):
            list(index_shards(["https://host/x.tar"], IndexOptions()))


class TestKeysInSeveral:
    def test_each_shard_that_repeats_keys_is_named_with_the_first(self, tmp_path: Path) -> None:
        members = [
            sample_members(3),
            sample_members(3, first=2),
            sample_members(2, first=4),
            sample_members(2, first=9),
        ]
        found = run([write_shard(tmp_path / f"s-{n}.tar", m) for n, m in enumerate(members)])
        findings = keys_in_several(found)
        assert [(f.rule, Path(f.shard).name, f.member) for f in findings] == [
            ("WDS052", "s-1.tar", "000002"),
            ("WDS052", "s-2.tar", "000004"),
        ]
        assert findings[0].message.startswith("1 key is in other shards too, first '000002', also in ")

    def test_different_keys_are_no_finding(self, tmp_path: Path) -> None:
        found = run([write_samples(tmp_path / f"s-{n}.tar", 3, first=3 * n) for n in range(3)])
        assert keys_in_several(found) == []
        assert keys_in_several([]) == []
