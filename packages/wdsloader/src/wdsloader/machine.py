"""What of this machine the process may use: cores and memory, as the scheduler and the control group let it.

A container sees all cores and all memory of its machine; what it may use of them is in its control group.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["default_workers", "usable_bytes", "usable_cores"]

# One core crops some 700 pictures of ImageNet a second at 224 px; 16 of them serve any one device of today.
_MOST_WORKERS = 16
# No machine has many more devices; nobody tells which ranks share one.
_RANKS_OF_A_MACHINE = 8


def usable_cores(*, group: Path | None = None) -> int:
    """Return how many cores this process may use, at least 1.

    Args: group: the folder of its control group, version 2; None: as the system says.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _groups(group):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if quota.isdecimal() and period.strip().isdecimal():
            cores = min(cores, math.ceil(int(quota) / int(period)))
    return max(1, cores)


def default_workers(*, world_size: int = 1) -> int:
    """Return how many workers a rank has by default: its share of the cores, from 1 to 16.

    The size of the pictures does not enter: a worker with nothing to do sleeps, and small pictures are used up faster.
    Args: world_size: ranks in all; up to 8 of them are taken to be on this machine.
    """
    return max(1, min(usable_cores() // min(world_size, _RANKS_OF_A_MACHINE), _MOST_WORKERS))


def usable_bytes(*, group: Path | None = None, meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Return how much memory this process can have at most, what others hold left out; None where nobody knows."""
    found = [int(line.split()[1]) << 10 for line in _text(meminfo).splitlines() if line.startswith("MemAvailable:")]
    found += [int(limit) for folder in _groups(group) if (limit := _text(folder / "memory.max").strip()).isdecimal()]
    return min(found, default=None)


def _groups(group: Path | None) -> list[Path]:
    """Return the folder of the control group, and of those around it: their limits hold as well."""
    if group is not None:
        return [group]
    top = Path("/sys/fs/cgroup")
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        if line.startswith("0::/"):
            mine = top / line.removeprefix("0::/")
            return [mine, *(parent for parent in mine.parents if parent.is_relative_to(top))]
    return []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
