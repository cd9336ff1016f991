from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch

from resnettrain import MachineCheck, examine_machine
from wdsloader import decode


def by_topic(checks: list[MachineCheck]) -> dict[str, MachineCheck]:
    return {check.topic: check for check in checks}


def test_on_a_machine_that_runs_these_tests_nothing_is_bad() -> None:
    checks = list(examine_machine())
    assert [check for check in checks if check.state == "bad"] == []
    assert all(check.advice for check in checks if check.state == "note")
    found = by_topic(checks)
    assert found["loader"].found.startswith("a shard packed, and read by a worker process")
    assert f"torch {torch.__version__.partition('+')[0]}" in found["packages"].found


def test_what_is_broken_is_bad_and_the_other_checks_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "missing"
    monkeypatch.setattr(tempfile, "tempdir", str(missing))
    found = by_topic(list(examine_machine()))
    assert {check.topic for check in found.values() if check.state == "bad"} == {"temporary", "loader"}
    assert str(missing) in found["temporary"].found
    assert "FileNotFoundError" in found["loader"].found


def test_without_the_kernel_it_says_what_that_costs_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "HAS_KERNEL", False)
    check = by_topic(list(examine_machine()))["decoding"]
    assert check.state == "note"
    assert "at less than half the rate" in check.found
    assert "libjpeg62-turbo-dev" in str(check.advice)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a device")
def test_a_driver_whose_devices_torch_does_not_see_is_bad(tmp_path: Path) -> None:
    driver = tmp_path / "version"
    driver.touch()
    check = by_topic(list(examine_machine(driver=driver)))["devices"]
    assert check.state == "bad"
    assert "although there is an NVIDIA driver" in check.found
    assert "built for CUDA" in str(check.advice)


@pytest.mark.cuda
def test_every_device_is_named_and_has_multiplied() -> None:
    devices = [check for check in examine_machine() if check.topic == "devices"]
    assert len(devices) == torch.cuda.device_count()
    assert all(torch.cuda.get_device_name(number) in check.found for number, check in enumerate(devices))
