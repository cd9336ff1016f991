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
