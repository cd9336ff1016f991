"""What the files at the root of the repository promise each other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECTS = (".", "packages/shardkit", "packages/wdsloader", "packages/resnettrain")
DEMO = "python3 -m venv .venv && .venv/bin/pip install -q 'nox[uv]' && .venv/bin/nox -s demo"
TESTS = "python3 -m venv .venv && .venv/bin/pip install -q 'nox[uv]' && .venv/bin/nox -s tests"


@pytest.mark.parametrize("command", [DEMO, TESTS])
def test_readme_has_the_command_on_a_line_of_its_own(command: str) -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert command in [line.strip().removeprefix("$ ") for line in lines]


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert TESTS in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_ci_script_can_be_executed() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_all_packages_have_one_version() -> None:
    versions = {tomllib.loads((ROOT / p / "pyproject.toml").read_text())["project"]["version"] for p in PROJECTS}
    assert len(versions) == 1


def test_pip_finds_our_own_packages_with_every_extra_that_one_asks_of_another() -> None:
    """It takes a place that is given for other extras for the place of another package, and asks the index."""
    needs = {p: tomllib.loads((ROOT / p / "pyproject.toml").read_text())["project"]["dependencies"] for p in PROJECTS}
    placed = {re.split(" ?@", line)[0] for line in needs.pop(".") if "{root:uri}" in line}
    asked = {line for lines in needs.values() for line in lines if re.match("(shardkit|wdsloader|resnettrain)", line)}
    assert asked
    assert [line for line in asked if not placed & {line, line.partition("[")[0]}] == []


def test_constraints_do_not_name_our_own_packages() -> None:
    lines = (ROOT / "tools" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    names = {re.split("[^a-z0-9-]", line, maxsplit=1)[0] for line in lines if not line.startswith("#")}
    assert len(names) > 20
    assert not names & {"shardkit", "wdsloader", "resnettrain", "wds"}


def test_requirements_leave_out_our_own_packages() -> None:
    command = [sys.executable, str(ROOT / "tools" / "lock.py"), "--requirements"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert "xxhash>=3.5" in lines
    assert not [line for line in lines if line.startswith(("shardkit", "wdsloader", "resnettrain", "wds"))]


def test_an_overlong_function_is_over_budget(tmp_path: Path) -> None:
    checkout = _checkout_with(tmp_path, {"long.py": "def f():\n" + "    pass\n" * 60})
    result = _run_check(checkout, "check_sizes.py")
    assert result.returncode == 1
    assert "long.py:1: f() has 61 lines, at most 60." in result.stdout


def test_an_overlong_module_is_over_budget(tmp_path: Path) -> None:
    checkout = _checkout_with(tmp_path, {"long.py": "x = 1\n" * 401})
    result = _run_check(checkout, "check_sizes.py")
    assert result.returncode == 1
    assert "long.py: 401 lines, at most 400." in result.stdout


def test_code_within_the_budgets_passes(tmp_path: Path) -> None:
    checkout = _checkout_with(tmp_path, {"short.py": "def f():\n" + "    pass\n" * 59 + "x = 1\n" * 340})
    assert _run_check(checkout, "check_sizes.py").returncode == 0


@pytest.mark.parametrize(
    "text", ["see https://py" + "pi.org/p", "-i https://mirror/simple" + "/", "file:" + "///tmp/x"]
)
def test_the_name_of_a_registry_or_a_machine_path_is_a_finding(tmp_path: Path, text: str) -> None:
    result = _run_check(_checkout_with(tmp_path, {"notes.md": f"a line\n{text}\n"}), "check_hosts.py")
    assert result.returncode == 1
    assert "notes.md:2: " in result.stdout


def test_a_lock_of_uv_is_a_finding(tmp_path: Path) -> None:
    result = _run_check(_checkout_with(tmp_path, {"uv.lock": "version = 1\n"}), "check_hosts.py")
    assert result.returncode == 1
    assert "uv.lock: must not be in the repository." in result.stdout


def _checkout_with(folder: Path, files: dict[str, str]) -> Path:
    """Return a git checkout that holds the check scripts and the given files."""
    (folder / "tools").mkdir()
    for script in (ROOT / "tools").glob("check_*.py"):
        (folder / "tools" / script.name).write_bytes(script.read_bytes())
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


def _run_check(checkout: Path, script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "tools" / script)]
    return subprocess.run(command, check=False, capture_output=True, text=True)
