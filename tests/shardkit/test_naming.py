from __future__ import annotations

import pytest

from shardkit.naming import dataset_named, missing_between, split_named


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("d/t-000000.tar", "d/t-000001.tar", True),
        ("d/imagenet-train-000000.tar", "d/imagenet-val-000000.tar", False),
        ("train/000000.tar", "val/000000.tar", False),
        ("block_00000/part_8.tar", "block_00001/part_8.tar", True),
        ("00/x-1.tar", "01/x-1.tar", True),
        ("cifar10/t-0.tar", "cifar100/t-0.tar", False),
        ("d/x-1-of-4.tar", "d/x-2-of-4.tar", True),
        ("d/t-0.tar", "d/t-1.tar.gz", True),
        ("d/cats.tar", "d/dogs.tar", True),
        ("d/train.tar", "d/val.tar", False),
        ("d/cats.tar", "e/cats.tar", False),
        ("http://h/t-0.tar?sig=1", "http://h/t-1.tar?sig=2", True),
        ("http://h/t-0.tar", "http://g/t-0.tar", False),
        ("pipe:cat t-0.tar", "pipe:cat t-1.tar", True),
        ("-", "t-0.tar", False),
    ],
)
def test_shards_whose_names_differ_in_numbers_alone_are_one_dataset(one: str, other: str, same: bool) -> None:
    assert (dataset_named(one) == dataset_named(other)) is same


@pytest.mark.parametrize(
    ("location", "split"),
    [
        ("d/imagenet-train-000000.tar", "train"),
        ("ILSVRC/Validation/000000.tar", "val"),
        ("train-runs/x_val_3.tar", "val"),
        ("d/test2017.tar", "test"),
        ("train/d/x-0.tar", None),
        ("d/trained-0.tar", None),
        ("http://h/x-0.tar?set=train", None),
        ("-", None),
    ],
)
def test_the_last_word_for_a_split_counts(location: str, split: str | None) -> None:
    assert split_named(location) == split


@pytest.mark.parametrize(
    ("numbers", "missing"),
    [
        ("d/t-{:06d}.tar", ["d/t-000002.tar"]),
        ("d/t-{}.tar", ["d/t-2.tar"]),
        ("d/t-{:05d}-of-00004.tar", ["d/t-00002-of-00004.tar"]),
        ("http://h/4/{:02d}.tar?sig=1", ["http://h/4/02.tar"]),
        ("pipe:cat t-{}.tar", []),
    ],
)
def test_a_gap_in_the_numbers_of_shards_is_named(numbers: str, missing: list[str]) -> None:
    assert missing_between([numbers.format(number) for number in (3, 0, 1)]) == missing


@pytest.mark.parametrize(
    "locations",
    [
        [],
        ["a.tar"],
        ["t-7.tar"],
        ["t-4.tar", "t-5.tar", "t-6.tar"],
        ["t-9.tar", "t-10.tar", "t-11.tar"],
        ["t-20240101.tar", "t-20240301.tar"],
        ["t-1-1.tar", "t-3-3.tar", "t-5-5.tar"],
        ["b_1/t-0.tar", "b_3/t-1.tar"],
        ["cats.tar", "dogs.tar"],
    ],
)
def test_numbers_without_a_gap_or_that_are_no_numbering_are_let_be(locations: list[str]) -> None:
    assert missing_between(locations) == []


def test_each_numbered_folder_has_a_numbering_of_its_own() -> None:
    inside = [f"block_{block}/{number:02d}.tar" for block in (0, 1) for number in (0, 1, 3)]
    assert missing_between(inside) == ["block_0/02.tar", "block_1/02.tar"]
