from __future__ import annotations

import shutil
from pathlib import Path

from shardkit import class_names
from tests.helpers.packed import write_packed


def test_the_manifest_beside_a_shard_names_its_classes(tmp_path: Path) -> None:
    path = write_packed(tmp_path, [1])[0]
    assert class_names([str(path), "-", "http://h/a.tar", "pipe:cat a.tar"]) == tuple("abcdefghij")


def test_a_manifest_that_lists_none_of_the_shards_says_nothing(tmp_path: Path) -> None:
    write_packed(tmp_path, [1])
    assert class_names([str(tmp_path / "other.tar")]) == ()


def test_manifests_that_differ_name_no_class(tmp_path: Path) -> None:
    paths = [str(write_packed(tmp_path / name, [1])[0]) for name in "ab"]
    manifest = tmp_path / "b" / "t.manifest.json"
    manifest.write_text(manifest.read_text().replace('"j"', '"other"'))
    assert class_names(paths) == ()
    shutil.copy(tmp_path / "a" / "t.manifest.json", manifest)
    assert class_names(paths) == tuple("abcdefghij")


def test_a_damaged_manifest_is_passed_over(tmp_path: Path) -> None:
    path = write_packed(tmp_path, [1])[0]
    (tmp_path / "a.manifest.json").write_text("{")
    assert class_names([str(path)]) == tuple("abcdefghij")
