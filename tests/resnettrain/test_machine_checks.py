from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
import torch

from resnettrain import MachineCheck, examine_machine
from tests.helpers.crops import with_broken_decoders
from wdsloader import decode


def by_topic(checks: list[MachineCheck]) -> dict[str, MachineCheck]:
    return {check.topic: check for check in checks}


def first(topic: str, checks: Iterator[MachineCheck]) -> MachineCheck:
    """Return the first check on a topic; those behind it are not made."""
    return next(check for check in checks if check.topic == topic)


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
    assert "libjpeg-dev" in str(check.advice)


def test_a_decoder_that_does_not_load_is_bad_and_says_what_is_used(tmp_path: Path) -> None:
    code = """
from resnettrain import examine_machine
print(*[next(checks) for checks in [examine_machine()] for _ in range(5)][2:], sep="\\n")
"""
    kernel, simplejpeg, path = with_broken_decoders(tmp_path, code)
    assert "state='bad'" in kernel
    assert "the kernel does not load" in kernel
    assert "state='bad'" in simplejpeg
    assert "simplejpeg does not load: ValueError: numpy.dtype size changed" in simplejpeg
    assert "found='pillow " in path
    assert "state='note'" in path


def test_a_temporary_folder_that_is_asked_for_and_cannot_be_used_is_noted(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    check = first("temporary", examine_machine(temp_folder=str(missing)))
    assert check.state == "note"
    assert f"{tempfile.gettempdir()}: " in check.found
    assert f"not {missing}" in check.found
    assert check.advice


def test_the_temporary_folder_that_is_asked_for_and_used_is_fine() -> None:
    folder = f"{tempfile.gettempdir()}/"
    assert first("temporary", examine_machine(temp_folder=folder)).state == "fine"


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a device")
def test_a_driver_whose_devices_torch_does_not_see_is_bad(tmp_path: Path) -> None:
    driver = tmp_path / "version"
    driver.touch()
    check = by_topic(list(examine_machine(driver=driver)))["devices"]
    assert check.state == "bad"
    assert "although there is an NVIDIA driver" in check.found
    assert "built for CUDA" in str(check.advice)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a device")
def test_a_device_that_fails_is_named_and_those_behind_it_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    checks = takewhile(lambda check: check.topic != "loader", examine_machine())
    found = [(check.state, check.found.partition(" ")[0]) for check in checks if check.topic == "devices"]
    assert found == [("bad", "cuda:0:"), ("bad", "cuda:1:")]


@pytest.mark.cuda
def test_every_device_is_named_and_has_multiplied() -> None:
    devices = [check for check in examine_machine() if check.topic == "devices"]
    assert len(devices) == torch.cuda.device_count()
    assert all(torch.cuda.get_device_name(number) in check.found for number, check in enumerate(devices))
