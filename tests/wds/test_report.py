from __future__ import annotations

import json
import re
from pathlib import Path

from tests.helpers.cli import TINY, invoke
from tests.helpers.damaged import write_with_bad_pictures
from tests.wds.conftest import FinishedRun


def test_a_run_becomes_a_page_with_its_verdict_on_stdout(finished: FinishedRun, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ended = invoke("report", finished.folder, "--html", page)
    assert ended.code == 0
    assert ended.stdout.startswith(f"{finished.folder}: completed, 128 samples, training top-1 ")
    assert "ompute-bound: " in ended.stdout or "Data-bound: " in ended.stdout
    assert 'aria-label="Images a second"' in page.read_text()


def test_a_page_that_is_there_is_kept_unless_told_otherwise(finished: FinishedRun, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    ended = invoke("report", finished.folder, "--html", page)
    assert (ended.code, page.read_text()) == (2, "mine")
    assert invoke("report", finished.folder, "--html", page, "--on-exists", "overwrite").code == 0
    assert page.read_text() != "mine"


def test_json_has_figures_verdict_and_the_settings_that_differ(finished: FinishedRun) -> None:
    ended = invoke("report", finished.folder, finished.folder, "--json")
    document = json.loads(ended.stdout)
    assert document["different_settings"] == {}
    assert [run["samples"] for run in document["runs"]] == [128, 128]
    assert {"question", "is_problem", "text", "advice"} == set(document["runs"][0]["verdict"][0])


def test_what_is_no_run_is_wrong_use(tmp_path: Path) -> None:
    ended = invoke("report", tmp_path)
    assert ended.code == 2
    assert "no run folder" in ended.stderr


def test_a_run_ends_with_a_verdict_in_words_and_what_to_change(finished: FinishedRun) -> None:
    said = finished.ended.stdout.partition("checkpoint: ")[2].splitlines()[1:]
    assert re.fullmatch(r"- (Data|Nearly compute|Compute)-bound: .*\d+% of the time.*", said[0])
    assert any(line.startswith(("- Stable: loss ", "- Diverged: ", "- The loss jumped")) for line in said)


def test_a_run_that_failed_says_so_and_why(tmp_path: Path) -> None:
    shard = write_with_bad_pictures(tmp_path / "a.tar", 16, bad=range(16))
    failed = invoke("train", "--urls", shard, "--run-dir", tmp_path / "run", *TINY)
    assert failed.code == 1
    ended = invoke("report", tmp_path / "run")
    assert ended.code == 0
    first, second = ended.stdout.splitlines()
    assert first == f"{tmp_path}/run: failed, 0 samples"
    assert second == f"- It failed: {failed.stderr.splitlines()[-1].removeprefix('Error: ')}"
    assert "It failed: " in (tmp_path / "run" / "report.html").read_text()
