from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardkit import RULES
from tests.helpers.cli import Ended, invoke
from tests.helpers.http_server import serve
from tests.helpers.shards import jpeg_bytes, write_samples, write_shard


def validate(*args: object) -> Ended:
    return invoke("validate", "--jobs", 1, *args)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Two shards of three samples with manifest and indexes."""
    args = ("--count", 2, "--shard-size", 3, "--size", "32x32", "--classes", 5, "--jobs", 1)
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
    assert lines[-1].endswith(": 1 error, 0 warnings, 0 notes")


def test_a_finding_names_the_file_that_its_sample_was_packed_from(tmp_path: Path) -> None:
    (tmp_path / "in" / "Äpfel").mkdir(parents=True)
    (tmp_path / "in" / "Äpfel" / "bild 4 ü.jpg").write_bytes(jpeg_bytes(4)[:-20])
    assert invoke("make-shards", "--from-folder", tmp_path / "in", "--out", tmp_path / "out", "--jobs", 1).code == 0
    for command in (validate, lambda *args: invoke("inspect", *args)):
        ended = command(tmp_path / "out")
        assert ended.code == 1
        assert "; packed from 'Äpfel/bild 4 ü.jpg' " in " ".join(ended.stdout.split())
    (shard,) = json.loads(validate(tmp_path / "out", "--json").stdout)["shards"]
    assert {finding["origin"] for finding in shard["findings"]} == {"Äpfel/bild 4 ü.jpg"}


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


def records(ended: Ended) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {record["schema_version"] for record in found} == {1}
    return found


@pytest.fixture
def lacking(tmp_path: Path) -> Path:
    """Seven samples without a label, and a README."""
    members = [(f"{n:06d}.jpg", jpeg_bytes(n)) for n in range(7)]
    return write_shard(tmp_path / "lacking.tar", [*members, ("README", b"x")])


def test_a_rule_is_explained_in_any_case() -> None:
    ended = invoke("validate", "--explain", "wds012")
    assert ended.code == 0
    assert ended.stdout.startswith("WDS012  note  The shard is compressed as a whole.\n  effect      ")
    assert "  what to do  Unpack it with gunzip.\n" in ended.stdout


def test_all_rules_are_listed_one_a_line_and_as_json() -> None:
    ended = invoke("validate", "--explain", "all")
    assert ended.code == 0
    assert [line.split()[0] for line in ended.stdout.splitlines()] == sorted(RULES)
    listed = json.loads(invoke("validate", "--explain", "all", "--json").stdout)["rules"]
    assert [rule["id"] for rule in listed] == sorted(RULES)
    assert set(listed[0]) == {"id", "severity", "title", "effect", "remedy", "explanation"}


@pytest.mark.parametrize("args", [("--explain", "WDS21"), ("--ignore", "WDS21", "x.tar")])
def test_a_rule_that_there_is_not_is_wrong_use_and_the_nearest_is_named(args: tuple[str, ...]) -> None:
    ended = invoke("validate", *args)
    assert (ended.code, ended.stderr.count("\n")) == (2, 1)
    assert "WDS21: no such rule. The nearest is WDS021" in ended.stderr


def test_no_pattern_is_wrong_use() -> None:
    ended = invoke("validate")
    assert ended.code == 2
    assert "Missing argument 'PATTERN...'" in ended.stderr


def test_the_effect_of_a_rule_is_told_once(lacking: Path) -> None:
    other = write_shard(lacking.parent / "other.tar", [("z.jpg", jpeg_bytes(99))])
    ended = validate(lacking, other)
    assert ended.stdout.count(RULES["WDS022"].effect) == 1
    assert ended.stdout.count(RULES["WDS022"].remedy) == 2
    assert "and 2 more." in ended.stdout


def test_what_is_ignored_is_counted_and_ends_with_0(lacking: Path) -> None:
    ended = validate(lacking, "--ignore", "WDS022,wds025")
    assert ended.code == 0
    assert ended.stdout.endswith(": 0 errors, 0 warnings, 0 notes; 8 ignored (WDS022, WDS025)\n")
    document = json.loads(validate(lacking, "--ignore", "WDS022", "--ignore", "WDS025", "--json").stdout)
    assert document["ignored"] == document["shards"][0]["ignored"] == {"WDS022": 7, "WDS025": 1}
    assert document["shards"][0]["findings"] == []


def test_jsonl_is_a_record_a_finding_and_one_of_all(lacking: Path) -> None:
    ended = validate(lacking, "--jsonl", "--ignore", "WDS025")
    assert ended.code == 1
    *findings, last = records(ended)
    assert [(record["record"], record["rule"], record["member"]) for record in findings] == [
        ("finding", "WDS022", f"{n:06d}") for n in range(7)
    ]
    assert {name: last[name] for name in ("record", "shards", "samples", "whole", "errors", "warnings", "notes")} == {
        "record": "summary", "shards": 1, "samples": 7, "whole": 0, "errors": 7, "warnings": 0, "notes": 0
    }  # fmt: skip
    assert last["ignored"] == {"WDS025": 1}


def test_jsonl_is_valid_text_whatever_the_names(tmp_path: Path) -> None:
    name = b"b\xe4r".decode("utf-8", "surrogateescape")
    ended = validate(write_shard(tmp_path / f"{name}.tar", [(f"{name}.jpg", jpeg_bytes(0))]), "--jsonl")
    assert records(ended)[0]["shard"].endswith("b\\xe4r.tar")
    assert ended.stdout.isascii()


@pytest.mark.parametrize("form", [(), ("--json",), ("--jsonl",)])
def test_the_same_picture_in_two_sets_ends_with_1_and_names_both_places(tmp_path: Path, form: tuple[str, ...]) -> None:
    train, val = write_samples(tmp_path / "one.tar", 4), write_samples(tmp_path / "other.tar", 4, first=3)
    assert validate(train, val, "--ignore", "WDS052,WDS056").code == 0
    ended = validate(train, "--against", val, *form)
    assert ended.code == 1
    assert f"the same picture as '000003' in {train} (label 3, and 3 there)" in ended.stdout
    assert "WDS055" in ended.stdout
    assert "WDS052" not in ended.stdout


def test_the_shell_may_expand_the_shards_to_hold_against(tmp_path: Path) -> None:
    """Else all but the first of them would be taken for training shards in silence."""
    train = write_samples(tmp_path / "train.tar", 4)
    vals = [write_samples(tmp_path / f"val-{n}.tar", 2, first=100 * n) for n in (1, 2)]
    last = records(invoke("validate", "--jobs", 1, train, "--jsonl", "--against", *vals))[-1]
    assert (last["shards"], last["errors"], last["warnings"]) == (3, 0, 0)
    vals.append(write_samples(tmp_path / "val-3.tar", 2))
    found = records(invoke("validate", "--jobs", 1, train, "--jsonl", "--against", *vals))
    assert [record["shard"] for record in found[:-1] if record["rule"] == "WDS055"] == [str(vals[2])] * 2


def test_fewer_shards_than_readers_are_a_warning(packed: Path) -> None:
    ended = validate(packed, "--readers", 8)
    assert ended.code == 0
    assert "2 shards for 8 readers" in ended.stdout
    assert "WDS059" not in validate(packed, "--readers", 2).stdout


def test_a_missing_end_marker_is_cleared_by_a_switch(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "a.tar", 3)
    shard.write_bytes(shard.read_bytes().rstrip(b"\0").ljust(3 * 2560, b"\0"))
    assert validate(shard).code == 1
    assert validate(shard, "--no-marker-needed").code == 0


def test_structure_alone_opens_no_picture(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.tar", [("a.jpg", b"no picture"), ("a.cls", b"0"), ("b.jpg", jpeg_bytes(0))])
    assert {r.get("rule") for r in records(validate(shard, "--jsonl"))} == {"WDS022", "WDS040", None}
    assert {r.get("rule") for r in records(validate(shard, "--jsonl", "--structure"))} == {"WDS022", None}


def test_strict_ends_with_1_on_a_note(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.tar", [("a.jpg", jpeg_bytes(0)), ("a.cls", b"7\n")])
    assert validate(shard).code == 0
    assert validate(shard, "--strict").code == 1
    assert validate(shard, "--strict", "--ignore", "WDS036").code == 0


def test_a_manifest_by_url_names_its_shards_and_they_are_held_against_it(packed: Path) -> None:
    (manifest,) = packed.glob("*.manifest.json")
    local = validate(packed)
    with serve(packed) as server:
        good = validate(f"{server.url}/{manifest.name}")
        shown = invoke("inspect", "--jobs", 1, "--json", f"{server.url}/{manifest.name}?sig=SECRET123")
        first, second = sorted(packed.glob("*.tar"))
        first.write_bytes(first.read_bytes()[:-1] + b"x")
        bad = validate(f"{server.url}/{manifest.name}", "--jsonl")
        second.unlink()
        gone = validate(f"{server.url}/{manifest.name}")
    assert (good.code, good.stdout) == (0, local.stdout)
    document = json.loads(shown.stdout)
    assert [Path(shard["shard"]).name for shard in document["shards"]] == [first.name, second.name]
    assert len(document["classes"]) == 5
    assert "SECRET123" not in shown.stdout + shown.stderr
    (differs,) = [record for record in records(bad) if record.get("rule") == "WDS050"]
    assert differs["message"].startswith("checksum ")
    assert (gone.code, "404" in gone.stdout) == (1, True)


@pytest.mark.parametrize("content", [b"{}", b"<html>no</html>", None])
def test_what_is_no_manifest_by_url_is_told(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "x.manifest.json").write_bytes(content)
    with serve(tmp_path) as server:
        ended = validate(f"{server.url}/x.manifest.json?sig=SECRET123")
    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert f"{server.url}/x.manifest.json?sig=***" in ended.stderr


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input_is_measured(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    data = pack(write_samples(tmp_path / "a.tar", 3).read_bytes())
    ended = invoke("validate", "-", stdin=data)
    assert ended.code == 0
    size = f"{len(data)} B" if len(data) < 1024 else f"{len(data) / 1024:.1f} KiB"
    assert ended.stdout.splitlines()[-1].startswith(f"1 shard, 3 samples, 3 whole, {size}: ")


def test_a_stream_that_was_not_read_to_its_end_has_no_size(tmp_path: Path) -> None:
    ended = invoke("validate", "-", stdin=b"<html>" * 100_000)
    assert ended.stdout.endswith("0 whole, of unknown size: 1 error, 0 warnings, 0 notes\n")
    shard = write_samples(tmp_path / "a-0.tar", 3)
    ended = validate(shard, tmp_path / "a-1.tar")
    assert f"{shard.stat().st_size / 1024:.1f} KiB and more: 1 error," in ended.stdout


def test_the_same_shards_on_both_sides_are_one_finding(tmp_path: Path) -> None:
    shards = [write_samples(tmp_path / f"a-{n}.tar", 3, first=3 * n) for n in range(2)]
    ended = validate(*shards, "--against", *shards, "--jsonl")
    assert ended.code == 1
    (found,) = [record for record in records(ended) if record.get("rule") == "WDS055"]
    assert found["message"] == "2 of 2 shards are the same files in both sets, first a-0.tar"


def test_standard_input_is_not_held_against_itself() -> None:
    ended = invoke("validate", "-", "--against", "-")
    assert ended.code == 2
    assert "standard input is one shard" in ended.stderr
