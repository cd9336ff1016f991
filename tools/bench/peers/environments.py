"""Environments for the peers: one each, so that no peer has to put up with another's versions; ours stay as they are.

uv makes them in seconds and shares the files between them; without uv it is pip, and each has its own torch.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["NotInstalled", "environment", "install_files"]

_CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
# What is compared runs on the same of these everywhere; all else is as each peer asks for it.
_HELD = ("torch==", "torchvision==", "pillow==")
# FFCV is compiled, which takes minutes.
_INSTALL_S = 1200


class NotInstalled(Exception):  # noqa: N818  # it is what has happened, and no fault of this program
    """A package could not be installed; the message says why."""


def environment(folder: Path, requirements: Sequence[str], *, say: Callable[[str], None]) -> Path:
    """Return the python of an environment with these packages below the folder; make it unless it is there.

    Raises: NotInstalled.
    """
    held = [line for line in _CONSTRAINTS.read_text(encoding="utf-8").splitlines() if line.startswith(_HELD)]
    wanted = "\n".join([*requirements, *held, sys.version])
    place = folder / hashlib.sha256(wanted.encode()).hexdigest()[:12]
    python, stamp = place / "bin" / "python", place / "installed.txt"
    if stamp.exists():
        return python
    say(f"installing {', '.join(requirements)}")
    shutil.rmtree(place, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(held) + "\n", encoding="utf-8")
    uv = _uv()
    if uv is None:
        _run([sys.executable, "-m", "venv", str(place)])
        _run([str(python), "-m", "pip", "install", "-q", "-c", str(constraints), *requirements])
    else:
        _run([uv, "venv", "-q", "--python", sys.executable, str(place)])
        _run([uv, "pip", "install", "-q", "--python", str(python), "-c", str(constraints), *requirements])
    stamp.write_text(wanted, encoding="utf-8")
    return python


def install_files(folder: Path, packages: Sequence[str]) -> Path:
    """Return the folder with the files of these packages and nothing that they depend on; for their photos.

    Raises: NotInstalled.
    """
    stamp = folder / "installed.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != "\n".join(packages):
        shutil.rmtree(folder, ignore_errors=True)
        uv = _uv()
        tool = [sys.executable, "-m", "pip"] if uv is None else [uv, "pip"]
        of_python = [] if uv is None else ["--python", sys.executable]
        _run([*tool, "install", "-q", *of_python, "--no-deps", "--target", str(folder), *packages])
        stamp.write_text("\n".join(packages), encoding="utf-8")
    return folder


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def _run(command: Sequence[str]) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"not installed after {_INSTALL_S} s") from None
    if ended.returncode:
        raise NotInstalled(f"does not install: {_reason(ended.stderr)}")


def _reason(errors: str) -> str:
    """Return the line of an installer's output that says most."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    for sign in ("RuntimeError", "fatal error", "Because", "error:", "ERROR"):
        found = [line for line in lines if sign in line]
        if found:
            return found[-1][:200]
    return lines[-1][:200] if lines else "it does not say why"
