from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.cli import Ended, invoke, run_wds
from tests.helpers.http_server import serve
from tests.helpers.packed import write_packed
from tests.helpers.shards import jpeg_bytes, write_samples, write_shard

BLOCK_BYTES = 512


def inspect(*args: object) -> Ended:
    return invoke("inspect", "--jobs", 1, *args)


def report_of(ended: Ended) -> dict[str, Any]:
    document = json.loads(ended.stdout)
    assert document["schema_version"] == 1
    assert len(document["shards"]) == 1
    return dict(document["shards"][0])


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten samples, labels 0..9, pictures of 20 x 16."""
    return write_samples(tmp_path_factory.mktemp("good") / "good.tar", 10)


def cut(shard: Path, path: Path, *, num_bytes: int) -> Path:
    path.write_bytes(shard.read_bytes()[:num_bytes])
    return path


def test_a_good_shard_is_described_and_ends_with_0(good: Path) -> None:
    ended = inspect(good)
    assert ended.code == 0
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert ended.stdout.startswith(f"{good}\n  samples     10, 10 whole, {good.stat().st_size:,} bytes\n")
    assert ["members", "cls", "10,", "jpg", "10"] in lines
    assert ["pictures", "JPEG", "10;", "RGB", "10"] in lines
    assert ["width", "20", "to", "20,", "mean", "20", "pixels"] in lines
    assert ["height", "16", "to", "16,", "mean", "16", "pixels"] in lines
    assert ["labels", "0..9,", "10", "different"] in lines
    assert ["3", "1", "#" * 40] in lines
    assert ["first", "keys", "000000,", "000001,", "000002,", "000003,", "000004"] in lines
    assert "error" not in ended.stdout


def test_json_holds_the_same_figures(good: Path) -> None:
    report = report_of(inspect(good, "--json"))
    assert (report["samples"], report["whole"], report["num_bytes"]) == (10, 10, good.stat().st_size)
    assert report["extensions"] == {"cls": 10, "jpg": 10}
    assert report["formats"] == {"JPEG": 10}
    assert report["widths"] == {"smallest": 20, "mean": 20.0, "largest": 20, "count": 10}
    assert report["labels"] == {str(label): 1 for label in range(10)}
    assert report["findings"] == []


def test_many_labels_are_shown_in_tenths_of_their_range(tmp_path: Path) -> None:
    members = [
        (f"{n:06d}.{ext}", data) for n in range(30) for ext, data in (("jpg", jpeg_bytes(n)), ("cls", b"%d" % n))
    ]
    lines = inspect(write_shard(tmp_path / "a.tar", members)).stdout.splitlines()
    bars = [line.split()[:2] for line in lines if line.endswith("#")]
    assert bars == [[f"{first}..{first + 2}", "3"] for first in range(0, 30, 3)]


def test_a_cut_shard_ends_with_1_and_says_where(good: Path, tmp_path: Path) -> None:
    shard = cut(good, tmp_path / "cut.tar", num_bytes=7 * BLOCK_BYTES + 100)
    ended = inspect(shard)
    assert ended.code == 1
    assert f"cut at byte {7 * BLOCK_BYTES + 100}" in ended.stdout
    assert "WDS002" in ended.stdout
    finding = report_of(inspect(shard, "--json"))["findings"][0]
    assert (finding["rule"], finding["severity"]) == ("WDS002", "error")
    assert finding["remedy"]


def test_a_shard_without_its_end_marker_ends_with_1(good: Path, tmp_path: Path) -> None:
    content = good.read_bytes().rstrip(b"\0")
    shard = tmp_path / "no-end.tar"
    shard.write_bytes(content + b"\0" * (-len(content) % BLOCK_BYTES))
    ended = inspect(shard)
    assert ended.code == 1
    assert "marker" in ended.stdout


def test_a_file_that_is_no_tar_ends_with_1_and_shows_how_it_begins(tmp_path: Path) -> None:
    (tmp_path / "page.tar").write_bytes(b"<!DOCTYPE html><html><body>not found</body></html>" * 30)
    ended = inspect(tmp_path / "page.tar")
    assert ended.code == 1
    assert "not a tar" in ended.stdout
    assert "  pictures    none\n" in ended.stdout
    assert "HTML" in ended.stdout


def test_a_picture_that_does_not_decode_is_found_unless_decoding_is_off(tmp_path: Path) -> None:
    picture = jpeg_bytes(0, size=(64, 64))
    shard = write_shard(tmp_path / "a.tar", [("0.jpg", picture[:-40]), ("0.cls", b"1")])
    assert inspect(shard).code == 1
    assert inspect(shard, "--no-decode").code == 0


def test_many_findings_of_one_rule_are_cut_short_in_text_and_whole_in_json(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.tar", [(f"{n:06d}.jpg", jpeg_bytes(n)) for n in range(9)])
    text, document = inspect(shard), report_of(inspect(shard, "--json"))
    assert text.code == 1
    assert "and 4 more." in text.stdout
    assert len(document["findings"]) == 9


def test_a_label_beyond_the_classes_is_an_error(good: Path) -> None:
    assert inspect(good, "--classes", 10).code == 0
    ended = inspect(good, "--classes", 9)
    assert ended.code == 1
    assert "label 9 is outside 0..8" in ended.stdout


@pytest.mark.parametrize("compressed", [False, True])
def test_a_shard_on_standard_input_is_described_like_the_file(good: Path, tmp_path: Path, compressed: bool) -> None:
    content = good.read_bytes()
    ended = run_wds("inspect", "-", "--json", cwd=tmp_path, stdin=gzip.compress(content) if compressed else content)
    assert ended.code == 0
    found, expected = report_of(ended), report_of(inspect(good, "--json"))
    same = ("samples", "whole", "extensions", "formats", "labels", "widths", "first_keys")
    assert {name: found[name] for name in same} == {name: expected[name] for name in same}
    assert found["compressed"] is compressed
    assert [finding["severity"] for finding in found["findings"]] == ["note"] * compressed  # slow to read at random


def test_a_missing_file_is_wrong_use(tmp_path: Path) -> None:
    ended = inspect(tmp_path / "none.tar")
    assert (ended.code, ended.stderr) == (2, f"Error: {tmp_path}/none.tar: no such file. Check the path\n")


def test_a_range_of_missing_files_is_wrong_use_and_names_them(tmp_path: Path) -> None:
    ended = inspect(f"{tmp_path}/none-{{0..9}}.tar")
    assert ended.code == 2
    assert f"{tmp_path}/none-0.tar, {tmp_path}/none-1.tar" in ended.stderr
    assert ended.stderr.endswith("none-7.tar and 2 more: no such file. Check the path\n")


def test_one_missing_file_of_several_ends_with_1_and_is_named(good: Path, tmp_path: Path) -> None:
    ended = inspect(good, tmp_path / "none.tar")
    assert ended.code == 1
    row = next(line for line in ended.stdout.splitlines() if line.startswith(f"{tmp_path}/none.tar"))
    assert row.split()[1:9] == ["-", "-", "-", "No", "such", "file", "or", "directory"]
    assert "error   WDS000  once in 1 of 2 shards. The run stops at this shard.\n" in ended.stdout
    assert "  none.tar: cannot be read: No such file or directory\n" in ended.stdout
    assert "10 whole" in ended.stdout


def test_a_shard_over_http_is_described_like_the_file_and_no_secret_is_shown(good: Path) -> None:
    """NET-05, URL-08."""
    with serve(good.parent) as server:
        url = server.url.replace("//", "//me:SECRET@") + "/good.tar?sig=SECRET"
        text, document = inspect(url), inspect(url, "--json")
        refused = inspect(url.replace("good.tar", "none.tar"))
    found, expected = report_of(document), report_of(inspect(good, "--json"))
    different = {"shard": server.url.replace("//", "//***@") + "/good.tar?sig=***"}
    assert found == expected | different
    assert (text.code, refused.code) == (0, 1)
    assert "status 404: no such file" in refused.stdout
    shown = "".join(ended.stdout + ended.stderr for ended in (text, document, refused))
    assert "SECRET" not in shown


def test_a_command_is_run_only_where_allowed(good: Path, tmp_path: Path) -> None:
    """PIPE-01, SEC-01."""
    command = f"pipe:touch {tmp_path}/CANARY; cat {good}; exit 3"
    refused = inspect(command)
    assert (refused.code, "--allow-commands" in refused.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
    ended = inspect(command, "--allow-commands")
    assert (ended.code, (tmp_path / "CANARY").exists()) == (1, True)
    assert "ended with status 3" in ended.stdout


def test_warnings_leave_0_unless_strict(good: Path, tmp_path: Path) -> None:
    shard = tmp_path / "trailing.tar"
    shard.write_bytes(good.read_bytes() + b"x" * 700)
    ended = inspect(shard)
    assert ended.code == 0
    assert "warning" in ended.stdout
    assert "700" in ended.stdout
    assert inspect(shard, "--strict").code == 1


def test_strict_leaves_a_clean_shard_at_0(good: Path) -> None:
    assert inspect(good, "--strict").code == 0


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_names_that_are_not_utf_8_are_escaped(tmp_path: Path, locale: str) -> None:
    name = b"b\xe4r-\xff".decode("utf-8", "surrogateescape")
    members = [(f"{name}.jpg", jpeg_bytes(0)), (f"{name}.cls", b"0"), ("a\x1b[31m.jpg", jpeg_bytes(1))]
    shard = write_shard(tmp_path / f"{name}.tar", members)
    text = run_wds("inspect", shard, cwd=tmp_path, env={"LC_ALL": locale, "PYTHONUTF8": "0"})
    assert text.code == 1
    assert "first keys  b\\xe4r-\\xff, a\\x1b[31m" in text.stdout
    assert f"{tmp_path}/b\\xe4r-\\xff.tar" in text.stdout
    assert "\x1b" not in text.stdout
    report = report_of(run_wds("inspect", shard, "--json", cwd=tmp_path, env={"LC_ALL": locale}))
    assert report["shard"] == f"{tmp_path}/b\\xe4r-\\xff.tar"
    assert report["first_keys"] == ["b\\xe4r-\\xff", "a\\x1b[31m"]


def test_a_terminal_that_lacks_a_letter_gets_an_escape(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "鳥.tar", 1)
    ended = run_wds("inspect", shard, cwd=tmp_path, env={"PYTHONIOENCODING": "latin-1"})
    assert ended.code == 0
    assert f"{tmp_path}/\\u9ce5.tar" in ended.stdout


def test_several_shards_are_a_table_and_then_all_of_them_together(tmp_path: Path) -> None:
    paths = write_packed(tmp_path, [3, 4])
    ended = inspect(*paths)
    lines = ended.stdout.splitlines()
    assert lines[0] == f"{tmp_path}/"
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["shard", "samples", "whole"], ["t-00.tar", "3", "3"], ["t-01.tar", "4", "4"],
    ]  # fmt: skip
    assert lines[5] == "2 shards together"
    assert lines[6].startswith("  samples     7, 7 whole, ")
    assert "    0 a 2 " in ended.stdout


def test_json_has_the_shards_together_and_the_names_of_their_classes(tmp_path: Path) -> None:
    document = json.loads(inspect(*write_packed(tmp_path, [3, 4]), "--json").stdout)
    assert document["together"]["samples"] == 7
    assert document["together"]["labels"] == {"0": 2, "1": 2, "2": 2, "3": 1}
    assert document["together"]["widths"] == {"smallest": 20, "mean": 20.0, "largest": 20, "count": 7}
    assert document["classes"] == list("abcdefghij")


def test_what_is_wrong_with_shards_together_is_told_at_the_end(good: Path, tmp_path: Path) -> None:
    twin = good.with_name("twin.tar")
    twin.write_bytes(good.read_bytes())
    ended = inspect(good, twin)
    assert ended.code == 0
    assert "WDS052" in ended.stdout.rpartition("first keys")[2]
    together = json.loads(inspect(good, twin, "--json").stdout)["findings"]
    assert [f["shard"] for f in together if f["rule"] == "WDS052"] == [str(twin)]


class TestPages:
    """The contact sheet and the HTML page."""

    def test_both_are_written_and_told_on_stderr(self, tmp_path: Path) -> None:
        paths = write_packed(tmp_path, [3, 4])
        ended = inspect(*paths, "--sheet", tmp_path / "s.png", "--html", tmp_path / "p.html", "--sheet-size", 5)
        assert (ended.code, ended.stderr) == (0, f"wrote {tmp_path}/s.png\nwrote {tmp_path}/p.html\n")
        assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")
        page = (tmp_path / "p.html").read_text(encoding="utf-8")
        assert "5 samples, spread evenly over all shards" in page
        assert "0 a</span>" in page

    @pytest.mark.parametrize("option", [("--sheet", "s.png"), ("--html", "p.html")])
    def test_what_is_there_is_replaced_only_when_told(
        self, good: Path, tmp_path: Path, option: tuple[str, str]
    ) -> None:
        path = tmp_path / option[1]
        path.write_text("mine")
        ended = inspect(good, option[0], path)
        assert (ended.code, ended.stdout, path.read_text()) == (2, "", "mine")
        assert "--on-exists overwrite" in ended.stderr
        assert inspect(good, option[0], path, "--on-exists", "overwrite").code == 0
        assert path.read_bytes() != b"mine"

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (("--sheet", "s.jpg"), "ends in .png"),
            (("--html", "p.txt"), "ends in .html"),
            (("--sheet", "none/s.png"), "no such folder"),
        ],
    )
    def test_a_page_that_cannot_be_written_is_refused_before_reading(
        self, good: Path, tmp_path: Path, args: tuple[str, str], words: str
    ) -> None:
        ended = inspect(good, args[0], tmp_path / args[1])
        assert (ended.code, ended.stdout) == (2, "")
        assert words in ended.stderr

    def test_a_shard_is_never_taken_for_a_page(self, good: Path) -> None:
        before = good.read_bytes()
        assert inspect(good, "--sheet", good, "--on-exists", "overwrite").code == 2
        assert good.read_bytes() == before

    def test_standard_input_cannot_give_a_sheet_but_a_page(self, good: Path, tmp_path: Path) -> None:
        refused = invoke("inspect", "-", "--sheet", tmp_path / "s.png", stdin=good.read_bytes())
        assert (refused.code, "standard input cannot give" in refused.stderr) == (2, True)
        assert invoke("inspect", "-", "--html", tmp_path / "p.html", stdin=good.read_bytes()).code == 0
        assert "samples, spread evenly" not in (tmp_path / "p.html").read_text(encoding="utf-8")

    def test_a_bad_shard_has_its_page_and_ends_with_1(self, good: Path, tmp_path: Path) -> None:
        shard = cut(good, tmp_path / "cut.tar", num_bytes=7 * BLOCK_BYTES + 100)
        assert inspect(shard, "--html", tmp_path / "p.html").code == 1
        assert "WDS002" in (tmp_path / "p.html").read_text(encoding="utf-8")
