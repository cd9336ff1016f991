from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.cli import Ended, invoke
from tests.helpers.shards import jpeg_bytes, write_samples, write_shard


def validate(*args: object) -> Ended:
    return invoke("validate", "--jobs", 1, *args)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Two shards of three samples with manifest and indexes."""
    args = ("--count", 2, "--samples-per-shard", 3, "--size", "32x32", "--classes", 5, "--jobs", 1)
    assert invoke("make-shards", "--out", tmp_path / "packed", *args).code == 0
    return tmp_path / "packed"


def test_clean_shards_end_with_0_and_one_line(packed: Path) -> None:
    ended = validate(packed)
    assert ended.code == 0
    assert ended.stdout.startswith("2 shards, 6 samples, 6 whole, ")
    assert ended.stdout.endswith(": 0 errors, 0 warnings, 0 notes\n")


def test_only_shards_with_findings_are_listed(tmp_path: Path) -> None:
    good = write_samples(tmp_path / "good.tar", 2)
    bad = write_shard(tmp_path / "bad.tar", [("a.jpg", jpeg_bytes(7))])
    ended = validate(good, bad)
    assert ended.code == 1
    lines = ended.stdout.splitlines()
    assert str(bad) in lines
    assert str(good) not in lines
    assert lines[-1].endswith(": 1 errors, 0 warnings, 0 notes")


def test_a_shard_that_differs_from_its_manifest_is_an_error(packed: Path) -> None:
    first, second = sorted(packed.glob("*.tar"))
    first.write_bytes(second.read_bytes())
    ended = validate(packed)
    assert ended.code == 1
    assert "manifest" in ended.stdout
    assert str(first) in ended.stdout


def test_labels_are_held_against_the_classes_of_the_manifest(packed: Path) -> None:
    assert validate(packed, "--classes", 5).code == 0
    ended = validate(packed, "--classes", 2)
    assert ended.code == 1
    assert "is outside 0..1" in ended.stdout


def test_validate_and_inspect_end_alike(tmp_path: Path) -> None:
    trailing = write_samples(tmp_path / "trailing.tar", 2)
    trailing.write_bytes(trailing.read_bytes() + b"x" * 700)
    lacking = write_shard(tmp_path / "lacking.tar", [("a.jpg", jpeg_bytes(0))])
    for shard, args in ((trailing, ()), (trailing, ("--strict",)), (lacking, ()), (tmp_path / "none.tar", ())):
        assert validate(shard, *args).code == invoke("inspect", "--jobs", 1, shard, *args).code


def test_json_of_validate_is_part_of_that_of_inspect(packed: Path) -> None:
    inspected = json.loads(invoke("inspect", packed, "--json", "--jobs", 1).stdout)
    validated = json.loads(validate(packed, "--json").stdout)
    assert validated.items() <= inspected.items()


def test_processes_share_the_work_with_the_same_result(packed: Path) -> None:
    assert invoke("validate", packed, "--jobs", 2, "--json").stdout == validate(packed, "--json").stdout
