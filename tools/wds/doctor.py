"""The command that examines the machine: ``wds doctor``."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from wds.console import AsJson, print_json, print_line

if TYPE_CHECKING:
    from resnettrain import MachineCheck

__all__ = ["doctor"]

_COLOURS = {"fine": None, "note": typer.colors.YELLOW, "bad": typer.colors.RED}


def doctor(as_json: AsJson = False) -> None:
    """Examine this machine and what is installed: decoding, cores, memory, devices, and a loader's first batch.

    Exits with 1 where something does not work.
    """
    from resnettrain import examine_machine

    checks: list[MachineCheck] = []
    for check in examine_machine(temp_folder=os.environ.get("TMPDIR")):
        checks.append(check)
        if not as_json:
            _print(check)
    if as_json:
        print_json({"checks": [asdict(check) for check in checks]})
    if any(check.state == "bad" for check in checks):
        raise typer.Exit(1)


def _print(check: MachineCheck) -> None:
    print_line(f"{check.state:<4}  {check.topic:<9}  {check.found}", colour=_COLOURS[check.state])
    if check.advice is not None:
        print_line(f"{'':<17}{check.advice}.")
