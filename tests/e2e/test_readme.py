"""The README tells the truth: its commands run, and print what it shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.e2e
@pytest.mark.slow
def test_the_commands_of_the_readme_print_what_it_shows() -> None:
    _check_readme()


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_command_of_the_readme_does_all_set_up_in_a_fresh_clone() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout to clone")
    _check_readme("--set-up")


def _check_readme(*options: str) -> None:
    command = [sys.executable, str(ROOT / "tools" / "check_readme.py"), *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
