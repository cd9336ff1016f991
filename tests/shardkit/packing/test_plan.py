from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardkit import (
    FakeImageNet,
    FakeSource,
    PackConfig,
    PackError,
    PlanFileError,
    Recode,
    ShardPlan,
    Slice,
    Source,
    Transform,
    WrittenPlan,
    open_folder,
    open_ilsvrc_train,
    open_ilsvrc_val,
    open_table,
    parse_slice,
    plan_of,
    plan_shards,
    read_plan,
    reopen_source,
    write_plan,
)
from tests.helpers.folders import image_folder
from tests.helpers.ilsvrc import train_archive, val_archive, wnid_of

UPPER = Transform(name="upper", version="upper 1", apply=bytes.upper)
FIRST = {"name": "t-000000.tar", "first": 0, "end": 4}


def plan_for(source: Source, **settings: Any) -> WrittenPlan:
    config = PackConfig(folder=Path(), prefix="t", **settings)
    return plan_of(source, plan_shards(source, prefix="t", num_shards=2), config=config)


def sources(tmp_path: Path) -> dict[str, Source]:
    """One source of each kind that packs files, none with the usual settings."""
    folder = image_folder(tmp_path / "in")
    (tmp_path / "t.csv").write_text("path,label,id\nin/n01/n01_0.JPEG,1,a\nin/n02/n02_0.JPEG,0,b\n")
    (tmp_path / "truth.txt").write_text("\n".join(wnid_of(short) for short in ("n01", "n02", "n01")))
    return {
        "fake": FakeSource(FakeImageNet(num_samples=4, num_classes=2, split="val", size=(40, 32), quality=80)),
        "folder": open_folder(folder, split="val", seed=3, val_share=0.4, shuffle=False),
        "table": open_table(tmp_path / "t.csv", seed=3, shuffle=False),
        "train": open_ilsvrc_train(train_archive(tmp_path / "train.tar", {"n01": 2}), seed=3),
        "val": open_ilsvrc_val(val_archive(tmp_path / "val.tar", 3), ground_truth=tmp_path / "truth.txt", seed=3),
    }


@pytest.mark.parametrize("kind", ["fake", "folder", "table", "train", "val"])
def test_a_source_is_opened_again_from_what_the_plan_says(tmp_path: Path, kind: str) -> None:
    source = sources(tmp_path)[kind]
    recipe = json.loads(json.dumps(dict(source.recipe)))
    again = reopen_source(recipe)
    assert (type(again), len(again), again.fingerprint) == (type(source), len(source), source.fingerprint)
    assert (again.split, again.seed, again.shuffled, again.options) == (
        source.split,
        source.seed,
        source.shuffled,
        source.options,
    )
    assert again.sample(1) == source.sample(1)


@pytest.mark.parametrize(
    "recipe",
    [
        {},
        {"kind": "pipe"},
        {"kind": "image-folder"},
        {"kind": "image-folder", "folder": 3, "split": "train", "seed": 0, "val_share": None, "shuffle": True},
        {"kind": "fake-imagenet", "size": 3},
        {"kind": "fake-imagenet", "size": [32, 32], "command": "x"},
    ],
)
def test_a_recipe_that_is_none_is_refused(recipe: dict[str, object]) -> None:
    with pytest.raises(PlanFileError):
        reopen_source(recipe)


def test_a_source_that_is_gone_is_an_error_in_words(tmp_path: Path) -> None:
    recipe = dict(open_folder(image_folder(tmp_path / "in")).recipe)
    (tmp_path / "in").rename(tmp_path / "elsewhere")
    with pytest.raises(PackError, match="not a folder"):
        reopen_source(recipe)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    source = open_folder(image_folder(tmp_path / "in"))
    for settings in ({}, {"on_error": "skip", "recode": Recode(max_size_px=9, quality=80), "transform": UPPER}):
        plan = plan_for(source, **settings)
        write_plan(plan, tmp_path / "t.plan.json")
        assert read_plan(tmp_path / "t.plan.json") == plan


class TestDifferences:
    def test_where_the_source_lies_is_none(self, tmp_path: Path) -> None:
        first = plan_for(open_folder(image_folder(tmp_path / "in")))
        (tmp_path / "in").rename(tmp_path / "elsewhere")
        second = plan_for(open_folder(tmp_path / "elsewhere"))
        assert first.recipe != second.recipe
        assert first.differences(second) == []

    def test_each_difference_of_two_plans_is_named(self, tmp_path: Path) -> None:
        source = open_folder(image_folder(tmp_path / "in"))
        plan = plan_for(source)
        assert plan.differences(plan_for(source, on_error="skip")) == ["what to do with bad sources (--on-error)"]
        assert plan.differences(plan_for(source, recode=Recode(quality=80))) == [
            "how pictures are re-encoded",
            "the version of what writes the JPEGs",
        ]
        assert plan.differences(plan_for(open_folder(tmp_path / "in", seed=1))) == [
            "the source: its files, their order, labels or sizes"
        ]
        assert plan.differences(replace(plan, shards=(ShardPlan("t-000000.tar", range(15)),))) == [
            "the layout of the shards"
        ]


class TestDamage:
    def written(self, tmp_path: Path) -> dict[str, Any]:
        plan = plan_for(FakeSource(FakeImageNet(num_samples=4, num_classes=2)))
        write_plan(plan, tmp_path / "t.plan.json")
        document: dict[str, Any] = json.loads((tmp_path / "t.plan.json").read_text())
        return document

    @pytest.mark.parametrize(
        "change",
        [
            {"format": "x"},
            {"version": 2},
            {"prefix": "../t"},
            {"prefix": 3},
            {"on_error": "run"},
            {"recode": {"quality": 900}},
            {"recode": {"shell": "x"}},
            {"fingerprint": None},
            {"source": None},
            {"shards": []},
            {"shards": [{"name": "../t-000000.tar", "first": 0, "end": 4}]},
            {"shards": [{"name": "u-000000.tar", "first": 0, "end": 4}]},
            {"shards": [{"name": "t-000000.tar", "first": 0, "end": 0}]},
            {"shards": [{"name": "t-000000.tar", "first": True, "end": 4}]},
            {"shards": [{"name": "t-000000.tar", "first": 1, "end": 4}]},
            {
                "shards": [
                    {"name": "t-000000.tar", "first": 0, "end": 4},
                    {"name": "t-000000.tar", "first": 4, "end": 5},
                ]
            },
            {
                "shards": [
                    {"name": "t-000000.tar", "first": 0, "end": 4},
                    {"name": "t-000001.tar", "first": 5, "end": 6},
                ]
            },
        ],
    )
    def test_a_plan_that_cannot_be_is_refused(self, tmp_path: Path, change: dict[str, Any]) -> None:
        (tmp_path / "t.plan.json").write_text(json.dumps(self.written(tmp_path) | change))
        with pytest.raises(PlanFileError, match=r"t\.plan\.json: "):
            read_plan(tmp_path / "t.plan.json")

    @pytest.mark.parametrize("data", [b"", b"{", b"null", b"[" * 100_000, b"\xff"])
    def test_a_file_that_is_no_plan_is_refused(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "t.plan.json").write_bytes(data)
        with pytest.raises(PlanFileError):
            read_plan(tmp_path / "t.plan.json")


class TestSlices:
    @pytest.mark.parametrize("of", [1, 2, 3, 7, 16])
    def test_all_together_are_the_plan_and_share_nothing(self, of: int) -> None:
        source = FakeSource(FakeImageNet(num_samples=40, num_classes=2))
        plan = plan_of(
            source, plan_shards(source, prefix="t", num_shards=13), config=PackConfig(folder=Path(), prefix="t")
        )
        shards = [shard for number in range(1, of + 1) for shard in Slice(number, of).shards(plan)]
        assert sorted(shards, key=lambda shard: shard.name) == list(plan.shards)

    def test_it_is_read_as_people_write_it(self) -> None:
        assert parse_slice("3/16") == Slice(3, 16)

    @pytest.mark.parametrize("text", ["", "3", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "1/00"])
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(PackError, match="slice"):
            parse_slice(text)


def test_work_on_a_plan_needs_its_transform() -> None:
    plan = plan_for(FakeSource(FakeImageNet(num_samples=4, num_classes=2)), transform=UPPER)
    assert plan.config(Path("x"), transform=UPPER).folder == Path("x")
    for other in (None, Transform(name="lower", version="upper 1", apply=bytes.lower)):
        with pytest.raises(PackError, match=r"asks for the transform upper, not for"):
            plan.config(Path("x"), transform=other)


def test_another_version_of_the_transform_is_a_difference(tmp_path: Path) -> None:
    source = open_folder(image_folder(tmp_path / "in"))
    plan = plan_for(source, transform=UPPER)
    assert plan.encoder == "upper 1"
    assert plan.differences(plan_for(source, transform=replace(UPPER, version="upper 2"))) == [
        "the version of what writes the JPEGs"
    ]
