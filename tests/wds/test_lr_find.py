from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.cli import invoke
from tests.helpers.picture_sets import PictureSet

OPTIONS = (
    "--model", "tiny", "--image-size", 32, "--batch-size", 4, "--workers", 0, "--device", "cpu",
    "--set", "runtime.threads=1", "--updates", 4,
)  # fmt: skip


def test_a_table_and_a_suggestion_or_the_reason_for_none(
    train_set: PictureSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = invoke("lr-find", train_set.manifest, *OPTIONS)
    assert ended.code == 0
    lines = ended.stdout.splitlines()
    assert lines[0].split() == ["learning", "rate", "loss", "smoothed"]
    assert [line.split()[0] for line in lines[1:5]] == ["1e-05", "0.001", "0.1", "10"]
    assert lines[5].startswith(("suggestion: --lr ", "no suggestion: the loss did not fall"))
    assert list(tmp_path.iterdir()) == []


def test_json_has_every_point(train_set: PictureSet) -> None:
    document = json.loads(invoke("lr-find", train_set.manifest, *OPTIONS, "--json").stdout)
    assert len(document["points"]) == 4
    assert {"schema_version", "points", "suggestion", "diverged"} == set(document)


def test_without_shards_it_is_wrong_use() -> None:
    ended = invoke("lr-find")
    assert (ended.code, "no shards are named" in ended.stderr) == (2, True)
