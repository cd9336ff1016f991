from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.cli import TINY, invoke, run_wds
from tests.helpers.picture_sets import PictureSet
from tests.wds.conftest import FinishedRun


def end_of(run_dir: Path) -> dict[str, Any]:
    """Return the last record of a run."""
    record: dict[str, Any] = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])
    return record


def test_a_run_at_its_cap_is_not_resumed_until_that_is_lifted(train_set: PictureSet, tmp_path: Path) -> None:
    run = tmp_path / "run"
    begin = ("--urls", train_set.manifest, "--run-dir", run, "--max-steps", 32)
    assert invoke("train", *begin, "--epochs", 1, *TINY).code == 0
    assert end_of(run)["cap"] == "schedule.max_samples"
    for args in ((), ("--epochs", 2)):
        ended = invoke("train", "--resume", run, *args)
        assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
        assert (
            "is at its cap already: schedule.max_samples (--max-steps) is 32. To go on give --max-steps" in ended.stderr
        )
        assert "--set schedule.max_samples=none" in ended.stderr
    again = invoke("train", *begin, "--resume", "auto", *TINY)
    assert again.code == 0
    assert "is at its cap already" in again.stderr
    lifted = invoke("train", "--resume", run, "--set", "schedule.max_samples=none")
    assert lifted.stdout.startswith("completed: 64 samples, 4 updates")


def test_a_run_that_has_all_its_epochs_is_not_resumed(finished: FinishedRun) -> None:
    ended = invoke("train", "--resume", finished.folder)
    assert (ended.code, ended.stderr.count("\n")) == (2, 1)
    assert "has all of its epochs already: schedule.epochs (--epochs) is 2. To go on give more." in ended.stderr


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="what is said where there is no GPU")
def test_a_profile_without_a_gpu_says_nothing_of_one(tmp_path: Path) -> None:
    """In a process of its own: what the profiler says, it says past Python."""
    size = ("--model", "tiny", "--image-size", 32, "--batch-size", 4, "--max-updates", 5, "--device", "cpu")
    ended = run_wds("-q", "train", "--synthetic", *size, "--profile", 1, "--run-dir", "run", cwd=tmp_path)
    assert (ended.code, ended.stderr) == (0, "")
    assert (tmp_path / "run" / "trace.json").stat().st_size > 0
