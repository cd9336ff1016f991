"""Which samples are taken, under which labels: the files and numbers of a choice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import PackError, Selection, parse_labels
from shardkit.sources.selection import choose_share, read_keys, read_relabelling


def test_labels_are_numbers_and_ranges() -> None:
    assert parse_labels("0,3,7-9, 8") == (0, 3, 7, 8, 9)
    assert parse_labels("-1") == (-1,)


@pytest.mark.parametrize("text", ["", "a", "3-", "9-7", "1,,2", "0-99999999", "1" * 30])
def test_what_is_no_list_of_labels_is_refused(text: str) -> None:
    with pytest.raises(PackError, match="labels"):
        parse_labels(text)


def test_a_file_of_keys_may_come_from_windows(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(b"\xef\xbb\xbfa/b\r\n\r\nc d\n\xe9\n")
    assert read_keys(path) == {"a/b", "c d", "\udce9"}
    (tmp_path / "none.txt").write_bytes(b"\n")
    with pytest.raises(PackError, match="no keys"):
        read_keys(tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("text", "labels", "names"),
    [
        ("3,0\n17,1\n", {3: 0, 17: 1}, ()),
        ("old,new,name\n3,0,tench\n4,0,tench\n17,1,goldfish\n", {3: 0, 4: 0, 17: 1}, ("tench", "goldfish")),
        ("3,0,tench\n17,1\n", {3: 0, 17: 1}, ()),
        (json.dumps({"3": 0, "17": 1}), {3: 0, 17: 1}, ()),
        (json.dumps([[3, 0, "a"], [-1, 1, "b"]]), {3: 0, -1: 1}, ("a", "b")),
    ],
)
def test_a_table_of_labels_is_csv_or_json(
    tmp_path: Path, text: str, labels: dict[int, int], names: tuple[str, ...]
) -> None:
    path = tmp_path / "table"
    path.write_text(text, encoding="utf-8")
    table = read_relabelling(path)
    assert (table.labels, table.names) == (labels, names)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no labels"),
        ("1,2,3,4\n", "is not of two labels"),
        ("1,2\nx,3\n", "is not of two labels"),
        ("1,2\n1,3\n", "becomes both 2 and 3"),
        ("1,-2\n", "labels begin at 0"),
        ("1,0,a\n2,0,b\n", "is called both"),
        ("[1, 2]", "Write lines like"),
        ("{", "Write lines like"),
    ],
)
def test_a_table_that_says_two_things_or_none_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "table"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PackError, match=reason):
        read_relabelling(path)


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    share=st.floats(0.001, 1),
    seed=st.integers(0, 9),
)
def test_a_share_is_exact_in_total_and_within_one_of_it_in_each_class(
    counts: list[int], share: float, seed: int
) -> None:
    labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    rows = choose_share(labels, share=share, seed=seed)
    assert abs(len(rows) - share * len(labels)) <= 0.5 + 1e-9
    assert np.all(np.diff(rows) > 0)
    for label, count in enumerate(counts):
        assert abs((labels[rows] == label).sum() - share * count) < 1 + 1e-9


def test_a_share_depends_on_the_seed_alone() -> None:
    labels = np.zeros(100, np.int64)
    first, again, other = (choose_share(labels, share=0.1, seed=seed).tolist() for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 10


@pytest.mark.parametrize(
    "settings", [{"share": 0.0}, {"share": 1.5}, {"drop_unmapped": True}, {"min_side": 9, "max_side": 3}]
)
def test_settings_that_nobody_can_mean_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(PackError):
        Selection(**settings)  # type: ignore[arg-type]  # values of every kind


def test_a_recipe_gives_the_selection_again(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a\n", encoding="utf-8")
    selection = Selection(labels=(1, 2), keys=tmp_path / "keys", share=0.5, shuffle=True, seed=3)
    assert Selection.from_recipe(json.loads(json.dumps(selection.as_recipe()))) == selection
