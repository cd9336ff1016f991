from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.helpers.cli import Ended, invoke, run_wds
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
