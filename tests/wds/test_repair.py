from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from shardkit import read_manifest
from tests.helpers.cli import Ended, invoke, run_wds
from tests.helpers.packed import write_packed
from tests.helpers.shards import jpeg_bytes, layout, sample_members, tar_bytes, write_samples, write_shard


def repair(*args: object) -> Ended:
    return invoke("repair", "--jobs", 1, *args)


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """A shard of six samples that is cut in the sixth picture."""
    data = tar_bytes(sample_members(6))
    path = tmp_path / "cut.tar"
    path.write_bytes(data[: layout(data)[10].content + 100])
    return path


def test_what_was_done_is_printed_and_the_result_validates(cut: Path, tmp_path: Path) -> None:
    ended = repair(cut, "--out", tmp_path / "out")
    assert ended.code == 0
    first, second, third, *rest = ended.stdout.splitlines()
    assert first == f"{cut} -> {tmp_path}/out/cut.tar: 5 whole samples"
    assert second == "  ended       WDS005  the end marker is missing"
    assert third.startswith("  quarantined WDS002  '000005.jpg' at byte ")
    assert rest == [
        f"  what was dropped, with a report: {tmp_path}/out/quarantine/cut.quarantine.tar",
        "1 shard: 1 repaired, 0 good, 0 without a whole sample; 1 member quarantined",
    ]
    assert invoke("validate", tmp_path / "out", "--jobs", 1, "--strict").code == 0


def test_a_good_shard_has_nothing_to_repair(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "a.tar", 2)
    ended = repair(shard, "--in-place")
    assert (ended.code, ended.stdout.splitlines()[0]) == (0, f"{shard}: nothing to repair, 2 samples")


def test_exit_1_where_nothing_could_be_saved_and_the_others_are_repaired(cut: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.tar"
    page.write_bytes(b"<!DOCTYPE html><html>sign in</html>")
    ended = repair(page, cut, "--out", tmp_path / "out")
    assert ended.code == 1
    assert f"{page}: no whole sample, nothing could be saved" in ended.stdout
    assert "an HTML page" in ended.stdout
    assert (tmp_path / "out" / "cut.tar").exists()


def test_a_shard_that_could_not_be_written_is_not_called_one_without_samples(cut: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "quarantine").write_bytes(b"in the way")
    ended = repair(cut, "--out", tmp_path / "out")
    assert ended.code == 1
    first, last = ended.stdout.splitlines()
    assert first == f"{cut}: left as it was: {tmp_path}/out/quarantine: File exists"
    assert last == "1 shard: 0 repaired, 0 good, 0 without a whole sample, 1 left as they were; 0 members quarantined"


def test_a_place_for_the_result_must_be_named_once(cut: Path, tmp_path: Path) -> None:
    assert repair(cut).code == 2
    assert repair(cut, "--in-place", "--out", tmp_path / "out").code == 2
    assert repair(cut, "--out", tmp_path).code == 2
    assert repair(tmp_path / "nowhere.tar", "--in-place").code == 2


def test_what_is_there_is_overwritten_only_where_told(cut: Path, tmp_path: Path) -> None:
    assert [repair(cut, "--out", tmp_path / "out").code for _ in range(2)] == [0, 2]
    assert repair(cut, "--out", tmp_path / "out", "--on-exists", "overwrite").code == 0


class TestTheSet:
    """What the new folder has of the set, and of its manifest."""

    def damaged_set(self, folder: Path) -> list[Path]:
        """Three shards with a manifest of ten classes, the second one cut."""
        shards = write_packed(folder, [3, 4, 2])
        shards[1].write_bytes(shards[1].read_bytes()[: layout(shards[1].read_bytes())[6].content + 100])
        return shards

    def test_good_shards_that_are_left_out_and_a_missing_manifest_are_told(self, tmp_path: Path) -> None:
        self.damaged_set(tmp_path / "in")
        out = tmp_path / "out"
        ended = repair(tmp_path / "in", "--out", out)
        assert [path.name for path in out.glob("*.tar")] == ["t-01.tar"]
        assert ended.stderr.splitlines() == [
            f"2 good shards not in {out}: --copy-good puts all of them there",
            f"No manifest of them in {out}: wds index {out} makes one",
        ]

    def test_a_set_that_is_whole_there_has_its_manifest(self, tmp_path: Path) -> None:
        self.damaged_set(tmp_path / "in")
        out = tmp_path / "out"
        ended = repair(tmp_path / "in", "--out", out, "--copy-good")
        assert (ended.code, ended.stderr) == (0, "")
        assert ended.stdout.splitlines()[-1] == f"{out}/t.manifest.json  written"
        before, after = (read_manifest(folder / "t.manifest.json") for folder in (tmp_path / "in", out))
        assert (after.classes, after.split, after.num_samples) == (before.classes, before.split, 8)
        assert after.skipped[0].startswith("t-01.tar: 000103.jpg at byte ")
        assert invoke("validate", out, "--jobs", 1).code == 0

    def test_a_set_without_one_of_its_shards_has_none(self, tmp_path: Path) -> None:
        shards = self.damaged_set(tmp_path / "in")
        ended = repair(*shards[:2], "--out", tmp_path / "out", "--copy-good", "--json")
        assert json.loads(ended.stdout)["manifests"] == []
        assert not list((tmp_path / "out").glob("*.manifest.json"))

    def test_one_that_is_there_stays_unless_told(self, tmp_path: Path) -> None:
        self.damaged_set(tmp_path / "in")
        (tmp_path / "out").mkdir()
        standing = tmp_path / "out" / "t.manifest.json"
        standing.write_text("{}")
        args = (tmp_path / "in", "--out", tmp_path / "out", "--copy-good")
        assert (repair(*args).code, standing.read_text()) == (0, "{}")
        assert repair(*args, "--on-exists", "overwrite").code == 0
        assert read_manifest(standing).num_samples == 8


def test_a_dry_run_writes_nothing(cut: Path, tmp_path: Path) -> None:
    before = cut.read_bytes()
    ended = repair(cut, "--in-place", "--dry-run")
    assert ended.code == 0
    assert "1 to repair" in ended.stdout
    assert cut.read_bytes() == before
    assert list(tmp_path.iterdir()) == [cut]


def test_json_has_every_change(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.tar", [*sample_members(1), *((f"x{n}.jpg", jpeg_bytes(n)) for n in range(8))])
    document = json.loads(repair(shard, "--out", tmp_path / "out", "--json").stdout)
    (entry,) = document["shards"]
    assert (entry["samples"], entry["saved"], len(entry["changes"])) == (1, True, 8)
    assert {change["rule"] for change in entry["changes"]} == {"WDS022"}


def test_names_that_are_not_utf8_are_printed_escaped(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.tar", [*sample_members(1), ("caf\udce9.jpg", jpeg_bytes(1))])
    assert "'caf\\xe9.jpg'" in repair(shard, "--out", tmp_path / "out", "--dry-run").stdout
    assert repair(shard, "--out", tmp_path / "out", "--json").code == 0
    assert invoke("validate", tmp_path / "out" / "a.tar", "--jobs", 1).code == 0


def test_one_shard_comes_from_standard_input(tmp_path: Path) -> None:
    data = gzip.compress(tar_bytes(sample_members(3))[:-600])
    ended = run_wds("repair", "-", "--out", tmp_path / "out", cwd=tmp_path, stdin=data)
    assert ended.code == 0, ended.stderr
    assert invoke("validate", tmp_path / "out" / "stdin.tar", "--jobs", 1).code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["stdin.tar"]
