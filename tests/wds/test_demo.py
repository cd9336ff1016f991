"""What of `wds demo` costs nothing; the whole of it is tests/e2e/test_demo.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.cli import invoke


def test_a_dry_run_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = invoke("demo", "--dry-run")
    assert ended.code == 0
    assert "-demo/shards  1000 train and 200 val pictures of 10 classes" in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    ended = invoke("demo", "--out", tmp_path)
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr == f"Error: {tmp_path}: is not empty. Name another folder with --out\n"


def test_labels_other_than_signal_and_shuffled_are_refused() -> None:
    ended = invoke("demo", "--labels", "shuffeld")
    assert ended.code == 2
    assert "'signal'" in ended.stderr
    assert "'shuffled'" in ended.stderr
