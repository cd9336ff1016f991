"""A peer that cannot be installed is told apart, with the reason."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from bench.peers.environments import NotInstalled, environment

with_uv = pytest.mark.skipif(
    shutil.which("uv") is None and not Path(sys.executable).with_name("uv").exists(), reason="without uv it takes long"
)


@with_uv
def test_what_cannot_be_installed_says_why_and_is_tried_again_next_time(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        with pytest.raises(NotInstalled, match=r"does not install: .*no such requirement"):
            environment(tmp_path, ["no such requirement"], say=said.append)
    assert said == ["installing no such requirement"] * 2


@with_uv
def test_an_environment_is_made_once(tmp_path: Path) -> None:
    said: list[str] = []
    # Nothing to install: an index is not asked.
    pythons = {environment(tmp_path, ["uv; python_version < '3'"], say=said.append) for _ in range(2)}
    assert len(said) == 1
    assert all(python.exists() for python in pythons)
