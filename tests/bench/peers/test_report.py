"""The tables say what was measured and what could not be, and README.md shows what a run wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from bench.peers.command import RESULTS
from bench.peers.contest import Result
from bench.peers.matrix import Cell, Pair, choose_pairs
from bench.peers.registry import PEERS
from bench.peers.report import document, from_document, markdown, put_into_readme, readme_part
from bench.peers.runner import Window

ROOT = Path(__file__).parents[3]
CELL = Cell(image_size=224, num_workers=2)


def _window(rate: float) -> Window:
    return Window(
        items=1000,
        wall_s=1000 / rate,
        cpu_s=1.5,
        peak_bytes=300 << 20,
        pss_bytes=200 << 20,
        shared_bytes=100 << 20,
        moved_bytes=2_000_000,
        mean_rgb=(1.0, 2.0, 3.0),
        labels=(0, 999),
    )


RESULTS_OF_TWO = (
    Result(
        pair=Pair(first="ours", second="imagefolder", cell=CELL, at_least=1.6),
        first=tuple(map(_window, (1000, 1200, 1100))),
        second=tuple(map(_window, (500, 400, 550))),
    ),
    Result(pair=Pair(first="ours-q90", second="ffcv", cell=CELL, at_least=1.5), reason="FFCV: does not install"),
)
ABOUT = {"lines": ["a machine", "a data set"], "versions": {"torch": "2"}}


def test_a_ratio_is_the_median_of_those_within_rounds() -> None:
    text = markdown(RESULTS_OF_TWO, ABOUT)
    assert "| wdsloader | ImageFolder tuned | 224 px, 2 workers | **2.00** | 2.00-3.00 | 3 | 1.60 |" in text
    assert "| wdsloader | uint8 | 224 px, 2 workers | 1,100 | 1,000-1,200 | 3 | 1.50 | 2.0 | 300 | 200 | 100 |" in text


def test_a_peer_that_does_not_install_is_a_line_with_the_reason() -> None:
    line = '* wdsloader, shards re-encoded as FFCV does over FFCV, mode "jpg", on its own file, 224 px, 2 workers: '
    assert markdown(RESULTS_OF_TWO, ABOUT).endswith(f"Not measured:\n\n{line}FFCV: does not install")


def test_the_tables_can_be_made_again_from_the_json() -> None:
    read = json.loads(json.dumps(document(RESULTS_OF_TWO, ABOUT)))
    assert markdown(*from_document(read)) == markdown(RESULTS_OF_TWO, ABOUT)


def test_a_run_puts_its_tables_between_the_marks_and_touches_nothing_else(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- bench peers: begin -->\nold\n<!-- bench peers: end -->\nafter\n")
    put_into_readme(readme, "new")
    assert readme_part(readme) == "new"
    assert readme.read_text().startswith("before\n")
    assert readme.read_text().endswith("-->\nafter\n")
    readme.write_text("no marks")
    with pytest.raises(ValueError, match="no <!-- bench peers: begin -->"):
        put_into_readme(readme, "new")


def test_the_readme_shows_the_figures_that_are_kept() -> None:
    shown = readme_part(ROOT / "README.md")
    if RESULTS.exists():
        assert shown == markdown(*from_document(json.loads(RESULTS.read_text(encoding="utf-8"))))
    else:
        assert "|" not in shown  # no table without its figures


def test_every_pair_is_of_loaders_that_exist_and_names_choose_them() -> None:
    pairs = choose_pairs(only=(), sizes=(), workers=(), everything=False)
    assert {name for pair in pairs for name in (pair.first, pair.second)} <= PEERS.keys()
    assert {pair.second for pair in choose_pairs(only=("ffcv",), sizes=(), workers=(), everything=False)} == {"ffcv"}
    (pair,) = choose_pairs(only=("energon",), sizes=(128,), workers=(1,), everything=True)
    assert pair.cell == Cell(image_size=128, num_workers=1)
