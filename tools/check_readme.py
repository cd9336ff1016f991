"""Run the commands of README.md and compare what they print with what it shows; ``--write`` puts in what they print.

A ```` ```console ```` block holds commands (``$ ...``) and their standard output. Blocks run in order, in one folder.
Lines with times, rates or losses are compared with their numbers masked, passing reports not at all. Commands that set
up an environment are run only with ``--set-up``, and then they alone, in a fresh clone; the one that runs these very
tests is never run.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SET_UP = "python3 -m venv"
# What would lead the set-up command into the environment that runs this script.
_OF_THIS_ENVIRONMENT = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "CONDA_PREFIX", "NOX_")
# Reports that come every few seconds, how many depends on the machine; and which epoch was the best so far.
_REPORT = re.compile(r"epoch \d+(/\d+ batch| validation:) ")
# Lines whose numbers differ from run to run.
_VOLATILE = re.compile(r"images/s|\d s\b|loss|top-1|runs/")


def main() -> int:
    """Check or rewrite the README; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the real output into README.md")
    parser.add_argument("--set-up", action="store_true", help="run the set-up command of the demo, in a fresh clone")
    options = parser.parse_args()
    text = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="readme-") as name:
        folder = Path(name)
        if options.set_up:
            folder = folder / "clone"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
        wrong: list[str] = []

        def replaced(match: re.Match[str]) -> str:
            return f"```console\n{_checked(match[1], folder, wrong=wrong, set_up=options.set_up)}```"

        rewritten = _BLOCK.sub(replaced, text)
    if options.write:
        README.write_text(rewritten, encoding="utf-8")
        return 0
    print("\n".join(wrong) or "README.md shows what its commands print")
    return 1 if wrong else 0


def _checked(block: str, folder: Path, *, wrong: list[str], set_up: bool) -> str:
    """Return the block with the real output of its commands; note in ``wrong`` where it differs from the shown one."""
    written = ""
    for command, shown in _commands(block):
        if command.startswith(_SET_UP) != set_up or command.endswith("-s tests"):
            written += f"$ {command}\n{shown}"
            continue
        real = _output(command, folder)
        if _masked(real) != _masked(shown):
            wrong.append(f"$ {command}\n--- README.md shows\n{shown}--- it prints\n{real}")
        written += f"$ {command}\n{real}"
    return written


def _commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block with the output shown below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def _output(command: str, folder: Path) -> str:
    """Return what a command prints to standard output, run by a shell with this Python's ``wds`` first on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_THIS_ENVIRONMENT)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**kept, "PATH": path, "COLUMNS": "100", "PYTHONPATH": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    # Figures are masked in the comparison, so only the exit code tells that the demo has learnt nothing.
    if result.returncode != 0:
        raise SystemExit(f"$ {command}\nended with {result.returncode}\n{result.stderr}")
    return result.stdout


def _masked(output: str) -> str:
    lines = [line for line in output.splitlines() if not _REPORT.match(line)]
    return "\n".join(re.sub(r" *\d[\d.,:-]*", " #", line) if _VOLATILE.search(line) else line for line in lines)


if __name__ == "__main__":
    sys.exit(main())
