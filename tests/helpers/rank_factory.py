"""Imports all that ranks need once and forks them when told: `python -m tests.helpers.rank_factory`.

A line on its standard input is the folder of a job: `job.pickle` in it is (function, places, arguments). There then
appear `pids.json`, `<rank>.pickle` with what a rank returned or raised, and at the end `codes.json`.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

import torch

import resnettrain.trainer  # noqa: F401  # the point of this process

__all__: list[str] = []


def _main() -> None:
    torch.set_num_threads(1)
    # Nobody waits for the supervisors.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _supervise(Path(line.rstrip("\n")))
            os._exit(0)


def _supervise(folder: Path) -> None:
    os.setsid()
    act, places, args = pickle.loads((folder / "job.pickle").read_bytes())
    pids = []
    for place in places:
        pid = os.fork()
        if pid == 0:
            _work(folder, act, place, args)
        pids.append(pid)
    _put(folder / "pids.json", json.dumps(pids).encode())
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    _put(folder / "codes.json", json.dumps(codes).encode())


def _work(folder: Path, act: Any, place: Any, args: Any) -> None:
    output = os.open(folder / f"{place.rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    logging.basicConfig(level=logging.WARNING)
    try:
        result = act(place, *args)
    except Exception as error:  # noqa: BLE001  # the boundary of the process: the test looks at it
        result = error
    _put(folder / f"{place.rank}.pickle", pickle.dumps(result))
    os._exit(0)


def _put(path: Path, data: bytes) -> None:
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(data)
    unfinished.replace(path)


if __name__ == "__main__":
    _main()
