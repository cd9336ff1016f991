from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.cli import invoke, run_on_terminal, run_wds
from tests.helpers.shards import jpeg_bytes, write_samples
from wds.console import Progress, StatusLine, human_bytes, print_error, print_json, print_line, print_warning
from wds.text import can_redraw, masked, visible, wants_colour

RED, YELLOW = "\x1b[31m", "\x1b[33m"


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536 * 1024, "1.5 MiB"), (3 << 30, "3.0 GiB")],
)
def test_sizes_read_in_powers_of_1024(num_bytes: int, text: str) -> None:
    assert human_bytes(num_bytes) == text


def test_json_is_valid_whatever_bytes_a_name_holds(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"names": ["a\udcff.tar", "é.tar"], "counts": {"b\udcfe": 1}, "rows": ({"deep": "\udcfd"},)})
    text = capsys.readouterr().out
    assert text.isascii()
    assert json.loads(text) == {
        "schema_version": 1,
        "names": ["a\\xff.tar", "é.tar"],
        "counts": {"b\\xfe": 1},
        "rows": [{"deep": "\\xfd"}],
    }


def test_a_line_escapes_bytes_that_are_not_utf_8(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("a\udcff.tar")
    assert capsys.readouterr().out == "a\\xff.tar\n"


def test_control_characters_reach_neither_screen_nor_log(capsys: pytest.CaptureFixture[str], verbose: None) -> None:
    print_line("a\x1b[2J\u202e.tar\tb")
    print_error("a\x1b[2J.tar")
    print_warning("a\x1b[2J.tar")
    shown = capsys.readouterr()
    assert shown.out == "a\\x1b[2J\\u202e.tar\tb\n"
    assert shown.err == "Error: a\\x1b[2J.tar\nwarning: a\\x1b[2J.tar\n"


def test_a_line_is_coloured_only_where_colours_are_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_line("a", colour="red")
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_line("b", colour="red")
    print_line("c")
    monkeypatch.setenv("NO_COLOR", "1")
    print_line("d", colour="red")
    assert capsys.readouterr().out == f"a\n{RED}b\x1b[0m\nc\nd\n"


def test_secrets_of_urls_reach_neither_data_nor_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("http://u:SECRET@h/a.tar?sig=SECRET")
    print_json({"shard": "s3://u:SECRET@h/a.tar"})
    assert "SECRET" not in capsys.readouterr().out


def test_an_error_is_one_line_whatever_its_message_holds(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("first\n  second\tthird")
    assert capsys.readouterr().err == "Error: first second third\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://h/a.tar: no such file", "http://h/a.tar: no such file"),
        ("see https://u:p@h/a.tar?sig=abc&x=1.", "see https://***@h/a.tar?sig=***&x=***."),
        ("'https://h/a-{0..3}.tar?sig=abc' is", "'https://h/a-{0..3}.tar?sig=***' is"),
        ("https://h/a-<0..3>.tar?sig=abc, https://u:p@h", "https://h/a-<0..3>.tar?sig=***, https://***@h"),
        ("\x1b[33mwarning: \x1b[0mhttps://u:p@h: x", "\x1b[33mwarning: \x1b[0mhttps://***@h: x"),
        ("shards/a.tar", "shards/a.tar"),
    ],
)
def test_secrets_of_urls_are_masked_wherever_they_stand(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_text_that_is_valid_stays_as_it_is() -> None:
    assert visible("Übung 1.tar") == "Übung 1.tar"


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_off_a_terminal_colour_comes_only_by_force(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], wanted: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert wants_colour() is wanted


@pytest.mark.parametrize(("variables", "red"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_on_a_terminal_an_error_is_red_unless_told_otherwise(
    tmp_path: Path, variables: dict[str, str], red: bool
) -> None:
    ended = run_on_terminal("inspect", "none.tar", cwd=tmp_path, env=variables)
    assert ended.code == 2
    assert (RED in ended.stderr) is red
    assert ("\x1b" in ended.stderr) is red


def test_force_color_reaches_errors_and_log_lines_in_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "pictures" / "class").mkdir(parents=True)
    (tmp_path / "pictures" / "class" / "a.jpg").write_bytes(jpeg_bytes(0))
    (tmp_path / "pictures" / "class" / "b.jpg").write_bytes(b"")
    args = ("make-shards", "--from-folder", "pictures")
    forced = {"FORCE_COLOR": "1"}
    assert run_wds(*args, cwd=tmp_path, env=forced).stderr.startswith(f"{RED}Error: ")
    assert run_wds(*args, "--on-error", "skip", cwd=tmp_path, env=forced).stderr.startswith(f"{YELLOW}warning: ")


def test_quick_work_shows_no_progress_off_a_terminal(capsys: pytest.CaptureFixture[str], verbose: None) -> None:
    progress = Progress("shards", total=3)
    for _ in range(3):
        progress.advance()
    progress.close()
    assert capsys.readouterr() == ("", "")


def test_progress_is_redrawn_on_a_terminal_and_wiped_at_the_end(tmp_path: Path) -> None:
    write_samples(tmp_path / "a.tar", 2)
    ended = run_on_terminal("validate", "a.tar", cwd=tmp_path)
    assert "shards 1/1" in ended.stderr
    assert ended.stderr.endswith("\r\x1b[K")


@pytest.mark.parametrize("args", [("validate", "--json"), ("-q", "validate")])
def test_there_is_no_progress_under_json_or_quiet(tmp_path: Path, args: tuple[str, ...]) -> None:
    write_samples(tmp_path / "a.tar", 2)
    assert run_on_terminal(*args, "a.tar", cwd=tmp_path).stderr == ""


def test_a_report_off_a_terminal_is_a_line_of_its_own(capsys: pytest.CaptureFixture[str], verbose: None) -> None:
    status = StatusLine()
    status.show("epoch 1")
    status.redraw("passing")
    status.close()
    assert capsys.readouterr().err == "epoch 1\n"


def test_help_has_a_fixed_width_off_a_terminal() -> None:
    widths = {len(line) for line in invoke("--help").stdout.splitlines() if line.startswith("│")}
    assert len(widths) == 1


def test_a_closed_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    assert not can_redraw()
    assert not wants_colour()
