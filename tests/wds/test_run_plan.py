from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from tests.helpers.cli import Ended, invoke, processes_of_session, started_wds, wait_until
from tests.helpers.folders import image_folder

MANIFEST = "imagenet-train.manifest.json"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def planned(tmp_path: Path, *args: object, count: int = 6) -> Path:
    """Plan a packing of a folder with a bad picture into so many shards, and return the plan's path."""
    folder = tmp_path / "in"
    if not folder.exists():
        image_folder(folder)
        (folder / "n01" / "text.jpg").write_bytes(b"not a picture")
    out = tmp_path / "out"
    ended = invoke("make-shards", "--from-folder", folder, "--count", count, "--out", out, "--plan-only", *args)
    assert ended.code == 0, ended.stderr
    assert ended.stdout.startswith(f"{out}/imagenet-train.plan.json  {count} shards, 16 samples")
    return out / "imagenet-train.plan.json"


def run(plan: Path, *args: object) -> Ended:
    return invoke("run-plan", plan, "--jobs", 1, *args)


@pytest.fixture
def undisturbed(tmp_path: Path) -> dict[str, bytes]:
    image_folder(tmp_path / "in")
    (tmp_path / "in" / "n01" / "text.jpg").write_bytes(b"not a picture")
    args = ("--from-folder", tmp_path / "in", "--count", 6, "--on-error", "skip", "--jobs", 1)
    assert invoke("make-shards", *args, "--out", tmp_path / "undisturbed").code == 0
    return contents(tmp_path / "undisturbed")


def test_a_plan_writes_no_shard(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert [path.name for path in plan.parent.iterdir()] == ["imagenet-train.plan.json"]


def test_slices_in_any_order_end_like_one_packing_with_what_was_skipped(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    plan = planned(tmp_path, "--on-error", "skip")
    for part in ("3/4", "1/4", "4/4"):
        ended = run(plan, "--slice", part)
        assert ended.code == 0
        assert ended.stdout.startswith(f"slice {part}: ")
        assert not (plan.parent / MANIFEST).exists()
    assert run(plan, "--slice", "2/4").stdout.startswith("6 shards, ")
    assert contents(plan.parent) == undisturbed
    assert len(json.loads((plan.parent / MANIFEST).read_text())["skipped"]) == 1


def test_slices_that_run_at_the_same_time_end_like_one_packing(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    """Two of them are the same part."""
    plan = planned(tmp_path, "--on-error", "skip")
    with contextlib.ExitStack() as stack:
        parts = ("1/3", "2/3", "3/3", "3/3")
        running = [
            stack.enter_context(started_wds("run-plan", plan, "--slice", part, "--jobs", 1, cwd=tmp_path))
            for part in parts
        ]
        for process in running:
            _, stderr = process.communicate(timeout=100)
            assert process.returncode == 0, stderr
    assert contents(plan.parent) == undisturbed


@pytest.mark.slow
def test_slices_that_were_killed_are_run_again_and_end_like_one_packing(tmp_path: Path) -> None:
    args = ("--count", 12, "--shard-size", 10, "--size", "200x150", "--classes", 3, "--jobs", 1)
    assert invoke("make-shards", *args, "--out", tmp_path / "whole").code == 0
    assert invoke("make-shards", *args, "--out", tmp_path / "out", "--plan-only").code == 0
    plan = tmp_path / "out" / "imagenet-train.plan.json"
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(started_wds("run-plan", plan, "--slice", f"{n}/2", "--jobs", n, cwd=tmp_path))
            for n in (1, 2)
        ]
        assert wait_until(lambda: len(list(plan.parent.glob("*.tar"))) > 1)
        for process in running:
            process.kill()
    assert wait_until(lambda: not any(processes_of_session(process.pid) for process in running))
    assert [run(plan, "--slice", f"{n}/2").code for n in (1, 2)] == [0, 0]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_running_a_finished_plan_again_changes_nothing(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    plan = planned(tmp_path, "--on-error", "skip")
    first = run(plan)
    again = run(plan, "--slice", "2/3")
    assert (first.code, again.code) == (0, 0)
    assert first.stdout == again.stdout
    assert contents(plan.parent) == undisturbed


def test_a_source_that_changed_since_is_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    (tmp_path / "in" / "n01" / "more.jpg").write_bytes(b"x")
    ended = run(plan)
    assert (ended.code, ended.stderr.count("\n")) == (2, 1)
    assert "changed since the plan was written: the source" in ended.stderr
    assert [path.name for path in plan.parent.iterdir()] == [plan.name]


def test_a_bad_source_stops_its_slice_by_name_and_the_others_shards_stay(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    codes = {part: run(plan, "--slice", part) for part in ("1/2", "2/2")}
    assert sorted(ended.code for ended in codes.values()) == [0, 1]
    failed = next(ended for ended in codes.values() if ended.code == 1)
    assert "n01/text.jpg: " in failed.stderr
    assert len(list(plan.parent.glob("*.tar"))) == 5
    assert not (plan.parent / MANIFEST).exists()


@pytest.mark.parametrize("part", ["0/3", "4/3", "1", "1/0", "x/3", "a/b", "-1/3", "1/3/3", "١/٣"])
def test_a_slice_that_is_none_is_wrong_use(tmp_path: Path, part: str) -> None:
    assert run(planned(tmp_path), "--slice", part).code == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not a plan: it is empty"),
        ("\x00\x01", "not a plan: no JSON"),
        ("{}", "not a plan"),
        ("[]", "not a plan"),
        ("null", "not a plan"),
        ('"x"', "not a plan"),
        ('{"format": "", "version": 1}', "not a plan"),
        ('{"format": "shardkit-manifest", "version": 1}', "not a plan but a shardkit-manifest"),
        ('{"format": "shardkit-plan", "version": 2}', "a plan of version 2; 1 is known here"),
        ('{"format": "shardkit-plan", "version": 1}', "the field 'recode' is missing"),
    ],
)
def test_a_file_that_is_no_plan_is_wrong_use(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "x.plan.json").write_text(content)
    ended = run(tmp_path / "x.plan.json")
    told = f"Error: {tmp_path}/x.plan.json: {reason}. Write the plan again (--plan-only)\n"
    assert (ended.code, ended.stderr) == (2, told)


def test_a_folder_is_no_plan(tmp_path: Path) -> None:
    told = f"Error: {tmp_path}: a folder. Name the plan in it, PREFIX.plan.json\n"
    assert run(tmp_path) == Ended(2, "", told)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({}, "the plan's source is of kind None, which is not known here: fake-imagenet, "),
        ({"kind": "image-folder"}, "the plan's source: the field 'folder' is missing. Write the plan again"),
        ({"kind": "shards"}, "the plan's source: the field 'shards' is missing"),
        ({"kind": "fake-imagenet", "size": 3}, "the plan's source: a field holds what it cannot: 'int' object"),
    ],
)
def test_a_source_that_is_none_is_told_in_words(tmp_path: Path, source: dict[str, object], reason: str) -> None:
    plan = planned(tmp_path)
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"source": source}))
    ended = run(plan)
    assert (ended.code, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.startswith(f"Error: {reason}")


def test_shards_that_are_gone_since_are_named(tmp_path: Path) -> None:
    shards, out = tmp_path / "shards", tmp_path / "out"
    assert invoke("make-shards", "--from-folder", image_folder(tmp_path / "in"), "--out", shards, "--jobs", 1).code == 0
    assert invoke("reshard", shards, "--out", out, "--plan-only", "--jobs", 1).code == 0
    shards.rename(tmp_path / "elsewhere")
    ended = run(out / "resharded.plan.json")
    assert (ended.code, ended.stderr.count("\n")) == (1, 1)
    assert f"{shards}/imagenet-train-000000.tar" in ended.stderr


def test_a_plan_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    ended = run(tmp_path / "x.plan.json")
    assert (ended.code, ended.stderr.count("\n")) == (2, 1)
    assert f"{tmp_path}/x.plan.json: no such plan. wds make-shards --plan-only writes one" in ended.stderr


def test_a_dry_run_prints_the_shards_of_the_part_and_makes_none(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    ended = run(plan, "--slice", "2/4", "--dry-run")
    assert (ended.code, [line.split()[0] for line in ended.stdout.splitlines()]) == (
        0,
        [f"{plan.parent}/imagenet-train-00000{number}.tar" for number in (1, 5)],
    )
    assert json.loads(run(plan, "--slice", "2/4", "--dry-run", "--json").stdout)["shards"][1]["samples"] == 3
    assert [path.name for path in plan.parent.iterdir()] == [plan.name]
