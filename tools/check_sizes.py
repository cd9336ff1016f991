"""Check the size budgets of the house style: lines of a module, lines of a function.

Ruff checks the other budgets (complexity, number of arguments); it has no rule for these two.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["check_file", "main"]

ROOT = Path(__file__).resolve().parents[1]
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60


def check_file(path: Path, *, name: str) -> Iterator[str]:
    """Yield one line for each budget that the file breaks. `name` is its path in the repository."""
    text = path.read_text(encoding="utf-8")
    num_lines = len(text.splitlines())
    if num_lines > MAX_MODULE_LINES:
        yield f"{name}: {num_lines} lines, at most {MAX_MODULE_LINES}. Split it by noun."
    for node in ast.walk(ast.parse(text, filename=name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name}() has {lines} lines, at most {MAX_FUNCTION_LINES}."


def main() -> None:
    """Check every Python file of the checkout; exit 1 if one is over budget."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    files = {name: ROOT / name for name in sorted(names) if name and (ROOT / name).is_file()}
    problems = [problem for name, path in files.items() for problem in check_file(path, name=name)]
    print(*problems, f"sizes: {len(files)} files, {len(problems)} over budget", sep="\n")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
