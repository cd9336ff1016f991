from __future__ import annotations

import pytest

from shardkit.keys import is_hidden, is_part_of_sample, picture_extension, split_name


@pytest.mark.parametrize(
    ("name", "key", "extension"),
    [
        ("000000.jpg", "000000", "jpg"),
        ("imagenet.2012/train.v1/000001.jpg", "imagenet.2012/train.v1/000001", "jpg"),
        ("/some/path/22.0/1.1.jpg", "/some/path/22.0/1", "1.jpg"),
        ("n01440764_10026.v2.jpg", "n01440764_10026", "v2.jpg"),
        ("img_2024-01-02T03.04.05.jpg", "img_2024-01-02T03", "04.05.jpg"),
        ("a/0001.cls", "a/0001", "cls"),
        ("b/0001.cls", "b/0001", "cls"),
        ("000000.JPG", "000000", "jpg"),
        ("./000000.JPEG", "./000000", "jpeg"),
        ("A.jpg", "A", "jpg"),
        ("caf\udce9.jpg", "caf\udce9", "jpg"),
        ("a.", "a", ""),
    ],
)
def test_the_extension_begins_at_the_first_dot_of_the_base_name(name: str, key: str, extension: str) -> None:
    assert split_name(name) == (key, extension)


@pytest.mark.parametrize("name", ["README", "folder.d/README", ".DS_Store", "a/._0001.jpg", "", "folder.d/", "."])
def test_a_base_name_without_a_stem_and_a_dot_belongs_to_no_sample(name: str) -> None:
    assert split_name(name) is None


@pytest.mark.parametrize(("name", "hidden"), [(".a.jpg", True), ("b/._a.jpg", True), (".nv-meta/a.jpg", False)])
def test_hidden_is_told_by_the_base_name(name: str, hidden: bool) -> None:
    assert is_hidden(name) is hidden


def test_jpg_is_preferred_where_a_sample_has_several_pictures() -> None:
    assert picture_extension({"png", "cls", "jpg"}) == "jpg"
    assert picture_extension({"json", "webp"}) == "webp"
    assert picture_extension({"v2.jpg", "cls"}) is None


@pytest.mark.parametrize(("extension", "is_part"), [("jpg", True), ("v2.jpg", True), ("cls", True), ("json", False)])
def test_a_part_of_a_sample_is_told_by_its_last_suffix(extension: str, is_part: bool) -> None:
    assert is_part_of_sample(extension) is is_part
