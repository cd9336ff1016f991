from __future__ import annotations

import os
import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from shardkit import (
    CheckOptions,
    FakeImageNet,
    FakeSource,
    OutputExistsError,
    PackConfig,
    PackError,
    ShardRecord,
    SourceSample,
    UnusableSourcesError,
    WorkerDiedError,
    build_index,
    check_shards,
    existing_output,
    open_folder,
    open_table,
    pack,
    plan_shards,
    read_index,
    read_manifest,
)
from shardkit.atomic import exclusive
from shardkit.index.shard_index import index_to_json
from tests.helpers.folders import image_folder, pack_folder
from tests.helpers.shards import jpeg_bytes, write_samples


class KilledSource(FakeSource):
    """A source whose process is killed, as by a system out of memory."""

    def sample(self, number: int) -> SourceSample:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("alive")


def fail(_: ShardRecord) -> None:
    raise ZeroDivisionError


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder, hidden ones too, with its bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def problems(folder: Path) -> list[str]:
    """Return what validation says of every file with a shard's name, but that a cut pack has no manifest yet."""
    shards = [str(path) for path in sorted(folder.glob("*.tar"))]
    return [finding.rule for report in check_shards(shards, CheckOptions()) for finding in report.findings]


@pytest.mark.parametrize("out", ["shards", "n01/shards", "n01"])
def test_shards_are_not_put_into_the_folder_that_is_packed(tmp_path: Path, out: str) -> None:
    # The next run, or the resuming of this one, would find a class without a picture there.
    source = image_folder(tmp_path / "source")
    (tmp_path / "link").symlink_to(source)
    for folder in (source / out, tmp_path / "link" / out):
        with pytest.raises(PackError, match=r"inside of .*source.*Choose a folder outside"):
            pack_folder(source, folder)
    assert not list(source.rglob("*.json"))
    assert pack_folder(source, tmp_path / "beside").num_samples == 15


class TestConfig:
    @pytest.mark.parametrize("prefix", ["", "a/b", "../a", ".a", "a b", "a\n", "{0..3}"])
    def test_a_prefix_that_patterns_or_folders_would_misread_is_refused(self, tmp_path: Path, prefix: str) -> None:
        with pytest.raises(PackError, match="prefix"):
            PackConfig(folder=tmp_path, prefix=prefix)

    def test_no_process_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(PackError, match="0 jobs"):
            PackConfig(folder=tmp_path, prefix="t", jobs=0)


class TestPacking:
    def test_shards_indexes_and_manifest_agree(self, tmp_path: Path) -> None:
        manifest = pack_folder(image_folder(tmp_path / "in"), tmp_path / "out")
        names = [f"t-{n:06d}.tar" for n in range(3)]
        assert sorted(contents(tmp_path / "out")) == sorted(
            [*names, *(f"{name}.index.json" for name in names), "t.manifest.json"]
        )
        assert read_manifest(tmp_path / "out" / "t.manifest.json") == manifest
        assert (manifest.num_samples, manifest.classes) == (15, ("n01", "n02", "n03"))
        for record in manifest.shards:
            built = build_index(tmp_path / "out" / record.name)
            stored = read_index(tmp_path / "out" / f"{record.name}.index.json")
            assert index_to_json(replace(stored, origins=())) == index_to_json(built)
            assert (built.num_samples, built.num_bytes, built.checksum) == (
                record.num_samples,
                record.num_bytes,
                record.checksum,
            )
        assert problems(tmp_path / "out") == []

    def test_original_names_are_in_the_index(self, tmp_path: Path) -> None:
        pack_folder(image_folder(tmp_path / "in"), tmp_path / "out", num_shards=1)
        origins = read_index(tmp_path / "out" / "t-000000.tar.index.json").origins
        assert sorted(origins) == sorted(f"n0{c}/n0{c}_{n}.JPEG" for c in (1, 2, 3) for n in range(5))

    def test_time_umask_place_and_number_of_processes_change_no_byte(self, tmp_path: Path) -> None:
        """MK-01."""
        image_folder(tmp_path / "in")
        pack_folder(tmp_path / "in", tmp_path / "one")
        for path in (tmp_path / "in").rglob("*"):
            os.utime(path, (1, 1))
        (tmp_path / "in").rename(tmp_path / "elsewhere")
        mask = os.umask(0o077)
        try:
            pack_folder(tmp_path / "elsewhere", tmp_path / "two", jobs=2)
        finally:
            os.umask(mask)
        assert contents(tmp_path / "one") == contents(tmp_path / "two")

    def test_shuffled_packing_mixes_the_classes(self, tmp_path: Path) -> None:
        """MK-09."""
        image_folder(tmp_path / "in", classes=("a", "b", "c", "d"), per_class=10)
        pack_folder(tmp_path / "in", tmp_path / "out", num_shards=4)
        for path in (tmp_path / "out").glob("*.tar"):
            assert len(set(build_index(path).labels.tolist())) >= 3

    def test_more_processes_than_shards_are_no_harm(self, tmp_path: Path) -> None:
        pack_folder(image_folder(tmp_path / "in", per_class=1), tmp_path / "out", num_shards=2, jobs=8)
        assert problems(tmp_path / "out") == []

    def test_an_empty_plan_is_refused(self, tmp_path: Path) -> None:
        source = open_folder(image_folder(tmp_path / "in"))
        with pytest.raises(PackError, match="no shards"):
            pack(source, [], config=PackConfig(folder=tmp_path / "out", prefix="t"), on_shard=lambda _: None)


class TestExisting:
    def test_nothing_is_overwritten_unless_told_and_the_files_are_named(self, tmp_path: Path) -> None:
        for number in range(8):
            write_samples(tmp_path / "out" / f"t-{number:06d}.tar", 2, first=2 * number)
        before = contents(tmp_path / "out")
        image_folder(tmp_path / "in")
        with pytest.raises(OutputExistsError, match=r"8 files of 't' are there already \(t-000000\.tar, t-000001\.tar"):
            pack_folder(tmp_path / "in", tmp_path / "out")
        assert contents(tmp_path / "out") == before

    def test_overwriting_leaves_none_of_the_old_shards(self, tmp_path: Path) -> None:
        for number in range(8):
            write_samples(tmp_path / "out" / f"t-{number:06d}.tar", 2, first=2 * number)
        (tmp_path / "out" / "t-000007.tar.index.json").write_text("{}", encoding="utf-8")
        image_folder(tmp_path / "in")
        pack_folder(tmp_path / "in", tmp_path / "out", on_exists="overwrite")
        pack_folder(tmp_path / "in", tmp_path / "fresh")
        assert contents(tmp_path / "out") == contents(tmp_path / "fresh")

    def test_overwriting_touches_no_other_file(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        others = ["tt-000000.tar", "t-00000.tar", "t-000000.tar.bak", "t.manifest.json.old", "notes.txt"]
        for name in others:
            (tmp_path / "out" / name).write_bytes(b"theirs")
        pack_folder(image_folder(tmp_path / "in"), tmp_path / "out", on_exists="overwrite")
        assert all((tmp_path / "out" / name).read_bytes() == b"theirs" for name in others)

    def test_what_is_there_can_be_asked_for(self, tmp_path: Path) -> None:
        config = PackConfig(folder=tmp_path / "out", prefix="t")
        assert existing_output(config) == []
        pack_folder(image_folder(tmp_path / "in"), tmp_path / "out", num_shards=1)
        names = ["t-000000.tar", "t-000000.tar.index.json", "t.manifest.json"]
        assert existing_output(config) == [tmp_path / "out" / name for name in names]


class TestBadSources:
    def make(self, folder: Path) -> Path:
        image_folder(folder, classes=("n01", "n02"), per_class=2)
        (folder / "n01" / "zero.jpg").write_bytes(b"")
        (folder / "n01" / "text.jpg").write_bytes(b"not a picture")
        return folder

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_bad_sources_are_all_named_and_nothing_is_packed(self, tmp_path: Path, jobs: int) -> None:
        with pytest.raises(UnusableSourcesError) as caught:
            pack_folder(self.make(tmp_path / "in"), tmp_path / "out", jobs=jobs)
        assert "2 sources cannot be packed" in str(caught.value)
        assert "n01/zero.jpg" in str(caught.value)
        assert "n01/text.jpg" in str(caught.value)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_bad_rows_and_bad_files_of_a_table_are_told_in_one_go(self, tmp_path: Path, jobs: int) -> None:
        self.make(tmp_path)
        rows = ["n01/n01_0.JPEG,x", ",x", "n01/text.jpg,x", "gone.jpg,x", "n02/n02_0.JPEG,y"]
        (tmp_path / "t.csv").write_text("\n".join(["path,label", *rows]))
        with pytest.raises(UnusableSourcesError) as caught:
            pack_folder(open_table(tmp_path / "t.csv"), tmp_path / "out", jobs=jobs)
        reasons = (
            "3 sources cannot",
            "row 3: no path",
            "row 4: n01/text.jpg: not a picture",
            "row 5: gone.jpg: No such",
        )
        assert [reason for reason in reasons if reason not in str(caught.value)] == []
        assert not (tmp_path / "out").exists()

    def test_bad_sources_can_be_skipped_and_are_on_record(self, tmp_path: Path) -> None:
        manifest = pack_folder(self.make(tmp_path / "in"), tmp_path / "out", num_shards=2, on_error="skip")
        assert manifest.num_samples == 4
        assert [line.partition(":")[0] for line in sorted(manifest.skipped)] == ["n01/text.jpg", "n01/zero.jpg"]
        assert problems(tmp_path / "out") == []

    def test_a_shard_of_which_nothing_is_left_is_not_written(self, tmp_path: Path) -> None:
        manifest = pack_folder(self.make(tmp_path / "in"), tmp_path / "out", num_shards=6, on_error="skip")
        assert sorted(path.name for path in (tmp_path / "out").glob("*.tar")) == [s.name for s in manifest.shards]
        assert len(manifest.shards) == 4

    def test_a_folder_of_bad_sources_alone_is_an_error(self, tmp_path: Path) -> None:
        image_folder(tmp_path / "in", classes=("a",), per_class=0)
        (tmp_path / "in" / "a" / "zero.jpg").touch()
        with pytest.raises(UnusableSourcesError, match="no usable picture in 1 sample"):
            pack_folder(tmp_path / "in", tmp_path / "out", num_shards=1, on_error="skip")
        assert contents(tmp_path / "out") == {}


class TestTrouble:
    @pytest.mark.parametrize(("jobs", "limit"), [(1, 4000), (1, 600_000), (2, 600_000)])
    def test_a_full_disk_names_the_file_and_leaves_nothing(self, tmp_path: Path, jobs: int, limit: int) -> None:
        """The small limit fails in a shard's first bytes, the large one in a later shard."""
        source = FakeSource(FakeImageNet(num_samples=8, num_classes=2, size=(640, 480), sizes="fixed"))
        plan = plan_shards(source, prefix="t", num_shards=2)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            with pytest.raises(OSError, match=r"File too large: .*t-00000\d\.tar"):
                pack(source, plan, config=PackConfig(folder=tmp_path, prefix="t", jobs=jobs), on_shard=lambda _: None)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert contents(tmp_path) == {}

    def test_a_disk_that_is_full_at_the_index_leaves_no_shard(self, tmp_path: Path) -> None:
        source = open_folder(image_folder(tmp_path / "in", classes=("a",), per_class=1), shuffle=False)
        # In the index, the name of the file makes more bytes than the shard has.
        long = replace(source, files=(("a/" + "../a/" * 700 + "a_0.JPEG", 0, len(jpeg_bytes(0))),))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3584, before[1]))
        try:
            with pytest.raises(OSError, match=r"File too large: .*t-000000\.tar\.index\.json"):
                pack_folder(long, tmp_path / "out", num_shards=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert contents(tmp_path / "out") == {}

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_an_error_of_the_caller_leaves_a_packing_that_can_be_resumed(self, tmp_path: Path, jobs: int) -> None:
        source = open_folder(image_folder(tmp_path / "in"))
        plan = plan_shards(source, prefix="t", num_shards=3)
        config = PackConfig(folder=tmp_path / "out", prefix="t", jobs=jobs)
        with pytest.raises(ZeroDivisionError):
            pack(source, plan, config=config, on_shard=fail)
        assert {"t.plan.json", "t-000000.tar", "t-000000.tar.index.json"} <= set(contents(tmp_path / "out"))
        assert "t.manifest.json" not in contents(tmp_path / "out")
        pack_folder(source, tmp_path / "out", on_exists="resume")
        pack_folder(source, tmp_path / "undisturbed")
        assert contents(tmp_path / "out") == contents(tmp_path / "undisturbed")

    def test_a_second_packing_at_once_is_refused_and_the_first_is_whole(self, tmp_path: Path) -> None:
        image_folder(tmp_path / "in")
        (tmp_path / "out").mkdir()
        with (
            exclusive(tmp_path / "out", name="t"),
            pytest.raises(OutputExistsError, match="another process is writing"),
        ):
            pack_folder(tmp_path / "in", tmp_path / "out", on_exists="overwrite")
        pack_folder(tmp_path / "in", tmp_path / "out")
        assert problems(tmp_path / "out") == []

    def test_a_worker_that_is_killed_is_an_error_and_leaves_nothing(self, tmp_path: Path) -> None:
        source = KilledSource(FakeImageNet(num_samples=4, num_classes=2, size=(32, 32), sizes="fixed"))
        with pytest.raises(WorkerDiedError, match="was killed"):
            pack(
                source,
                plan_shards(source, prefix="t", num_shards=2),
                config=PackConfig(folder=tmp_path, prefix="t", jobs=2),
                on_shard=lambda _: None,
            )
        assert [name for name in contents(tmp_path) if not name.startswith(".unfinished-")] == []
