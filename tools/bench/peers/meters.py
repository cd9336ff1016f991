"""What the processes of one session use: CPU time, bytes through system calls, memory. From /proc, so Linux only.

A subject runs in a session of its own (``setsid``), which its workers and helpers belong to, whoever started them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Memory", "cpu_s", "memory", "syscall_bytes"]

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat behind the name, counted from 0: see proc(5).
_SESSION, _USER_TICKS, _SYSTEM_TICKS = 3, 11, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of all processes of the session. ``rss_bytes``: counts a shared page in every process that has it;
    ``pss_bytes``: counts it once; ``shared_bytes``: the shared memory and files in the latter.
    """

    rss_bytes: int
    pss_bytes: int
    shared_bytes: int


def cpu_s() -> float:
    """Return the CPU seconds, user and system, of the session's living processes."""
    return sum(int(stat[_USER_TICKS]) + int(stat[_SYSTEM_TICKS]) for _, stat in _session()) / _TICKS_PER_S


def syscall_bytes() -> int:
    """Return how many bytes the session's processes have moved by read and write calls: files, pipes, sockets.

    What goes through a pipe counts twice, once at each end; what is mapped or in shared memory does not count.
    """
    total = 0
    for folder, _ in _session():
        fields = _fields(folder / "io")
        total += fields.get("rchar", 0) + fields.get("wchar", 0)
    return total


def memory() -> Memory:
    """Return the memory of the session's processes now."""
    found = [_fields(folder / "smaps_rollup") for folder, _ in _session()]

    def total(*names: str) -> int:
        return 1024 * sum(fields.get(name, 0) for fields in found for name in names)

    return Memory(rss_bytes=total("Rss"), pss_bytes=total("Pss"), shared_bytes=total("Pss_Shmem", "Pss_File"))


def _session() -> list[tuple[Path, list[str]]]:
    """Return the folder in /proc and the fields behind the name of each process of this session."""
    own = str(os.getsid(0))
    found = []
    for folder in _PROC.glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if fields[_SESSION] == own:
            found.append((folder, fields))
    return found


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers of a file of lines `Name: number`."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    numbers = ((name, value.split()) for name, value in pairs)
    return {name: int(words[0]) for name, words in numbers if words and words[0].isdecimal()}
