"""The benchmarks run, and compare like with like; what they measure decides no test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.mark.slow
def test_every_subject_and_its_peer_are_in_the_tables(tmp_path: Path) -> None:
    pytest.importorskip("webdataset")
    command = [sys.executable, "-m", "bench", "shards", "--rounds", "1", "--pictures", "12", "--only", "pack: "]
    command += ["--data", str(tmp_path / "data")]
    ended = subprocess.run(command, cwd=TOOLS, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    rows = [line for line in ended.stdout.splitlines() if line.startswith("| pack: ")]
    assert [row.split("|")[1].strip() for row in rows] == [
        "pack: ours",
        "pack: ShardWriter",
        "pack: ours, 2 processes",
        "pack: ours over pack: ShardWriter",
    ]
    assert re.search(r"^\d+ cores, .*webdataset \d", ended.stdout, re.MULTILINE)
