"""`python -m bench peers`: build the data sets, install the peers, run the pairs, write the table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.paired import machine, ratios
from bench.peers.contest import Contest, Result
from bench.peers.datasets import NUM_RULERS, build_set, real_pictures, rulers
from bench.peers.environments import install_files
from bench.peers.matrix import Pair, choose_pairs
from bench.peers.photos import PACKAGES
from bench.peers.registry import PEERS
from bench.peers.report import document, markdown, put_into_readme
from bench.peers.task import BATCH_SIZE, Facts
from wdsloader import decode_path

__all__ = ["RESULTS", "main"]

_ROOT = Path(__file__).resolve().parents[3]
# The figures behind the table in README.md.
RESULTS = Path(__file__).with_name("results.json")
# Above this load the machine had other work to do, and the table says so.
_QUIET = 0.5


def main(arguments: Sequence[str]) -> None:
    """Run what the arguments ask for; exit 1 if a loader of ours could not be measured."""
    chosen = _parser().parse_args(arguments)
    pairs = choose_pairs(only=chosen.only, sizes=chosen.size, workers=chosen.workers, everything=chosen.all)
    if not pairs:
        sys.exit(f"bench peers: no pair has a name that begins with {' or '.join(chosen.only)}")
    load = os.getloadavg()[0]
    contest = Contest(
        data=chosen.data,
        environments=chosen.environments or chosen.data / "environments",
        rounds=chosen.rounds,
        samples=chosen.samples,
        say=_say,
    )
    _build(chosen.data, num_pictures=chosen.pictures)
    results = _run_all(contest, pairs)
    about: dict[str, Any] = {"lines": _about(contest, load=load), "versions": contest.versions}
    about["work"] = {name: asdict(work) for name, work in contest.works.items()}
    text = markdown(results, about)
    out = chosen.json or chosen.data / "peers.json"
    out.write_text(json.dumps(document(results, about)) + "\n", encoding="utf-8")
    print(text)
    _say(f"all figures: {out}")
    if chosen.write_readme:
        shutil.copyfile(out, RESULTS)
        put_into_readme(_ROOT / "README.md", text)
    if any(_ours_failed(result) for result in results):
        sys.exit(1)


def _ours_failed(result: Result) -> bool:
    """Tell whether it was a loader of ours that failed."""
    return result.reason.startswith(PEERS["ours"].title)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench peers", description="Time loaders side by side, on real photos.")
    add = parser.add_argument
    add("--only", action="append", default=[], help="pairs with a loader whose name begins so; again for more")
    add(
        "--size",
        action="append",
        type=int,
        default=[],
        help="pixels a side; again for more (default: 224, some at 160)",
    )
    add("--workers", action="append", type=int, default=[], help="workers; again for more (default: 2, some with 1)")
    add("--all", action="store_true", help="all pairs at every size and number of workers")
    add("--rounds", type=int, default=7, help="windows of each loader of a pair")
    add("--samples", type=int, default=1344, help="images in a window")
    add("--pictures", type=_at_least_a_batch, default=2000, help="pictures in the data set")
    add("--data", type=Path, default=_ROOT / "runs" / "bench", help="folder for data sets, environments and figures")
    add("--environments", type=Path, help="folder for the peers' environments (default: below that of the data)")
    add("--json", type=Path, help="where all figures go (default: peers.json in the folder of the data)")
    add("--write-readme", action="store_true", help="put the tables into README.md, the figures beside this command")
    return parser


def _at_least_a_batch(text: str) -> int:
    if int(text) < BATCH_SIZE:
        raise argparse.ArgumentTypeError(f"{text}: at least {BATCH_SIZE}, a batch")
    return int(text)


def _build(data: Path, *, num_pictures: int) -> None:
    data.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    photos = install_files(data / "photos", PACKAGES)
    build_set(data / "real", partial(real_pictures, photos, num_pictures=num_pictures), num_pictures=num_pictures)
    build_set(data / "rulers", rulers, num_pictures=NUM_RULERS)
    _say(f"data sets in {data}, {time.monotonic() - started:.0f} s")


def _run_all(contest: Contest, pairs: Sequence[Pair]) -> list[Result]:
    expected = [contest.expected_s(pair) for pair in pairs]
    _say(f"{len(pairs)} pairs of {contest.rounds} rounds, about {sum(expected) / 60:.0f} minutes")
    results: list[Result] = []
    started = time.monotonic()
    for number, pair in enumerate(pairs):
        result = contest.run(pair)
        results.append(result)
        spent = time.monotonic() - started
        left = sum(expected[number + 1 :]) * spent / sum(expected[: number + 1])
        _say(f"{number + 1}/{len(pairs)}  {_line(result)}  {left / 60:.0f} min left")
    return results


def _line(result: Result) -> str:
    pair = result.pair
    where = f"{pair.cell.image_size} px, {pair.cell.num_workers} workers: {pair.first} over {pair.second}"
    if result.reason:
        return f"{where}: {result.reason}"
    rates = [median(window.items / window.wall_s for window in side) for side in (result.first, result.second)]
    ratio = median(ratios(result.first, result.second))
    return f"{where}: {ratio:.2f} ({rates[0]:,.0f} and {rates[1]:,.0f} images/s)"


def _about(contest: Contest, *, load: float) -> list[str]:
    """Return the lines on machine, versions, data and settings."""
    facts = Facts.of(contest.data / "real")
    loaded = "" if load <= _QUIET else f" **Other work ran on the machine** (load {load:.1f} at the start)."
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=_ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    machine_line = f"{_processor()}, {machine(dict(sorted(contest.versions.items())))}, {decode_path()}."
    data_line = (
        f"{facts.num_samples} baseline JPEGs cut from real photos, mean {facts.mean_bytes / 1000:.0f} KB, "
        f"{facts.width:.0f}x{facts.height:.0f}; in the page cache. Batches of 64, {contest.rounds} rounds of "
        f"{contest.samples} images. Commit {commit or 'unknown'}, {datetime.now(UTC):%Y-%m-%d}.{loaded}"
    )
    return [machine_line, data_line]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
