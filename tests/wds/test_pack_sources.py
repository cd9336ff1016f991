from __future__ import annotations

from pathlib import Path

from PIL import Image

from shardkit import read_manifest
from tests.helpers.cli import TINY, invoke
from tests.helpers.folders import image_folder


def test_pictures_of_another_format_than_their_names_say_are_packed_and_counted_in_one_line(tmp_path: Path) -> None:
    """MK-07."""
    source = image_folder(tmp_path / "pictures", per_class=2)
    for name in ("n01", "n03"):
        Image.new("RGB", (8, 8)).save(source / name / "png.jpg", "PNG")
    ended = invoke("make-shards", "--out", tmp_path / "out", "--from-folder", source, "--jobs", 1)
    assert (ended.code, ended.stderr.count("\n")) == (0, 3)
    assert "2 pictures stay as they are: named jpg, but PNG (2)" in ended.stderr
    manifest = read_manifest(tmp_path / "out" / "imagenet-train.manifest.json")
    assert (manifest.num_samples, manifest.kept) == (8, {"named jpg, but PNG": 2})


def test_one_shard_is_told_by_its_name_alone(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "pictures", per_class=1)
    ended = invoke("make-shards", "--out", tmp_path / "out", "--from-folder", source, "--jobs", 1)
    assert ended.stdout.splitlines()[0] == f"1 shard, {tmp_path}/out/imagenet-train-000000.tar"


def test_a_table_is_packed_with_its_labels(tmp_path: Path) -> None:
    image_folder(tmp_path / "pictures", per_class=2)
    rows = [f"pictures/{name}/{name}_{n}.JPEG,{label}" for name, label in (("n01", 7), ("n02", 3)) for n in range(2)]
    (tmp_path / "table.csv").write_text("\n".join(["path,label", *rows]) + "\n")
    ended = invoke("make-shards", "--out", tmp_path / "out", "--from-table", tmp_path / "table.csv", "--jobs", 1)
    assert ended.code == 0
    assert "4 samples, 8 classes by number, as the table has them" in ended.stdout
    manifest = read_manifest(tmp_path / "out" / "imagenet-train.manifest.json")
    assert (manifest.classes, manifest.num_classes) == ((), 8)
    assert invoke("reshard", tmp_path / "out", "--out", tmp_path / "new", "--jobs", 1).code == 0
    (again,) = (tmp_path / "new").glob("*.manifest.json")
    assert (read_manifest(again).classes, read_manifest(again).num_classes) == ((), 8)
    assert "6 classes have no sample: 0, 1, 2, 4, 5" in invoke("stats", tmp_path / "new", "--jobs", 1).stdout


def test_sets_of_two_tables_whose_highest_labels_differ_train_together(tmp_path: Path) -> None:
    """Numbers as names would be two class lists. The model gets as many classes as the training table counts."""
    image_folder(tmp_path / "pictures", per_class=4)
    for split, labels in (("train", (0, 7, 3, 7)), ("val", (1, 2, 0, 1))):
        rows = [f"pictures/n01/n01_{n}.JPEG,{label}" for n, label in enumerate(labels)]
        (tmp_path / f"{split}.csv").write_text("\n".join(["path,label", *rows]) + "\n")
        table = ("--from-table", tmp_path / f"{split}.csv", "--split", split, "--jobs", 1)
        assert invoke("make-shards", "--out", tmp_path / split, *table).code == 0
    sets = ("--urls", tmp_path / "train", "--val-urls", tmp_path / "val")
    ended = invoke("train", *sets, *TINY, "--epochs", 1, "--batch-size", 4, "--run-dir", tmp_path / "run")
    assert ended.code == 0, ended.stderr
    assert " parameters, 8 classes, " in ended.stdout + ended.stderr
