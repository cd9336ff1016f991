"""The control of the demo: with shuffled labels there is nothing to learn.

That the demo itself learns is in test_readme.py, which runs it as the README does: below 0.95 it exits with 1.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.cli import invoke

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]


def validation_top1(stdout: str) -> float:
    match = re.search(r"^validation top-1 (\d\.\d{4}) on 200 samples, each counted once$", stdout, re.MULTILINE)
    assert match is not None, stdout
    return float(match[1])


def test_shuffled_labels_are_not_learnt(tmp_path: Path) -> None:
    ended = invoke("demo", "--out", tmp_path / "demo", "--labels", "shuffled")
    assert ended.code == 0, ended.stderr
    assert validation_top1(ended.stdout) <= 0.25  # ten classes: chance is 0.1
