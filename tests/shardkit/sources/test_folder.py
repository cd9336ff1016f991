from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from shardkit import PackError, SourceError, open_folder
from tests.helpers.folders import image_folder
from tests.helpers.pictures import encode
from tests.helpers.shards import jpeg_bytes


def test_classes_are_numbered_by_name_as_text(tmp_path: Path) -> None:
    source = open_folder(image_folder(tmp_path, classes=tuple(str(n) for n in range(12)), per_class=1))
    assert source.classes == ("0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9")
    assert source.class_order == "by name, as text"


def test_a_sample_has_the_bytes_of_its_file(tmp_path: Path) -> None:
    source = open_folder(image_folder(tmp_path), shuffle=False)
    sample = source.sample(6)
    assert sample.key == "00000006_n02_1"
    assert sample.members == (("jpg", jpeg_bytes(1001)), ("cls", b"1"))
    assert sample.origin == "n02/n02_1.JPEG"


def test_awkward_names_give_different_plain_keys_and_stay_on_record(tmp_path: Path) -> None:
    names = [
        "n01/1.jpg",
        "n02/1.jpg",
        "n01/with space.jpg",
        "n01/dots.v2.final.jpg",
        "n02/café.jpg",
        "n02/UPPER.JPG",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(jpeg_bytes(len(name)))
    source = open_folder(tmp_path)
    samples = [source.sample(number) for number in range(len(source))]
    assert len({sample.key for sample in samples}) == 6
    assert all(sample.key.replace("_", "").isalnum() and sample.key.isascii() for sample in samples)
    assert Counter(dict(sample.members)["cls"] for sample in samples) == {b"0": 3, b"1": 3}
    assert sorted(sample.origin for sample in samples) == sorted(names)
    assert {extension for sample in samples for extension, _ in sample.members} == {"jpg", "cls"}


def test_a_very_long_name_gives_a_key_that_fits_ustar(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / f"{'x' * 240}.jpeg").write_bytes(jpeg_bytes(0))
    assert len(open_folder(tmp_path).sample(0).key) < 90


def test_other_files_hidden_ones_and_pictures_in_no_class_are_named_as_ignored(tmp_path: Path) -> None:
    image_folder(tmp_path)
    for name in ("n01/notes.txt", "n01/.hidden.jpg", "n01/._n01_0.JPEG", ".DS_Store", "README.jpg"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / ".git").mkdir()
    source = open_folder(tmp_path)
    assert (len(source), source.classes) == (15, ("n01", "n02", "n03"))
    assert source.ignored == ("README.jpg", "n01/._n01_0.JPEG", "n01/.hidden.jpg", "n01/notes.txt")


def test_pictures_at_any_depth_belong_to_the_class(tmp_path: Path) -> None:
    image_folder(tmp_path, per_class=1)
    (tmp_path / "n01" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "n01" / "deep" / "er" / "x.png").write_bytes(jpeg_bytes(0))
    assert [name for name, label, _ in open_folder(tmp_path, shuffle=False).files if label == 0] == [
        "n01/deep/er/x.png",
        "n01/n01_0.JPEG",
    ]


def test_links_are_followed_to_the_bytes(tmp_path: Path) -> None:
    image_folder(tmp_path / "real", per_class=1)
    (tmp_path / "linked" / "a").mkdir(parents=True)
    (tmp_path / "linked" / "a" / "soft.jpg").symlink_to(tmp_path / "real" / "n01" / "n01_0.JPEG")
    os.link(tmp_path / "real" / "n02" / "n02_0.JPEG", tmp_path / "linked" / "a" / "hard.jpg")
    (tmp_path / "linked" / "b").symlink_to(tmp_path / "real" / "n03")
    source = open_folder(tmp_path / "linked", shuffle=False)
    assert [source.sample(n).members[0][1] for n in range(3)] == [jpeg_bytes(1000), jpeg_bytes(0), jpeg_bytes(2000)]


def test_a_link_that_leads_back_packs_nothing_twice(tmp_path: Path) -> None:
    image_folder(tmp_path, per_class=2)
    (tmp_path / "n01" / "loop").symlink_to(tmp_path / "n01")
    (tmp_path / "n02" / "again").symlink_to(tmp_path / "n02", target_is_directory=True)
    assert len(open_folder(tmp_path)) == 6


@pytest.mark.parametrize("up", ["..", "../.."])
def test_a_link_that_leads_up_gives_no_class_the_pictures_of_others(tmp_path: Path, up: str) -> None:
    image_folder(tmp_path / "source", per_class=2)
    (tmp_path / "source" / "n01" / "up").symlink_to(up)
    source = open_folder(tmp_path / "source")
    assert sorted(label for _, label, _ in source.files) == [0, 0, 1, 1, 2, 2]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    image_folder(tmp_path)
    (tmp_path / "n01" / "locked").mkdir(mode=0)
    with pytest.raises(PermissionError):
        open_folder(tmp_path)


def test_a_class_name_that_is_not_utf8_is_taken(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    image_folder(tmp_path, classes=(name, "x"), per_class=4)
    source = open_folder(tmp_path, val_share=0.25)
    assert name in source.classes
    assert len(source) == 6


@pytest.mark.parametrize("content", [b"", b"not a picture", b"\xff\xd8\xff\xe0 this is not a picture"])
def test_a_file_that_is_no_picture_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    image_folder(tmp_path, classes=("a",), per_class=0)
    (tmp_path / "a" / "bad.jpg").write_bytes(content)
    with pytest.raises(SourceError, match=r"^a/bad\.jpg: .*picture") as caught:
        open_folder(tmp_path).sample(0)
    assert caught.value.origin == "a/bad.jpg"


def test_a_file_that_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    source = open_folder(image_folder(tmp_path, classes=("a",), per_class=1))
    (tmp_path / "a" / "a_0.JPEG").unlink()
    with pytest.raises(SourceError, match=r"^a/a_0\.JPEG: No such file"):
        source.sample(0)


def test_an_error_can_be_printed_whatever_the_name() -> None:
    str(SourceError("caf\udce9\x1b[31m.jpg", "bad")).encode()
    assert str(SourceError("caf\udce9\x1b[31m.jpg", "bad")).isprintable()


def test_a_png_named_jpeg_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    png = encode(Image.new("RGB", (4, 4)), "PNG")
    (tmp_path / "a" / "x.JPEG").write_bytes(png)
    assert open_folder(tmp_path).sample(0).members[0] == ("jpg", png)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: None, "not a folder"),
        (lambda folder: folder.mkdir(), "no subfolders"),
        (lambda folder: (folder / "empty").mkdir(parents=True), "a class without a picture"),
    ],
)
def test_a_folder_of_another_shape_is_refused(tmp_path: Path, make: object, reason: str) -> None:
    assert callable(make)
    make(tmp_path / "folder")
    with pytest.raises(PackError, match=reason):
        open_folder(tmp_path / "folder")


def test_the_order_depends_on_the_seed_alone(tmp_path: Path) -> None:
    image_folder(tmp_path)
    first, second = (open_folder(tmp_path, seed=seed).files for seed in (0, 1))
    assert first == open_folder(tmp_path, seed=0).files
    assert first != second
    assert sorted(first) == sorted(second)


def test_a_source_travels_to_other_processes(tmp_path: Path) -> None:
    source = open_folder(image_folder(tmp_path))
    assert pickle.loads(pickle.dumps(source)) == source


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5, 0.9])
def test_train_and_val_are_the_whole_folder_and_share_nothing(tmp_path: Path, share: float) -> None:
    image_folder(tmp_path, per_class=7)
    halves = [open_folder(tmp_path, split=split, seed=3, val_share=share).files for split in ("train", "val")]
    assert sorted(halves[0] + halves[1]) == sorted(open_folder(tmp_path).files)


def test_every_class_gives_its_share(tmp_path: Path) -> None:
    image_folder(tmp_path, per_class=10)
    val = open_folder(tmp_path, split="val", val_share=0.2)
    assert Counter(label for _, label, _ in val.files) == {0: 2, 1: 2, 2: 2}


def test_one_class_does_not_move_another(tmp_path: Path) -> None:
    image_folder(tmp_path, per_class=10)
    before = {f for f in open_folder(tmp_path, split="val", val_share=0.2).files if f[1] == 2}
    (tmp_path / "n01" / "more.jpg").write_bytes(jpeg_bytes(5))
    assert before <= set(open_folder(tmp_path, split="val", val_share=0.2).files)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5])
def test_a_share_that_is_none_is_refused(tmp_path: Path, share: float) -> None:
    with pytest.raises(PackError, match="between 0 and 1"):
        open_folder(image_folder(tmp_path), val_share=share)


def test_a_split_without_a_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackError, match="no picture is left for the split 'val'"):
        open_folder(image_folder(tmp_path, per_class=2), split="val", val_share=0.1)
