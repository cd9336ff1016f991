from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import wdsloader


def test_importing_the_package_brings_in_no_torch() -> None:
    code = "import sys, wdsloader; sys.exit(bool({'torch', 'torchvision', 'webdataset'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_promised_name_is_there() -> None:
    assert all(getattr(wdsloader, name) is not None for name in wdsloader.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(wdsloader, "DataLoader")


def test_an_sdist_has_every_source_of_the_kernel(tmp_path: Path) -> None:
    """Without one of them a wheel made of it would lack the kernel, silently."""
    pytest.importorskip("setuptools")
    package = shutil.copytree(
        Path(__file__).parents[2] / "packages" / "wdsloader",
        tmp_path / "wdsloader",
        ignore=shutil.ignore_patterns("*.so", "*.egg-info", "build"),
    )
    command = [sys.executable, "setup.py", "-q", "sdist", "-d", str(tmp_path)]
    subprocess.run(command, cwd=package, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        found = {Path(name).name for name in archive.getnames()}
    assert {path.name for path in (package / "src" / "kernel").iterdir()} <= found
