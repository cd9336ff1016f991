"""Where a repaired shard goes, and what else changes with it."""

from __future__ import annotations

import dataclasses
import gzip
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardkit import (
    OutputExistsError,
    PackError,
    RepairConfig,
    build_index,
    index_path_of,
    read_index,
    read_manifest,
    repair_shards,
)
from shardkit.repair.quarantine import quarantine_path
from tests.helpers.packed import write_packed
from tests.helpers.repairing import (
    expected,
    is_clean,
    quarantined,
    repair,
    repair_bytes,
    samples_of,
)
from tests.helpers.shards import (
    jpeg_bytes,
    layout,
    sample_members,
    tar_bytes,
    tar_entry,
    write_samples,
    write_shard,
)


class TestOutput:
    """Where the new shard goes, and what else changes with it."""

    def test_a_good_shard_is_left_alone(self, tmp_path: Path) -> None:
        report = repair(write_samples(tmp_path / "s.tar", 3), tmp_path / "out")
        assert (report.changes, report.output, report.num_samples) == ((), None, 3)
        assert not list((tmp_path / "out").iterdir())
        copied = repair(tmp_path / "s.tar", tmp_path / "out", copy_good=True)
        assert samples_of(copied.output) == expected(sample_members(3))

    def test_the_entry_of_a_folder_is_no_damage(self, tmp_path: Path) -> None:
        report = repair_bytes(tar_bytes([tar_entry("./", kind=tarfile.DIRTYPE), *sample_members(1)]), tmp_path)
        assert (report.changes, report.output) == ((), None)

    @pytest.mark.parametrize("data", [b"", bytes(1024), b"<html>" + b"x" * 3000, tar_bytes([("README", b"")])])
    def test_where_nothing_can_be_saved_nothing_is_written(self, tmp_path: Path, data: bytes) -> None:
        """TAR-17 and TAR-18."""
        (tmp_path / "s.tar").write_bytes(data)
        (report,) = repair_shards([str(tmp_path / "s.tar")], RepairConfig(folder=None))
        assert not report.saved
        assert (tmp_path / "s.tar").read_bytes() == data
        assert [path.name for path in tmp_path.iterdir()] == ["s.tar"]

    def test_a_dry_run_says_the_same_and_writes_nothing(self, tmp_path: Path) -> None:
        data = gzip.compress(tar_bytes(sample_members(3)) + b"garbage")
        dry = repair_bytes(data, tmp_path, dry_run=True)
        assert [path.name for path in tmp_path.iterdir()] == ["s.tar"]
        done = repair(tmp_path / "s.tar", tmp_path / "out")
        assert dataclasses.replace(done, output=None, quarantine=None) == dry

    def test_in_place_keeps_every_quarantine(self, tmp_path: Path) -> None:
        path = tmp_path / "s.tar"
        for garbage in (b"one", b"two"):
            path.write_bytes(tar_bytes(sample_members(2)) + garbage)
            (report,) = repair_shards([str(path)], RepairConfig(folder=None))
            assert report.output == str(path)
            assert list(quarantined(report).values()) == [garbage]
        names = sorted(entry.name for entry in (tmp_path / "quarantine").iterdir())
        assert names == ["s.quarantine-2.tar", "s.quarantine.tar"]
        # No pattern for shards finds it.
        assert list(tmp_path.glob("*.tar")) == [path]

    def test_in_place_brings_index_and_manifest_up_to_date(self, tmp_path: Path) -> None:
        first, second = write_packed(tmp_path, [3, 2])
        first.write_bytes(first.read_bytes()[: layout(first.read_bytes())[4].content + 10])
        (report,) = repair_shards([str(first)], RepairConfig(folder=None))
        assert report.num_samples == 2
        for path in (first, second):
            assert is_clean(str(path))
            assert read_index(Path(index_path_of(str(path)))).checksum == build_index(path).checksum
        manifest = read_manifest(tmp_path / "t.manifest.json")
        assert manifest.num_samples == 4
        assert [line.partition(" at byte")[0] for line in manifest.skipped] == ["t-00.tar: 000002.jpg"]

    def test_a_private_shard_stays_private(self, tmp_path: Path) -> None:
        shard = tmp_path / "s.tar"
        shard.write_bytes(tar_bytes(sample_members(3))[:-2000])
        shard.chmod(0o600)
        assert next(iter(repair_shards([str(shard)], RepairConfig(folder=None)))).output == str(shard)
        assert shard.stat().st_mode & 0o777 == 0o600

    def test_many_at_once_lose_no_entry_of_the_manifest(self, tmp_path: Path) -> None:
        paths = write_packed(tmp_path, [3] * 12)
        for path in paths:
            path.write_bytes(path.read_bytes()[:-2000])
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda path: list(repair_shards([str(path)], RepairConfig(folder=None))), paths))
        sizes = {shard.name: shard.num_bytes for shard in read_manifest(tmp_path / "t.manifest.json").shards}
        assert sizes == {path.name: path.stat().st_size for path in paths}

    def test_labels_are_held_against_the_manifest_beside_the_shard(self, tmp_path: Path) -> None:
        (path,) = write_packed(tmp_path, [2])
        write_shard(path, [*sample_members(1), ("x.jpg", jpeg_bytes(1)), ("x.cls", b"10")])
        assert list(samples_of(repair(path, tmp_path / "out").output)) == ["000000"]

    def test_nothing_is_overwritten_unless_told(self, tmp_path: Path) -> None:
        path = tmp_path / "s.tar"
        path.write_bytes(tar_bytes(sample_members(2)) + b"x")
        repair(path, tmp_path / "out")
        with pytest.raises(OutputExistsError, match="there already"):
            repair(path, tmp_path / "out")
        repair(path, tmp_path / "out", on_exists="overwrite")
        for setting in ("fail", "overwrite"):
            with pytest.raises(OutputExistsError, match="say --in-place"):
                repair(path, tmp_path, on_exists=setting)

    def test_two_shards_of_one_name_are_refused_before_either_is_touched(self, tmp_path: Path) -> None:
        paths = [write_samples(tmp_path / folder / "s.tar", 1) for folder in ("a", "b")]
        for path in paths:
            path.write_bytes(path.read_bytes() + b"x")
        given = [str(path) for path in paths]
        reason = rf"{given[0]} and {given[1]} would both become {tmp_path}/out/s.tar. Repair one of them alone"
        with pytest.raises(PackError, match=reason):
            list(repair_shards(given, RepairConfig(folder=tmp_path / "out")))
        assert not (tmp_path / "out").exists()

    def test_a_good_one_that_is_not_written_is_in_nobodys_way(self, tmp_path: Path) -> None:
        plain = write_samples(tmp_path / "s.tar", 2)
        packed = tmp_path / "s.tar.gz"
        packed.write_bytes(gzip.compress(write_samples(tmp_path / "other.tar", 3).read_bytes()))
        paths = [str(plain), str(packed), str(tmp_path / "other.tar")]
        reports = list(repair_shards(paths, RepairConfig(folder=tmp_path / "out")))
        assert [report.output for report in reports] == [None, f"{tmp_path}/out/s.tar", None]
        assert len(samples_of(reports[1].output)) == 3
        with pytest.raises(PackError, match=r"s\.tar and .*s\.tar\.gz would both become"):
            list(repair_shards(paths, RepairConfig(folder=tmp_path / "elsewhere", copy_good=True)))

    def test_a_gzip_name_is_refused_in_place(self, tmp_path: Path) -> None:
        with pytest.raises(PackError, match="which this name denies"):
            list(repair_shards([str(tmp_path / "s.tar.gz")], RepairConfig(folder=None)))

    def test_processes_give_the_same_reports(self, tmp_path: Path) -> None:
        paths = []
        for number in range(3):
            path = tmp_path / f"s-{number}.tar"
            path.write_bytes(tar_bytes(sample_members(2, first=number)) + b"x" * number)
            paths.append(str(path))
        one = list(repair_shards(paths, RepairConfig(folder=tmp_path / "out")))
        two = list(repair_shards(paths, RepairConfig(folder=tmp_path / "out", on_exists="overwrite"), jobs=2))
        assert one == two
        assert quarantine_path(tmp_path / "out" / "s-2.tar").exists()

    def test_a_disk_that_fills_up_leaves_the_old_shard_and_nothing_half_made(self, tmp_path: Path) -> None:
        path = tmp_path / "s.tar"
        data = tar_bytes(sample_members(60, size=(200, 200))) + b"text"
        path.write_bytes(data)
        limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000));"
        script = limit + (
            "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
            "from shardkit import RepairConfig, repair_shards;"
            "print(next(repair_shards([sys.argv[1]], RepairConfig(folder=None))).error)"
        )
        ended = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
        assert ended.stdout.strip().endswith("File too large"), ended.stderr
        assert path.read_bytes() == data
        assert [entry.name for entry in tmp_path.rglob("*") if entry.is_file()] == ["s.tar"]

    def test_a_shard_that_cannot_be_read_keeps_no_other_from_being_repaired(self, tmp_path: Path) -> None:
        (tmp_path / "folder.tar").mkdir()
        (tmp_path / "s.tar").write_bytes(tar_bytes(sample_members(2)) + b"text")
        paths = [str(tmp_path / name) for name in ("folder.tar", "s.tar")]
        bad, good = repair_shards(paths, RepairConfig(folder=tmp_path / "out"))
        assert (bad.saved, good.saved) == (False, True)
        assert "Is a directory" in str(bad.error)
