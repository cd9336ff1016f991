"""Packings that ended early, and go on."""

from __future__ import annotations

import json
import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardkit import (
    FolderSource,
    OutputExistsError,
    PackConfig,
    Recode,
    ShardRecord,
    SourceSample,
    UnfinishedPackingError,
    UnusableSourcesError,
    WorkerDiedError,
    open_folder,
    pack,
    plan_shards,
    prepare,
    read_manifest,
)
from tests.helpers.folders import image_folder, pack_folder
from tests.helpers.shards import jpeg_bytes, write_samples

PLAN, MANIFEST = "t.plan.json", "t.manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class MortalSource(FolderSource):
    """A folder whose process is killed at a sample, as by a system out of memory, unless a file says it is cured."""

    cured: Path

    def sample(self, number: int) -> SourceSample:
        if number == 7 and not self.cured.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return FolderSource.sample(self, number)


class InterruptedAsToldError(Exception):
    pass


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def dirty_folder(folder: Path) -> Path:
    """An image folder with two bad pictures among 15, which lie in the shards of two tasks of five."""
    image_folder(folder)
    (folder / "n01" / "zero.jpg").touch()
    (folder / "n03" / "text.jpg").write_bytes(b"not a picture")
    return folder


def interrupted(source: Path, out: Path, *, after: int = 1, num_shards: int = 5, on_error: str = "stop") -> None:
    """Pack until so many shards are there, then stop."""
    done: list[str] = []

    def stop(record: ShardRecord) -> None:
        done.append(record.name)
        if len(done) == after:
            raise InterruptedAsToldError

    opened = open_folder(source)
    config = PackConfig(folder=out, prefix="t", on_error="skip" if on_error == "skip" else "stop")
    with pytest.raises(InterruptedAsToldError):
        pack(opened, plan_shards(opened, prefix="t", num_shards=num_shards), config=config, on_shard=stop)


@pytest.mark.parametrize(("after", "jobs"), [(1, 1), (2, 1), (5, 1), (3, 2)])
def test_a_packing_goes_on_and_ends_like_an_undisturbed_one(tmp_path: Path, after: int, jobs: int) -> None:
    image_folder(tmp_path / "in")
    interrupted(tmp_path / "in", tmp_path / "out", after=after)
    assert MANIFEST not in contents(tmp_path / "out")
    manifest = pack_folder(tmp_path / "in", tmp_path / "out", num_shards=5, on_exists="resume", jobs=jobs)
    assert pack_folder(tmp_path / "in", tmp_path / "whole", num_shards=5) == manifest
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize("after", range(1, 6))
def test_what_was_skipped_before_is_on_record_too(tmp_path: Path, after: int) -> None:
    dirty_folder(tmp_path / "in")
    interrupted(tmp_path / "in", tmp_path / "out", after=after, on_error="skip")
    pack_folder(tmp_path / "in", tmp_path / "out", num_shards=5, on_exists="resume", on_error="skip")
    pack_folder(tmp_path / "in", tmp_path / "whole", num_shards=5, on_error="skip")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    skipped = read_manifest(tmp_path / "out" / MANIFEST).skipped
    assert sorted(line.partition(":")[0] for line in skipped) == ["n01/zero.jpg", "n03/text.jpg"]


def test_a_shard_of_which_all_was_skipped_is_not_missed(tmp_path: Path) -> None:
    dirty_folder(tmp_path / "in")
    interrupted(tmp_path / "in", tmp_path / "out", after=15, num_shards=17, on_error="skip")
    pack_folder(tmp_path / "in", tmp_path / "out", num_shards=17, on_exists="resume", on_error="skip")
    pack_folder(tmp_path / "in", tmp_path / "whole", num_shards=17, on_error="skip")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["cut", "changed", "no index", "other index", "no record", "bad record"])
def test_a_shard_that_does_not_fit_what_is_on_record_is_made_again(tmp_path: Path, damage: str) -> None:
    dirty_folder(tmp_path / "in")
    interrupted(tmp_path / "in", tmp_path / "out", after=5, on_error="skip")
    record = next((tmp_path / "out").glob("*.skipped.json"))
    shard = record.with_name(record.name.removesuffix(".skipped.json"))
    index = shard.with_name(shard.name + ".index.json")
    data = shard.read_bytes()
    if damage == "cut":
        shard.write_bytes(data[:-1])
    elif damage == "changed":
        shard.write_bytes(data[:700] + bytes([data[700] ^ 1]) + data[701:])
    elif damage == "no index":
        index.unlink()
    elif damage == "other index":
        index.write_bytes(next(p for p in (tmp_path / "out").glob("*.index.json") if p != index).read_bytes())
    elif damage == "no record":
        record.unlink()
    else:
        record.write_text('{"skipped": 3}')
    pack_folder(tmp_path / "in", tmp_path / "out", num_shards=5, on_exists="resume", on_error="skip")
    pack_folder(tmp_path / "in", tmp_path / "whole", num_shards=5, on_error="skip")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_full_disk_leaves_what_was_finished_and_room_lets_it_go_on(tmp_path: Path) -> None:
    image_folder(tmp_path / "in")
    # The last shard is larger than the others.
    (tmp_path / "in" / "n03" / "z.jpg").write_bytes(jpeg_bytes(0) + bytes(20_000))
    source = open_folder(tmp_path / "in", shuffle=False)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: .*t-000003\.tar"):
            pack_folder(source, tmp_path / "out", num_shards=4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    finished = [f"t-{n:06d}.tar" for n in range(3)]
    assert sorted(contents(tmp_path / "out")) == sorted([*finished, *(f"{n}.index.json" for n in finished), PLAN])
    pack_folder(source, tmp_path / "out", num_shards=4, on_exists="resume")
    pack_folder(source, tmp_path / "whole", num_shards=4)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_worker_that_is_killed_leaves_what_was_finished(tmp_path: Path) -> None:
    folder = open_folder(image_folder(tmp_path / "in"))
    fields = {name: getattr(folder, name) for name in folder.__slots__}
    source = MortalSource(**fields, cured=tmp_path / "cured")
    with pytest.raises(WorkerDiedError):
        pack_folder(source, tmp_path / "out", num_shards=5, jobs=2)
    (tmp_path / "cured").touch()
    pack_folder(source, tmp_path / "out", num_shards=5, jobs=2, on_exists="resume")
    pack_folder(folder, tmp_path / "whole", num_shards=5)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


class TestRefused:
    def test_an_unfinished_packing_is_not_begun_again_unless_told(self, tmp_path: Path) -> None:
        image_folder(tmp_path / "in")
        interrupted(tmp_path / "in", tmp_path / "out", after=2)
        before = contents(tmp_path / "out")
        reason = r"an unfinished packing of 't' lies there, 2 of 5 shards\. Go on with it \(--on-exists resume\)"
        with pytest.raises(UnfinishedPackingError, match=reason):
            pack_folder(tmp_path / "in", tmp_path / "out", num_shards=5)
        assert contents(tmp_path / "out") == before
        pack_folder(tmp_path / "in", tmp_path / "out", num_shards=5, on_exists="overwrite")
        pack_folder(tmp_path / "in", tmp_path / "whole", num_shards=5)
        assert contents(tmp_path / "out") == contents(tmp_path / "whole")

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ("files", "the source: its files"),
            ("sizes", "the source: its files"),
            ("seed", "the source: its files"),
            ("layout", "the layout of the shards"),
            ("recode", "how pictures are re-encoded"),
            ("on_error", "what to do with bad sources"),
        ],
    )
    def test_another_packing_is_never_gone_on_with(self, tmp_path: Path, change: str, reason: str) -> None:
        """MK-02: two datasets are never mixed."""
        image_folder(tmp_path / "in")
        interrupted(tmp_path / "in", tmp_path / "out", after=2)
        before = contents(tmp_path / "out")
        picture = tmp_path / "in" / "n01" / "n01_0.JPEG"
        if change == "files":
            picture.rename(picture.with_name("other.JPEG"))
        elif change == "sizes":
            picture.write_bytes(picture.read_bytes() + b"\0")
        source = open_folder(tmp_path / "in", seed=1 if change == "seed" else 0)
        config = PackConfig(
            folder=tmp_path / "out",
            prefix="t",
            on_exists="resume",
            on_error="skip" if change == "on_error" else "stop",
            recode=Recode(quality=80) if change == "recode" else None,
        )
        plan = plan_shards(source, prefix="t", num_shards=4 if change == "layout" else 5)
        with pytest.raises(OutputExistsError, match=f"other than planned: {reason}"):
            pack(source, plan, config=config, on_shard=lambda _: None)
        assert contents(tmp_path / "out") == before

    def test_shards_without_a_plan_are_nothing_to_go_on_with(self, tmp_path: Path) -> None:
        write_samples(tmp_path / "out" / "t-000000.tar", 2)
        with pytest.raises(OutputExistsError, match="shards without a plan"):
            pack_folder(image_folder(tmp_path / "in"), tmp_path / "out", on_exists="resume")

    def test_a_shard_that_is_in_no_plan_is_not_mixed_in(self, tmp_path: Path) -> None:
        image_folder(tmp_path / "in")
        interrupted(tmp_path / "in", tmp_path / "out")
        write_samples(tmp_path / "out" / "t-000099.tar", 2)
        with pytest.raises(OutputExistsError, match=r"t-000099\.tar are in no plan"):
            pack_folder(tmp_path / "in", tmp_path / "out", num_shards=5, on_exists="resume")

    def test_a_damaged_plan_is_named(self, tmp_path: Path) -> None:
        image_folder(tmp_path / "in")
        interrupted(tmp_path / "in", tmp_path / "out")
        (tmp_path / "out" / PLAN).write_text("{")
        with pytest.raises(OutputExistsError, match=r"t\.plan\.json: not a plan"):
            pack_folder(tmp_path / "in", tmp_path / "out", num_shards=5, on_exists="resume")


def test_bad_sources_that_are_not_skipped_leave_nothing_of_either_run(tmp_path: Path) -> None:
    """MK-07: all are named, those of shards that an earlier run would have come to as well."""
    dirty_folder(tmp_path / "in")
    # An empty one would be told before anything is packed.
    (tmp_path / "in" / "n01" / "zero.jpg").write_bytes(b"0")
    interrupted(tmp_path / "in", tmp_path / "out", after=1)
    with pytest.raises(UnusableSourcesError, match="2 sources cannot be packed") as caught:
        pack_folder(tmp_path / "in", tmp_path / "out", num_shards=5, on_exists="resume")
    assert "zero.jpg" in str(caught.value)
    assert "text.jpg" in str(caught.value)
    assert contents(tmp_path / "out") == {}


class TestFinished:
    def test_resuming_a_finished_one_does_nothing(self, tmp_path: Path) -> None:
        manifest = pack_folder(dirty_folder(tmp_path / "in"), tmp_path / "out", on_error="skip")
        before = {path.name: path.stat().st_ino for path in (tmp_path / "out").iterdir()}
        again = pack_folder(tmp_path / "in", tmp_path / "out", on_error="skip", on_exists="resume")
        assert again == manifest
        assert {path.name: path.stat().st_ino for path in (tmp_path / "out").iterdir()} == before

    def test_a_shard_that_went_missing_is_made_again(self, tmp_path: Path) -> None:
        pack_folder(dirty_folder(tmp_path / "in"), tmp_path / "out", on_error="skip")
        before = contents(tmp_path / "out")
        (tmp_path / "out" / "t-000001.tar").unlink()
        pack_folder(tmp_path / "in", tmp_path / "out", on_error="skip", on_exists="resume")
        assert contents(tmp_path / "out") == before

    def test_killed_between_manifest_and_the_end_it_can_be_resumed(self, tmp_path: Path) -> None:
        image_folder(tmp_path / "in")
        interrupted(tmp_path / "in", tmp_path / "out", after=3, num_shards=3)
        pack_folder(tmp_path / "in", tmp_path / "whole")
        (tmp_path / "out" / MANIFEST).write_bytes((tmp_path / "whole" / MANIFEST).read_bytes())
        with pytest.raises(UnfinishedPackingError):
            pack_folder(tmp_path / "in", tmp_path / "out")
        pack_folder(tmp_path / "in", tmp_path / "out", on_exists="resume")
        assert contents(tmp_path / "out") == contents(tmp_path / "whole")

    def test_another_finished_dataset_is_refused(self, tmp_path: Path) -> None:
        pack_folder(image_folder(tmp_path / "a"), tmp_path / "out")
        with pytest.raises(OutputExistsError, match="a finished dataset of another source or other options"):
            pack_folder(image_folder(tmp_path / "b", per_class=4), tmp_path / "out", on_exists="resume")


def test_where_nothing_is_there_resuming_begins(tmp_path: Path) -> None:
    pack_folder(image_folder(tmp_path / "in"), tmp_path / "out", on_exists="resume")
    pack_folder(tmp_path / "in", tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_plan_alone_can_be_gone_on_with(tmp_path: Path) -> None:
    source = open_folder(image_folder(tmp_path / "in"))
    config = PackConfig(folder=tmp_path / "out", prefix="t")
    assert prepare(source, plan_shards(source, prefix="t", num_shards=3), config=config) == tmp_path / "out" / PLAN
    assert list(contents(tmp_path / "out")) == [PLAN]
    assert json.loads((tmp_path / "out" / PLAN).read_text())["format"] == "shardkit-plan"
    pack_folder(source, tmp_path / "out", on_exists="resume")
    pack_folder(source, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
