from __future__ import annotations

import pytest

from wds.screen import Column, Screen, table

PLAIN = Screen()


def terminal(width: int) -> Screen:
    return Screen(width=width, cuts=True)


def test_off_a_terminal_nothing_is_cut_and_the_width_is_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    assert Screen.of_stdout() == PLAIN
    assert PLAIN.cut("x" * 500, width=10) == "x" * 500
    assert PLAIN.wrapped("x " * 500, indent=2) == ["x " * 500]


def test_a_name_that_is_too_wide_loses_its_middle() -> None:
    assert terminal(80).cut("birds-and-fish-000002.tar", width=16) == "birds-and-…2.tar"


@pytest.mark.parametrize("text", ["鳥" * 40, "a鳥" * 20, "\x1b[31mred" * 9])
def test_a_name_is_cut_by_the_columns_it_takes_on_screen(text: str) -> None:
    from rich.cells import cell_len

    shown = terminal(80).cut(text, width=21)
    assert cell_len(shown) <= 21
    assert "\x1b" not in shown


def test_bars_fit_the_screen_and_something_is_never_nothing() -> None:
    lines = terminal(40).bars([("a name as long as a line", 100_000), ("b", 1), ("c", 0)])
    assert max(map(len, lines)) <= 40
    assert [line.count("#") > 0 for line in lines] == [True, True, False]
    assert terminal(40).bars([]) == []


def test_a_table_leaves_out_its_last_columns_where_they_do_not_fit() -> None:
    columns = [Column("shard", ("s" * 60, "t")), Column("n", ("1", "22"), right=True), Column("more", ("m" * 40, ""))]
    wide = table(columns, terminal(120))
    assert wide == [f"{'shard':60}   n  more", f"{'s' * 60}   1  {'m' * 40}", f"{'t':60}  22"]
    narrow = table(columns, terminal(40))
    assert max(map(len, narrow)) <= 40
    assert narrow[0].split() == ["shard", "n"]


def test_lines_break_between_words() -> None:
    assert terminal(10).wrapped("one two three", indent=2) == ["one two", "  three"]
