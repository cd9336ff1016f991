"""Write tools/constraints.txt: one tested version of every third-party package, for all Pythons and platforms.

Reads the requirements of the four pyproject.toml files, all extras and dependency groups included, and has uv resolve
them. Our own four packages are left out before uv sees them, so that no index is asked for their names. The file holds
versions only: no hashes, no hosts, no paths. Use it with `-c`, never with `-r`.

    python tools/lock.py                   write the file (`nox -s lock` does)
    python tools/lock.py --requirements    print what an installed `wds` requires, unlocked, one a line
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["main", "requirements"]

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "tools" / "constraints.txt"
PROJECTS = ("packages/shardkit", "packages/wdsloader", "packages/resnettrain", ".")
OUR_NAMES = frozenset({"shardkit", "wdsloader", "resnettrain", "wds"})
# torch brings gigabytes of CUDA libraries with it, so it moves only when somebody moves it. The two go together.
HELD = ("torch==2.14.1", "torchvision==0.29.1")
OLDEST_PYTHON = "3.11"
HEADER = "# Written by `nox -s lock`. Third-party versions that the tests ran with; for `-c`, never for `-r`.\n"


def requirements(*, with_groups: bool) -> list[str]:
    """Return the third-party requirements of the four packages with all extras, sorted, each once."""
    found: set[str] = set()
    for project in PROJECTS:
        with (ROOT / project / "pyproject.toml").open("rb") as file:
            found.update(_requirements_of(tomllib.load(file), with_groups=with_groups))
    return sorted(found)


def _requirements_of(pyproject: dict[str, Any], *, with_groups: bool) -> Iterator[str]:
    project = pyproject["project"]
    lists = [project.get("dependencies", []), *project.get("optional-dependencies", {}).values()]
    if with_groups:
        lists += pyproject.get("dependency-groups", {}).values()
    for requirement in (entry for entries in lists for entry in entries if isinstance(entry, str)):
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        if name not in OUR_NAMES:
            yield requirement


def _find_uv() -> str:
    beside = Path(sys.executable).with_name("uv")  # where `pip install nox[uv]` puts it
    path = str(beside) if beside.exists() else shutil.which("uv")
    if path is None:
        sys.exit("tools/lock.py: uv is not installed. Install it with: pip install 'nox[uv]'")
    return path


def main() -> None:
    """Print the requirements or write the constraints, as the arguments say."""
    if sys.argv[1:] == ["--requirements"]:
        print(*requirements(with_groups=False), sep="\n")
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    options = ["--universal", "--python-version", OLDEST_PYTHON, "--upgrade", "--strip-extras"]
    options += ["--no-header", "--no-annotate", "--no-config", "--quiet"]
    wanted = "\n".join([*requirements(with_groups=True), *HELD])
    command = [_find_uv(), "pip", "compile", *options, "-"]
    result = subprocess.run(command, input=wanted, text=True, stdout=subprocess.PIPE, check=False)
    if result.returncode != 0:
        sys.exit(result.returncode)
    CONSTRAINTS.write_text(HEADER + result.stdout, encoding="utf-8")
    print(f"{CONSTRAINTS.relative_to(ROOT)}: {len(result.stdout.splitlines())} versions")


if __name__ == "__main__":
    main()
