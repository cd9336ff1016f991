from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from shardkit import (
    Manifest,
    ManifestError,
    OutputExistsError,
    ShardRecord,
    dataset_digest,
    manifest_from_json,
    manifests_in,
    most_classes,
    read_manifest,
    write_manifest,
)

RECORDS = (ShardRecord("t-000000.tar", 10, 5120, "ab" * 16), ShardRecord("t-000001.tar", 9, 4608, "cd" * 16))
MANIFEST = Manifest(
    name="t",
    split="train",
    seed=7,
    classes=("tench", "goldfish"),
    class_order="by name, as text",
    shuffled=True,
    shards=RECORDS,
    options={"source": "image-folder", "val_share": None},
    skipped=("n01/bad.jpg: not a picture",),
)


NAMELESS = dataclasses.replace(MANIFEST, classes=(), num_classes=9)
_MAY_BE_MISSING = ("kept", "num_classes")


def document(folder: Path, **change: object) -> bytes:
    """Return the manifest as its file holds it, with changes."""
    path = folder / "t.manifest.json"
    write_manifest(MANIFEST, path, replace=True)
    loaded: dict[str, Any] = json.loads(path.read_bytes())
    return json.dumps(loaded | change).encode()


def record(**change: object) -> list[dict[str, object]]:
    first = {"name": "t-000000.tar", "num_samples": 10, "num_bytes": 5120, "xxh3_128": "ab" * 16}
    return [first | change]


def test_a_manifest_survives_its_file(tmp_path: Path) -> None:
    write_manifest(MANIFEST, tmp_path / "t.manifest.json")
    assert read_manifest(tmp_path / "t.manifest.json") == MANIFEST


def test_samples_and_bytes_are_summed() -> None:
    assert (MANIFEST.num_samples, MANIFEST.num_bytes) == (19, 9728)


def test_the_digest_is_pinned() -> None:
    assert dataset_digest(RECORDS) == "9b0eeb5259f27a16976d3f15307951bf"


def test_the_digest_depends_on_order_names_counts_and_checksums_and_not_on_bytes() -> None:
    changed = [
        RECORDS[::-1],
        (dataclasses.replace(RECORDS[0], name="u.tar"), RECORDS[1]),
        (dataclasses.replace(RECORDS[0], num_samples=11), RECORDS[1]),
        (dataclasses.replace(RECORDS[0], checksum="ef" * 16), RECORDS[1]),
    ]
    assert len({dataset_digest(records) for records in (RECORDS, *changed)}) == 5
    assert dataset_digest((dataclasses.replace(RECORDS[0], num_bytes=1), RECORDS[1])) == MANIFEST.digest


def test_a_manifest_that_is_there_is_not_overwritten_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "t.manifest.json"
    write_manifest(MANIFEST, path)
    with pytest.raises(OutputExistsError, match=r"t\.manifest\.json exists"):
        write_manifest(MANIFEST, path)
    write_manifest(dataclasses.replace(MANIFEST, seed=8), path, replace=True)
    assert read_manifest(path).seed == 8


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"5", b"null", b"\xff\xfe", b"[" * 100_000, b"{}", b'"x"'])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestError, match="not a manifest"):
        manifest_from_json(data)


def test_a_version_from_the_future_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="version 2 is not known here"):
        manifest_from_json(document(tmp_path, version=2))


@pytest.mark.parametrize("name", ["../t.tar", "/etc/passwd", "a/b.tar", "", ".", "..", "a\0b", 5, None])
def test_a_shard_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: object) -> None:
    with pytest.raises(ManifestError, match="not a plain file name"):
        manifest_from_json(document(tmp_path, shards=record(name=name)))


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "00" * 16},
        {"digest": None},
        {"shards": record(num_samples=11)},
        {"shards": record(num_samples=-1)},
        {"shards": record(num_samples="10")},
        {"shards": record(num_samples=True)},
        {"shards": record(num_bytes=1.5)},
        {"shards": record(xxh3_128=5)},
        {"shards": record() + record()},
        {"shards": {"a": 1}},
        {"shards": 5},
        {"classes": [1, 2]},
        {"classes": 5},
        {"skipped": [None]},
        {"options": [1]},
        {"options": 5},
        {"seed": "x"},
        {"name": 5},
        {"split": None},
        {"class_order": None},
        {"num_classes": 3},
        {"classes": [], "num_classes": 0},
        {"classes": [], "num_classes": "2"},
        {"kept": {"CMYK": -1}},
    ],
    ids=str,
)
def test_a_manifest_that_contradicts_itself_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    with pytest.raises(ManifestError):
        manifest_from_json(document(tmp_path, **change))


@pytest.mark.parametrize(
    "field",
    [field.name for field in dataclasses.fields(Manifest) if field.name not in _MAY_BE_MISSING] + ["digest", "format"],
)
def test_a_manifest_that_lacks_a_field_is_refused(tmp_path: Path, field: str) -> None:
    loaded = json.loads(document(tmp_path))
    del loaded[field]
    with pytest.raises(ManifestError, match="not a manifest"):
        manifest_from_json(json.dumps(loaded).encode())


@pytest.mark.parametrize(
    ("manifests", "num_classes"),
    [
        ([MANIFEST], 2),
        ([NAMELESS], 9),
        ([NAMELESS, dataclasses.replace(NAMELESS, num_classes=12)], 12),
        ([MANIFEST, NAMELESS], 2),
        ([NAMELESS, dataclasses.replace(NAMELESS, num_classes=None)], None),
        ([], None),
    ],
)
def test_datasets_have_together_as_many_classes_as_there_are_names_or_as_the_labels_need(
    manifests: list[Manifest], num_classes: int | None
) -> None:
    assert most_classes(manifests) == num_classes


def test_a_number_of_classes_without_names_is_kept(tmp_path: Path) -> None:
    write_manifest(NAMELESS, tmp_path / "n.manifest.json")
    assert read_manifest(tmp_path / "n.manifest.json") == NAMELESS


def test_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.manifest.json").write_bytes(b"{}")
    with pytest.raises(ManifestError, match=r"t\.manifest\.json: not a manifest"):
        read_manifest(tmp_path / "t.manifest.json")


def test_the_manifests_of_a_folder_come_by_name(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_manifest(dataclasses.replace(MANIFEST, name=name), tmp_path / f"{name}.manifest.json")
    assert [(path.name, manifest.name) for path, manifest in manifests_in(tmp_path)] == [
        ("a.manifest.json", "a"),
        ("b.manifest.json", "b"),
    ]
