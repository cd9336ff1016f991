"""packages/shardkit/README.md is the spec of what is on disk, and its example runs."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import shardkit
from shardkit import (
    TABLE_COLUMNS,
    Manifest,
    PackConfig,
    RepairConfig,
    ShardWriter,
    index_path_of,
    open_folder,
    parse_slice,
    plan_shards,
    prepare,
    read_plan,
    repair_shards,
    run_plan,
    write_index,
    write_manifest,
)
from tests.helpers.folders import image_folder
from tests.helpers.packed import write_packed
from tests.helpers.shards import sample_members, write_shard

README = Path(__file__).parents[2] / "packages" / "shardkit" / "README.md"


def section(title: str) -> str:
    return README.read_text().split(f"### {title}\n")[1].split("\n### ")[0]


def fields(title: str) -> dict[str, str]:
    """Return field -> type as the first table of a section names them."""
    table = section(title).split("\n\n| field" if "| field" in section(title) else "\n\n| column")[1].split("\n\n")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| ([^|]+?) \|", table, re.MULTILINE))


def keys_of(document: Mapping[str, Any]) -> set[str]:
    """Return the fields of an object, those of the objects in its lists too."""
    lists = [(field, document[field]) for field in ("shards", "changes") if field in document]
    inner = {f"{field}[].{key}" for field, entries in lists for entry in entries for key in entry}
    return {*document, *inner}


def type_of(value: object) -> str:
    return {bool: "boolean", int: "integer", str: "text", list: "list", dict: "object", type(None): "null"}[type(value)]


def packed(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the index and the manifest of a packing that uses every field, as their files have them."""
    write_packed(folder, [2, 3])
    with ShardWriter(folder / "x.tar") as writer:
        writer.write_sample("a", [("jpg", b"1"), ("cls", b"2")], origin="a.JPEG")
    write_index(writer.index, Path(index_path_of(str(folder / "x.tar"))))
    index = json.loads((folder / "x.tar.index.json").read_bytes())
    return index, json.loads((folder / "t.manifest.json").read_bytes())


@pytest.mark.parametrize(("title", "which"), [("Index, version 1", 0), ("Manifest, version 1", 1)])
def test_every_field_that_is_written_is_in_the_spec_and_of_the_type_it_names(
    tmp_path: Path, title: str, which: int
) -> None:
    document = packed(tmp_path)[which]
    named = fields(title)
    # What is written only where there is something to say.
    assert set(named) - {"kept", "num_classes"} == keys_of(document)
    for name, value in document.items():
        assert named[name].startswith(type_of(value)), name
    assert (document["format"], document["version"]) == (f"shardkit-{title.partition(',')[0].lower()}", 1)


def test_the_fields_of_a_plan_are_in_the_spec(tmp_path: Path) -> None:
    plan = pytest.importorskip("shardkit.packing.plan")
    written = plan.WrittenPlan(
        prefix="t", recipe={"kind": "fake"}, fingerprint="ab" * 16, on_error="stop", recode=None, transform=None,
        encoder=None, shards=(shardkit.ShardPlan("t-000000.tar", range(2)),),
    )  # fmt: skip
    plan.write_plan(written, tmp_path / "t.plan.json")
    document = json.loads((tmp_path / "t.plan.json").read_bytes())
    assert set(fields("Plan, version 1")) == keys_of(document)
    assert (document["format"], document["version"]) == ("shardkit-plan", 1)


def test_the_fields_of_a_quarantine_are_in_the_spec(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "x.tar", [*sample_members(1), ("lonely.jpg", b"1")])
    list(repair_shards([str(shard)], RepairConfig(folder=tmp_path / "mended")))
    with tarfile.open(tmp_path / "mended" / "quarantine" / "x.quarantine.tar") as tar:
        report = tar.extractfile("report.json")
        assert report is not None
        document = json.loads(report.read())
    of_members = {f"members[].{key}" for key in document["members"][0].keys() - document["changes"][0].keys()}
    assert set(fields("Quarantine, version 1")) == keys_of(document) | of_members
    assert (document["format"], document["version"]) == ("shardkit-quarantine", 1)


def test_the_fields_of_a_skip_record_are_in_the_spec(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "in", classes=("a",), per_class=3)
    (folder / "a" / "0.jpg").write_bytes(b"no picture")
    source = open_folder(folder, shuffle=False)
    config = PackConfig(folder=tmp_path / "out", prefix="t", on_error="skip")
    plan = read_plan(prepare(source, plan_shards(source, prefix="t", num_shards=2), config=config))
    run_plan(source, plan, config=config, part=parse_slice("1/2"), on_shard=lambda _: None)
    document = json.loads((tmp_path / "out" / "t-000000.tar.skipped.json").read_bytes())
    assert set(fields("Skip record, version 1")) == keys_of(document)
    assert (document["format"], document["version"]) == ("shardkit-skipped", 1)


def test_the_columns_of_the_table_are_in_the_spec() -> None:
    types = {"string": "string", "int64": "int64", "int32": "int32", "hash": "fixed_size_binary[16]"}
    assert fields("Table, version 1") == {name: types[kind] for name, (kind, _) in TABLE_COLUMNS.items()}


def test_the_digest_is_made_as_the_spec_says(tmp_path: Path) -> None:
    write_packed(tmp_path, [2, 3])
    document = json.loads((tmp_path / "t.manifest.json").read_bytes())
    lines = [json.dumps([s["name"], s["num_samples"], s["xxh3_128"]]) + "\n" for s in document["shards"]]
    assert document["digest"] == hashlib.blake2b("".join(lines).encode(), digest_size=16).hexdigest()


def test_unknown_fields_are_passed_over(tmp_path: Path) -> None:
    index, manifest = packed(tmp_path)
    assert shardkit.index_from_json(json.dumps(index | {"new": 1}).encode()).num_samples == 1
    manifest["shards"][0]["new"] = 1
    read = shardkit.manifest_from_json(json.dumps(manifest | {"new": 1}).encode())
    assert isinstance(read, Manifest)
    write_manifest(read, tmp_path / "again.manifest.json")


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    assert (tmp_path / "toy.manifest.json").exists()


def test_each_name_that_the_example_imports_is_public() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names = re.findall(r"\w+", " ".join(re.findall(r"^from shardkit import (.*)$", example, re.MULTILINE)))
    assert set(names) <= set(shardkit.__all__)
