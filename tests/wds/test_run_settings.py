from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.helpers.cli import invoke
from tests.wds.conftest import FinishedRun

SAYS = "Trying the one before"


@pytest.fixture
def run(finished: FinishedRun, tmp_path: Path) -> Path:
    """A finished run, and a newer checkpoint of it that was cut."""
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    (folder / "checkpoints" / "samples-00000000000999.pt").write_bytes(b"PK")
    return folder


@pytest.mark.parametrize(
    ("words", "code", "ends"),
    [
        (("--resume", "RUN"), 2, "samples-00000000000128.pt: the run has all of its epochs already"),
        (("--resume", "auto", "--run-dir", "RUN"), 0, "samples-00000000000128.pt: the run has all of its epochs"),
        (("--resume", "RUN", "--dry-run"), 0, "samples-00000000000999.pt: damaged"),
    ],
    ids=["a run", "auto", "a dry run"],
)
def test_a_damaged_newest_checkpoint_is_told_once_when_a_run_goes_on(
    run: Path, words: tuple[str, ...], code: int, ends: str
) -> None:
    ended = invoke("train", *(str(run) if word == "RUN" else word for word in words))
    assert (ended.code, ended.stderr.count(SAYS), ends in ended.stderr) == (code, 1, True)


def test_a_damaged_newest_checkpoint_is_told_once_by_an_evaluation(finished: FinishedRun, run: Path) -> None:
    ended = invoke("eval", run)
    assert (ended.code, ended.stderr.count(SAYS)) == (0, 1)
    assert ended.stdout == invoke("eval", finished.folder).stdout


def test_where_every_checkpoint_is_damaged_each_is_told_once(run: Path) -> None:
    for path in (run / "checkpoints").iterdir():
        path.write_bytes(b"PK")
    ended = invoke("train", "--resume", run)
    assert (ended.code, ended.stderr.count(SAYS)) == (1, 3)
    assert "none of its 3 checkpoints can be read" in ended.stderr
