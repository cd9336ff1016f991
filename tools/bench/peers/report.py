"""The figures as Markdown, and as JSON beside it, from which the Markdown can be made again."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.paired import ratios
from bench.peers.contest import Result
from bench.peers.matrix import Cell, Pair
from bench.peers.registry import PEERS
from bench.peers.runner import Window

__all__ = ["document", "from_document", "markdown", "put_into_readme", "readme_part"]

_BEGIN, _END = "<!-- bench peers: begin -->", "<!-- bench peers: end -->"
_LEGEND = """\
*images/s*: in windows with the loader at work, start-up not counted. *CPU ms*: of all its processes, an image. *moved*:
KB an image through read and write calls of all processes, files and pipes (a pipe counts at both ends); mapped files
and shared memory are not in it. *RSS*, *PSS*, *shared*: MiB of all processes at the end of a window; RSS counts shared
pages in each process, PSS once; *shared* is the part of PSS in shared memory and files. Ratios are of windows that
follow each other, medians of n. Every loader but the floor first delivered one epoch of pictures that tell how they
were cropped: count, labels, arrays, colours and the law of the crops were as asked."""


def document(results: Sequence[Result], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return all figures for JSON. ``about``: machine, versions and settings, as the lines above the tables need."""
    return {"about": dict(about), "results": [asdict(result) for result in results]}


def from_document(read: Mapping[str, Any]) -> tuple[list[Result], dict[str, Any]]:
    """Return what went into :func:`document`."""
    results = []
    for entry in read["results"]:
        pair = Pair(**(entry["pair"] | {"cell": Cell(**entry["pair"]["cell"])}))
        sides = {side: tuple(Window(**window) for window in entry[side]) for side in ("first", "second")}
        results.append(Result(pair=pair, reason=entry["reason"], **sides))
    return results, dict(read["about"])


def markdown(results: Sequence[Result], about: Mapping[str, Any]) -> str:
    """Return the lines on machine and data, the ratios, the rates, and what could not be measured and why."""
    measured = [result for result in results if not result.reason]
    blocks = ["\n".join(about["lines"])]
    if measured:
        blocks += [_ratio_table(measured), _rate_table(measured), _LEGEND]
    missing = [f"* {_titles(result.pair)}, {_place(result)}: {result.reason}" for result in results if result.reason]
    if missing:
        blocks.append("\n".join(["Not measured:", "", *missing]))
    return "\n\n".join(blocks)


def _ratio_table(results: Iterable[Result]) -> str:
    lines = ["| | over | at | median | range | n | asked |", "|---|---|---|---|---|---|---|"]
    for result in results:
        found = sorted(ratios(result.first, result.second))
        asked = "" if result.pair.at_least is None else f"{result.pair.at_least:.2f}"
        span = f"{found[0]:.2f}-{found[-1]:.2f}"
        lines.append(
            f"| {_title(result.pair.first)} | {_title(result.pair.second)} | {_place(result)} "
            f"| **{statistics.median(found):.2f}** | {span} | {len(found)} | {asked} |"
        )
    return "\n".join(lines)


def _rate_table(results: Iterable[Result]) -> str:
    lines = [
        "| loader | output | at | images/s, median | range | n | CPU ms | moved KB | RSS | PSS | shared |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (name, place), windows in _by_subject(results).items():
        rates = sorted(window.items / window.wall_s for window in windows)
        cpu_ms = statistics.median(1000 * window.cpu_s / window.items for window in windows)
        moved = statistics.median(window.moved_bytes / window.items / 1000 for window in windows)
        memory = [
            max(getattr(window, kind) for window in windows) / 2**20
            for kind in ("peak_bytes", "pss_bytes", "shared_bytes")
        ]
        output = "none" if name == "floor" else PEERS[name].dtype
        lines.append(
            f"| {_title(name)} | {output} | {place} | {statistics.median(rates):,.0f} "
            f"| {rates[0]:,.0f}-{rates[-1]:,.0f} | {len(rates)} | {cpu_ms:.2f} | {moved:.1f} "
            f"| {' | '.join(f'{value:,.0f}' for value in memory)} |"
        )
    return "\n".join(lines)


def _by_subject(results: Iterable[Result]) -> dict[tuple[str, str], list[Window]]:
    found: dict[tuple[str, str], list[Window]] = {}
    for result in results:
        pair = result.pair
        other = pair.second_workers or pair.cell.num_workers
        sides = ((pair.first, pair.cell.num_workers, result.first), (pair.second, other, result.second))
        for name, workers, windows in sides:
            found.setdefault((name, _at(pair.cell.image_size, workers)), []).extend(windows)
    return found


def _place(result: Result) -> str:
    pair = result.pair
    if pair.second_workers is None:
        return _at(pair.cell.image_size, pair.cell.num_workers)
    return f"{pair.cell.image_size} px, {pair.cell.num_workers} workers over {pair.second_workers}"


def _at(image_size: int, workers: int) -> str:
    return f"{image_size} px, {workers} worker{'s' if workers > 1 else ''}"


def _title(name: str) -> str:
    return PEERS[name].title


def _titles(pair: Pair) -> str:
    return f"{_title(pair.first)} over {_title(pair.second)}"


def readme_part(readme: Path) -> str:
    """Return what stands between the marks in the file. Raises: ValueError: the marks are not there."""
    return _parts(readme)[1].strip()


def put_into_readme(readme: Path, text: str) -> None:
    """Put the text between the marks in the file.

    Raises: ValueError: the marks are not there.
    """
    before, _, after = _parts(readme)
    readme.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}", encoding="utf-8")


def _parts(readme: Path) -> tuple[str, str, str]:
    before, begin, rest = readme.read_text(encoding="utf-8").partition(_BEGIN)
    between, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{readme}: no {_BEGIN} ... {_END}; put both on lines of their own")
    return before, between, after
