"""`wds train` on several ranks, and what lets a run go on by itself."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resnettrain import list_checkpoints, read_metrics
from tests.helpers.cli import TINY, Ended, invoke, processes_of_session, run_wds, started_wds, wait_until
from tests.helpers.damaged import write_with_bad_pictures
from tests.helpers.picture_sets import PictureSet
from wds.ranks import claim_stop


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
        assert wait_until(lambda: not processes_of_session(process.pid))
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


@pytest.fixture
def as_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ended]]:
    """Run `wds train` as one of three ranks on a host, as torchrun would start it; it is not ended by it."""

    def run(rank: int, *args: object, attempt: int = 0) -> Ended:
        own = tmp_path / f"attempt_{attempt}" / f"{rank}" / "error.json"
        own.parent.mkdir(parents=True)
        said = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 3, "TORCHELASTIC_ERROR_FILE": own}
        for name, value in {**said, "TORCHELASTIC_RESTART_COUNT": attempt}.items():
            monkeypatch.setenv(name, str(value))
        return invoke("train", *args)

    before = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--urls", "none-{0..1}.tar"), "none-0.tar, none-1.tar: no such file"),
        (("--urls", "none.tar", "--set", "data.batchsize=3"), "data.batchsize: unknown key"),
        (("--urls", "none.tar", "--bogus"), "No such option: --bogus"),
    ],
)
def test_what_all_ranks_of_a_host_find_wrong_is_said_by_the_first_that_finds_it(
    as_rank: Callable[..., Ended], tmp_path: Path, args: tuple[str, ...], words: str
) -> None:
    ended = [as_rank(rank, *args) for rank in (1, 0, 2)]
    assert [(end.code, end.stderr.count("\n")) for end in ended] == [(2, 1), (2, 0), (2, 0)]
    assert ended[0].stderr.startswith(f"Error: {words}")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    # What torchrun shows as the cause of its end.
    causes = [json.loads((tmp_path / "attempt_0" / f"{rank}" / "error.json").read_text()) for rank in range(3)]
    assert all(cause["message"]["message"].startswith(words) for cause in causes)
    assert as_rank(0, *args, attempt=1).stderr == ended[0].stderr


def test_a_rank_with_an_error_of_its_own_says_it_and_none_says_then_that_it_was_stopped(
    as_rank: Callable[..., Ended],
) -> None:
    assert as_rank(0, "--urls", "a.tar").stderr == "Error: a.tar: no such file. Check the path\n"
    assert as_rank(1, "--urls", "b.tar").stderr == "Error: b.tar: no such file. Check the path\n"
    assert not claim_stop()


def test_of_the_ranks_of_a_host_one_says_that_they_were_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0").mkdir()
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "0" / "error.json"))
    assert [claim_stop() for _ in range(3)] == [True, False, False]
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE")
    assert claim_stop()
