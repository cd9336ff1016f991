from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers.cli import invoke
from tests.helpers.damaged import write_with_bad_pictures
from tests.helpers.http_server import serve
from tests.helpers.packed import write_packed
from tests.helpers.shards import write_samples
from wds.loader_options import BATCH_SIZE, IMAGE_SIZE
from wdsloader import LoaderConfig, TorchLoader, open_dataset


def test_keys_and_labels_come_as_training_has_them(tmp_path: Path) -> None:
    write_packed(tmp_path, [9, 7])
    ended = invoke(
        "peek", f"{tmp_path}/t-{{00..01}}.tar", "--batches", "2", "--batch-size", "4", "--seed", "3", "--json"
    )
    assert ended.code == 0
    shown = json.loads(ended.stdout)["samples"]
    with TorchLoader(
        open_dataset([str(tmp_path)]), LoaderConfig(batch_size=4, image_size=8, seed=3, num_workers=0, tail="pad")
    ) as loader:
        batches = [batch for _, batch in zip(range(2), loader, strict=False)]
    assert [sample["key"] for sample in shown] == [key for batch in batches for key in batch.keys]
    assert [sample["label"] for sample in shown] == [label for batch in batches for label in batch.labels.tolist()]
    assert {sample["class"] for sample in shown} <= set("abcdefghij")


def test_the_table_has_a_line_for_each_sample(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "s.tar", 5)
    ended = invoke("peek", shard, "--no-shuffle", "--batch-size", "2", "--batches", "2")
    lines = ended.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["batch", "0"], ["000000", "0"], ["000001", "1"], ["batch", "1"], ["000002", "2"], ["000003", "3"],
    ]  # fmt: skip
    assert str(shard) in lines[1]


def test_of_long_batches_the_first_samples_are_listed_and_the_rest_counted(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "s.tar", 13)
    ended = invoke("peek", shard, "--no-shuffle", "--batch-size", "10", "--rows", "2")
    assert [line.split()[:3] for line in ended.stdout.splitlines()] == [
        ["batch", "0"], ["000000", "0", str(shard)], ["000001", "1", str(shard)], ["..", "and", "8"],
        ["batch", "1"], ["000010", "0", str(shard)], ["000011", "1", str(shard)], ["..", "and", "1"],
    ]  # fmt: skip


def test_the_defaults_are_those_of_train(tmp_path: Path) -> None:
    train = tomllib.loads(invoke("train", "--urls", tmp_path, "--dry-run").stdout)
    assert (train["data"]["batch_size"], train["model"]["image_size"]) == (BATCH_SIZE, IMAGE_SIZE)
    shard = write_samples(tmp_path / "s.tar", 3)
    document = json.loads(invoke("peek", shard, "--json").stdout)
    assert document["batch_size"] == train["data"]["batch_size"]


@pytest.mark.usefixtures("verbose")
def test_shards_without_a_manifest_are_shown_as_they_are_streamed(tmp_path: Path) -> None:
    write_samples(tmp_path / "far/s.tar", 5)
    with serve(tmp_path / "far") as server:
        ended = invoke("peek", server.url + "/s.tar", "--no-shuffle", "--batch-size", "2", "--json")
    assert [sample["key"] for sample in json.loads(ended.stdout)["samples"]] == ["000000", "000001", "000002", "000003"]
    assert "working in the inexact mode" in ended.stderr


def test_a_command_is_shown_where_it_is_allowed_and_the_error_names_an_option_that_is_there(tmp_path: Path) -> None:
    command = f"pipe:cat {write_samples(tmp_path / 's.tar', 3)}"
    refused = invoke("peek", command)
    assert (refused.code, "--allow-commands" in refused.stderr) == (2, True)
    assert "000001" in invoke("peek", command, "--allow-commands").stdout


def test_a_pattern_without_a_match_is_wrong_use(tmp_path: Path) -> None:
    assert invoke("peek", f"{tmp_path}/none-*.tar").code == 2


def test_bad_samples_are_passed_over_when_asked_for_however_many_and_counted(tmp_path: Path) -> None:
    shard = write_with_bad_pictures(tmp_path / "s.tar", 6, bad={1, 4})
    args = ("peek", shard, "--image-size", 16, "--sheet", tmp_path / "sheet.png")
    assert invoke(*args).code == 1
    ended = invoke(*args, "--on-error", "skip")
    assert (ended.code, "4 delivered, 2 skipped" in ended.stderr) == (0, True)


def test_a_wrong_choice_is_named(tmp_path: Path) -> None:
    ended = invoke("peek", write_samples(tmp_path / "s.tar", 2), "--on-error", "pass")
    assert (ended.code, "--on-error pass: choose stop or skip" in ended.stderr) == (2, True)


def test_the_sheet_is_a_picture_of_the_augmented_batches_and_replaces_none(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "s.tar", 9)
    args = ("peek", shard, "--batch-size", 3, "--batches", 2, "--image-size", 32, "--sheet", tmp_path / "sheet.png")
    first = invoke(*args)
    assert (first.code, f"wrote {tmp_path}/sheet.png" in first.stderr) == (0, True)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (3 * 154 + 10, 2 * 188 + 34)
        assert len(sheet.convert("RGB").getcolors(100_000) or []) > 50
    again = invoke(*args)
    assert (again.code, f"{tmp_path}/sheet.png" in again.stderr) == (2, True)
