from __future__ import annotations

import gzip
import itertools
import re
from pathlib import Path

import pytest

from shardkit import ShardSummary
from tests.helpers.cli import shown_on_terminal
from tests.helpers.shards import check, jpeg_bytes, sample_members, write_samples, write_shard
from wds.screen import Screen
from wds.shard_view import finding_lines, print_reports, summary_lines


def summary_with(tmp_path: Path, counts: dict[int, int]) -> ShardSummary:
    """A shard with so many samples of each label."""
    labels = list(itertools.chain.from_iterable([label] * count for label, count in counts.items()))
    members = [(f"{n:06d}.cls", b"%d" % label) for n, label in enumerate(labels)]
    return check(write_shard(tmp_path / "x.tar", members)).summary


def test_few_classes_have_a_bar_each_those_without_a_sample_too(tmp_path: Path) -> None:
    lines = summary_lines(summary_with(tmp_path, {0: 2, 2: 1}), classes=("ant", "bee", "cat"), screen=Screen())
    assert "  labels      0..2, 2 different, 1 of the manifest's without a sample" in lines
    assert [line.split() for line in lines if line.startswith("    ")] == [
        ["0", "ant", "2", "#" * 40], ["1", "bee", "0"], ["2", "cat", "1", "#" * 20],
    ]  # fmt: skip


def test_of_many_classes_the_fullest_and_the_emptiest_are_named(tmp_path: Path) -> None:
    counts = dict.fromkeys(range(20), 2) | {3: 5, 4: 1}
    lines = summary_lines(summary_with(tmp_path, counts), classes=[f"c{n}" for n in range(20)], screen=Screen())
    assert "  most        3 c3 5, 0 c0 2, 1 c1 2, 2 c2 2, 5 c5 2" in lines
    assert "  fewest      4 c4 1, 19 c19 2, 18 c18 2, 17 c17 2, 16 c16 2" in lines


def test_findings_are_grouped_by_rule_errors_first_with_their_effect(tmp_path: Path) -> None:
    members = [(f"{n:06d}.jpg", jpeg_bytes(n)) for n in range(7)] + [("README", b"x")]
    report = check(write_shard(tmp_path / "x.tar", members))
    groups = finding_lines(report.findings, screen=Screen(), num_shards=1)
    severities = [severity for severity, _ in groups]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    lines = next(lines for severity, lines in groups if severity == "error")
    assert lines[0].startswith("error   WDS022  7 times. ")
    assert len(lines) == 7
    assert lines[-1].startswith("  and 2 more. What to do: ")


def test_names_from_a_shard_reach_the_screen_as_visible_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TAR-12: no escape sequence, no turned direction, no broken byte."""
    name = "a\x1b[2J\x9b\u202e\udcff\x07"
    members = [(f"{name}.jpg", b""), (f"{name}.cls", b"x"), (f"b.{name}", b"")]
    reports = [check(write_shard(tmp_path / f"{name}{n}.tar", members)) for n in range(2)]
    for shown in (reports, reports[:1]):
        print_reports(shown, (), classes=(name,), screen=Screen())
    text = capsys.readouterr().out
    assert r"a\x1b[2J\x9b\u202e\xff\x07" in text
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str], width: int) -> None:
    key = "a long key " * 8
    members = [(f"{key}.jpg", b""), (f"{key}.cls", b"7"), *sample_members(3)]
    reports = [check(write_shard(tmp_path / f"{'long' * 30}-{n}.tar", members)) for n in range(2)]
    print_reports(reports, (), classes=[f"{'name ' * 40}{n}" for n in range(30)], screen=Screen(width=width, cuts=True))
    folder, *lines = capsys.readouterr().out.splitlines()
    assert folder == f"{tmp_path}/"
    assert max(map(len, lines)) <= width


def test_shards_of_several_folders_keep_their_whole_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports = [check(write_samples(tmp_path / name / "x.tar", 1)) for name in ("a", "b")]
    print_reports(reports, (), classes=(), screen=Screen())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["shard", f"{tmp_path}/a/x.tar", f"{tmp_path}/b/x.tar"]


@pytest.mark.parametrize(
    ("columns", "env", "coloured", "blocks"),
    [
        (80, {}, True, True),
        (200, {}, True, True),
        (80, {"NO_COLOR": "1"}, False, True),
        (80, {"TERM": "dumb"}, False, False),
    ],
    ids=["80", "200", "NO_COLOR", "dumb"],
)
def test_a_terminal_gets_what_it_can_show(
    tmp_path: Path, columns: int, env: dict[str, str], coloured: bool, blocks: bool
) -> None:
    names = [write_samples(tmp_path / f"{'long-' * 20}{n}.tar", 3).name for n in range(2)]
    lines = shown_on_terminal("inspect", *names, "none.tar", cwd=tmp_path, columns=columns, env=env)
    text = "\n".join(lines)
    assert ("\x1b[31m" in text) is ("\x1b" in text) is coloured
    assert ("█" in text) is blocks
    assert ("#" in text) is not blocks
    plain = [re.sub(r"\x1b\[\d+m", "", line) for line in lines]
    assert max(map(len, plain)) <= columns
    assert ("bytes a picture" in text) is (columns == 200)
    assert "none.tar" in text
    assert "No such file or directory" in text


def test_one_gzip_shard_does_not_make_all_of_them_gzip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, packed = write_samples(tmp_path / "a-0.tar", 2), write_samples(tmp_path / "a-1.tar", 2, first=2)
    packed.write_bytes(gzip.compress(packed.read_bytes()))
    for shards, is_gzip in (([plain, packed], False), ([packed, packed], True)):
        print_reports([check(shard) for shard in shards], (), classes=(), screen=Screen())
        assert ("bytes, gzip\n" in capsys.readouterr().out) is is_gzip
