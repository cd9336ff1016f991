from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from tests.helpers.cli import invoke


def test_doctor_prints_a_line_a_topic_and_exits_with_0_where_all_works() -> None:
    ended = invoke("doctor")
    assert ended.code == 0
    topics = [line.split()[1] for line in ended.stdout.splitlines() if not line.startswith(" ")]
    expected = "Python packages decoding cores memory temporary stores extras devices loader"
    assert topics == expected.split()


def test_doctor_exits_with_1_where_something_does_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    ended = invoke("doctor", "--json")
    assert ended.code == 1
    checks = json.loads(ended.stdout)["checks"]
    assert [check["topic"] for check in checks if check["state"] == "bad"] == ["temporary", "loader"]


def test_doctor_notes_a_temporary_folder_that_is_asked_for_and_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tempfile.gettempdir()  # known from here on, as where Python fell back to another
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    ended = invoke("doctor", "--json")
    assert ended.code == 0
    (check,) = [check for check in json.loads(ended.stdout)["checks"] if check["topic"] == "temporary"]
    assert check["state"] == "note"
    assert str(tmp_path / "missing") in check["found"]
