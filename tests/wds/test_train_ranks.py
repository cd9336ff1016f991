"""`wds train` on several ranks, and what lets a run go on by itself."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resnettrain import list_checkpoints, read_metrics
from tests.helpers.cli import TINY, Ended, invoke, processes_of_session, run_wds, started_wds, wait_until
from tests.helpers.damaged import write_with_bad_pictures
from tests.helpers.picture_sets import PictureSet


def train(*args: object) -> Ended:
    return invoke("train", *args, *TINY)


def records(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in read_metrics(run_dir) if line["kind"] == kind]


@pytest.mark.slow
def test_a_signal_to_the_group_of_two_ranks_saves_once_and_resume_auto_goes_on(
    train_set: PictureSet, tmp_path: Path
) -> None:
    args = ("--urls", train_set.manifest, "--run-dir", "run", "--nproc", 2, "--resume", "auto")
    tiny = (*TINY, "--batch-size", 8, "--workers", 1)
    with started_wds("train", *args, *tiny, "--epochs", 500, cwd=tmp_path) as process:
        assert process.stderr is not None
        shown = iter(process.stderr.readline, "")
        # The second report: by then the loader's processes are there, in both ranks.
        assert sum(line.startswith("epoch 1/500 batch") for line in islice_until(shown, 2)) == 2
        os.killpg(process.pid, signal.SIGUSR1)
        stdout, stderr = process.communicate(timeout=100)
        assert process.returncode == 128 + signal.SIGUSR1
        assert wait_until(lambda: not processes_of_session(process.pid), timeout_s=10.0)
    assert "Traceback" not in stderr
    assert stderr.endswith("Stopped by a signal. Go on: wds train --resume run\n")
    # The second rank has said nothing.
    assert (stderr.count("Stopped by"), stdout.count("interrupted:")) == (1, 1)
    (stopped,) = [record for record in records(tmp_path / "run", "end") if record["outcome"] == "interrupted"]
    assert list_checkpoints(tmp_path / "run")[-1].name == f"samples-{stopped['samples']:014d}.pt"

    updates = stopped["samples"] // 16 + 2
    ended = run_wds("train", *args, *tiny, "--epochs", 500, "--max-updates", updates, cwd=tmp_path)
    assert (ended.code, "Traceback" in ended.stderr) == (0, False)
    assert ended.stdout.startswith(f"capped: {updates * 16} samples, ")
    assert f"resumed at {stopped['samples']} samples" in ended.stderr


def islice_until(lines: Iterator[str], reports: int) -> list[str]:
    """Return the lines up to so many reports of steps."""
    seen: list[str] = []
    while sum(line.startswith("epoch ") for line in seen) < reports:
        seen.append(next(lines))
    return seen


@pytest.mark.slow
def test_of_two_ranks_the_error_of_the_failing_one_comes_last_and_its_code_is_the_commands(tmp_path: Path) -> None:
    """TRN-11."""
    shard = write_with_bad_pictures(tmp_path / "one-bad.tar", 32, bad={7})
    args = ("--urls", shard, "--set", "model.num_classes=10", "--run-dir", "run", "--nproc", 2, *TINY)
    ended = run_wds("train", *args, "--batch-size", 4, cwd=tmp_path)
    assert ended.code == 1
    assert "Traceback" not in ended.stderr, ended.stderr
    assert re.match(rf"Error: (rank 1: )?{shard}: '000007' at byte \d+: ", ended.stderr.splitlines()[-1])


def test_resume_auto_begins_where_there_is_no_checkpoint_yet(train_set: PictureSet, tmp_path: Path) -> None:
    run = tmp_path / "run"
    args = ("--urls", train_set.manifest, "--resume", "auto", "--run-dir", run)
    # What a run leaves that was killed before its first checkpoint.
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.toml").touch()
    (run / "metrics.jsonl").write_text('{"kind": "train"}\n')
    first = train(*args, "--max-updates", 1)
    assert (first.code, first.stdout.startswith("capped: 16 samples, 1 update in ")) == (0, True)
    second = train(*args, "--max-updates", 2)
    assert "resumed at 16 samples" in second.stderr
    assert [record["samples"] for record in records(run, "train")] == [16, 32]


def test_resume_auto_needs_a_run_folder(train_set: PictureSet) -> None:
    ended = train("--urls", train_set.manifest, "--resume", "auto")
    assert (ended.code, "--run-dir" in ended.stderr) == (2, True)


def test_a_time_limit_saves_and_ends_well(train_set: PictureSet, tmp_path: Path) -> None:
    ended = train("--urls", train_set.manifest, "--run-dir", tmp_path / "run", "--max-hours", 1e-9)
    assert (ended.code, ended.stdout.startswith("capped: 0 samples, 0 updates")) == (0, True)
    assert [record["outcome"] for record in records(tmp_path / "run", "end")] == ["capped"]


def test_a_batch_of_all_ranks_is_given_in_place_of_that_of_each(train_set: PictureSet, tmp_path: Path) -> None:
    args = ("--urls", train_set.manifest, "--max-updates", 1, "--run-dir", tmp_path / "run")
    ended = invoke("train", *args, "--model", "tiny", "--image-size", 32, "--workers", 0, "--global-batch-size", 8)
    assert ended.stdout.startswith("capped: 8 samples, 1 update")
    both = train("--urls", train_set.manifest, "--global-batch-size", 8, "--run-dir", tmp_path / "other")
    assert (both.code, "Give one of them" in both.stderr) == (2, True)


def test_what_torchrun_would_not_set_is_wrong_use(
    train_set: PictureSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    ended = train("--urls", train_set.manifest, "--run-dir", tmp_path / "run")
    assert (ended.code, ended.stderr.count("\n")) == (2, 1)
    assert "WORLD_SIZE=2: torchrun sets RANK, LOCAL_RANK and WORLD_SIZE" in ended.stderr
