from __future__ import annotations

import subprocess
import sys

import wdsloader


def test_importing_the_package_brings_in_no_torch() -> None:
    code = "import sys, wdsloader; sys.exit(bool({'torch', 'torchvision', 'webdataset'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_promised_name_is_there() -> None:
    assert all(getattr(wdsloader, name) is not None for name in wdsloader.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(wdsloader, "DataLoader")
