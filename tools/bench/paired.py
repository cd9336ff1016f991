"""Time subjects side by side: interleaved rounds, each run in a process of its own, then medians, spread and ratios.

Machines drift by a fifth within minutes; only runs that stand next to each other can be compared. So every round runs
every subject once, and a ratio is the median of the ratios within rounds. Start-up is not timed.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = [
    "Claim",
    "Run",
    "Subject",
    "as_table",
    "emptied",
    "machine",
    "measure_here",
    "ratios",
    "run_rounds",
    "to_json",
]

# Does the work on the data in the folder (its second argument is scratch space) and returns how many items it did.
Subject = Callable[[Path, Path], int]
_TOOLS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one subject: items done, seconds, CPU seconds with those of child processes, peak memory in bytes."""

    items: int
    wall_s: float
    cpu_s: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A ratio that is claimed: ``subject`` does at least ``at_least`` times as many items a second as ``peer``."""

    subject: str
    peer: str
    at_least: float


def measure_here(subject: Subject, *, data: Path, scratch: Path) -> Run:
    """Run the subject in this process."""
    before = _cpu_s()
    started = time.perf_counter()
    items = subject(data, scratch)
    wall_s = time.perf_counter() - started
    return Run(items, wall_s, _cpu_s() - before, _peak_bytes())


def emptied(scratch: Path) -> Path:
    """Make the folder anew and return it."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    return scratch


def run_rounds(
    group: str, names: Sequence[str], *, data: Path, scratch: Path, rounds: int, say: Callable[[str], None]
) -> dict[str, list[Run]]:
    """Run every subject once a round, after one round that only warms the page cache.

    Raises: RuntimeError: subjects that did not do the same number of items.
    """
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(rounds + 1):
        for name in names:
            run = _run_alone(group, name, data=data, scratch=scratch)
            if number:
                if runs[names[0]] and run.items != runs[names[0]][0].items:
                    raise RuntimeError(f"{name} did {run.items} items, {names[0]} {runs[names[0]][0].items}")
                runs[name].append(run)
                say(f"round {number}/{rounds}  {name:<34} {run.items / run.wall_s:10,.0f} items/s")
    return runs


def _run_alone(group: str, name: str, *, data: Path, scratch: Path) -> Run:
    command = [sys.executable, "-m", "bench", group, "--one", name, "--data", str(data), "--scratch", str(scratch)]
    ended = subprocess.run(command, cwd=_TOOLS, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"{name} failed:\n{ended.stderr}")
    return Run(**json.loads(ended.stdout.splitlines()[-1]))


def as_table(runs: Mapping[str, Sequence[Run]], claims: Sequence[Claim]) -> str:
    """Return the figures as Markdown tables: one row a subject, one row a claim."""
    lines = ["| subject | items/s, median | range | n | CPU s / 1,000 items | peak MiB |", "|---|---|---|---|---|---|"]
    for name, done in runs.items():
        rates = sorted(run.items / run.wall_s for run in done)
        cpu = statistics.median(1000 * run.cpu_s / run.items for run in done)
        peak = max(run.peak_bytes for run in done) / 2**20
        span = f"{rates[0]:,.0f}-{rates[-1]:,.0f}"
        lines.append(f"| {name} | {statistics.median(rates):,.0f} | {span} | {len(rates)} | {cpu:.2f} | {peak:.0f} |")
    lines += ["", "| ratio | asked | median | range | n |", "|---|---|---|---|---|"]
    for claim in claims:
        found = sorted(ratios(runs[claim.subject], runs[claim.peer]))
        median, span = statistics.median(found), f"{found[0]:.2f}-{found[-1]:.2f}"
        lines.append(
            f"| {claim.subject} over {claim.peer} | {claim.at_least:.2f} | {median:.2f} | {span} | {len(found)} |"
        )
    return "\n".join(lines)


def ratios(subject: Sequence[Run], peer: Sequence[Run]) -> list[float]:
    """Return items a second of the subject over the peer's, round by round."""
    pairs = list(zip(subject, peer, strict=True))
    return [(ours.items / ours.wall_s) / (theirs.items / theirs.wall_s) for ours, theirs in pairs]


def machine(versions: Mapping[str, str]) -> str:
    """Return one line on where and with what the figures were made."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    software = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{cores} cores, {platform.machine()}, {platform.system()}, Python {platform.python_version()}, {software}"


def to_json(run: Run) -> str:
    """Return a run as one line of JSON."""
    return json.dumps(asdict(run))


def _peak_bytes() -> int:
    """Return the most memory that this process has held since it began."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux a process starts with the peak of the one that started it.
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _cpu_s() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
