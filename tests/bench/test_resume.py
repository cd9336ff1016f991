"""The measurement of a resume runs on a few shards; what it measures decides no test."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from bench import resume


@pytest.mark.slow
def test_time_and_bytes_of_a_resume_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    resume.main(["--shards", "6", "--per-shard", "100", "--rounds", "1", "--workers", "0"])
    figures = capsys.readouterr().out.splitlines()[2:]
    names = ["to the dataset, s", "to the first batch, s", "CPU of this process, s", "read, MB", "the window, MB"]
    assert [line[:24].strip() for line in figures] == names
    assert float(figures[3][24:].split()[0]) > 0
