"""Check that no file of the checkout names a package registry, an index or a file by URL.

Such names end up in locks and configurations by accident and tie the project to one machine or mirror.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["check_text", "main"]

ROOT = Path(__file__).resolve().parents[1]
# Each is put together from parts, so that this file passes its own check.
FORBIDDEN = tuple(
    "".join(parts)
    for parts in (
        ("py", "pi.org"),
        ("python", "hosted.org"),
        ("npm", "js.org"),
        ("crates", ".io"),
        ("conda", ".anaconda.org"),
        ("download.", "pytorch.org"),
        ("--index", "-url"),
        ("--extra-index", "-url"),
        ("--find", "-links"),
        ("/simple", "/"),
        ("file:", "///"),
    )
)
PATTERN = re.compile("|".join(map(re.escape, FORBIDDEN)), re.IGNORECASE)
FORBIDDEN_FILES = frozenset({"uv.lock"})


def check_text(text: str, *, name: str) -> Iterator[str]:
    """Yield one line for each forbidden name in the text of the file called `name`."""
    for number, line in enumerate(text.splitlines(), start=1):
        for match in PATTERN.finditer(line):
            yield f"{name}:{number}: names '{match.group()}'. Leave registries and machine paths to the user."


def _check_file(path: Path, *, name: str) -> Iterator[str]:
    if path.name in FORBIDDEN_FILES:
        yield f"{name}: must not be in the repository. tools/constraints.txt takes its place."
    yield from check_text(path.read_bytes().decode("utf-8", errors="replace"), name=name)


def main() -> None:
    """Check every file that git has or would add; exit 1 if one holds a forbidden name."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    files = {name: ROOT / name for name in sorted(names) if name and (ROOT / name).is_file()}
    problems = [problem for name, path in files.items() for problem in _check_file(path, name=name)]
    print(*problems, f"hosts: {len(files)} files, {len(problems)} findings", sep="\n")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
