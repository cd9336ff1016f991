from __future__ import annotations

import json
import re
import resource
import time
from pathlib import Path

import pytest

from resnettrain import RunFolderError, read_metrics
from resnettrain.runlog import SCHEMA_VERSION, RunLog, new_run_dir
from resnettrain.state import TrainState

FIGURES = {
    "epoch": 0, "samples": 16, "updates": 1, "lr": 0.1, "loss": 1.5, "top1": 0.5, "images_per_s": 9.0,
    "wait_share": 0.0,
}  # fmt: skip


def test_one_object_a_line_with_schema_kind_and_time(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run", config_toml="seed = 1\n") as log:
        log.write("train", {"epoch": 0, "samples": 16, "loss": 1.5})
    (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record.pop("time") == pytest.approx(time.time(), abs=60)
    assert record == {"schema_version": SCHEMA_VERSION, "kind": "train", "epoch": 0, "samples": 16, "loss": 1.5}
    assert (tmp_path / "run" / "config.toml").read_text() == "seed = 1\n"


def test_a_figure_that_is_not_finite_becomes_null(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run", config_toml="") as log:
        log.write("train", {**FIGURES, "loss": float("nan"), "top1": float("inf")})
    (record,) = read_metrics(tmp_path / "run")
    assert (record["loss"], record["top1"]) == (None, None)


def test_a_new_run_does_not_go_into_a_folder_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="is not empty"):
        RunLog(tmp_path, config_toml="")


def test_a_folder_of_a_run_that_saved_nothing_is_not_offered_for_resuming(tmp_path: Path) -> None:
    RunLog(tmp_path / "run", config_toml="").close()
    with pytest.raises(RunFolderError, match="it holds no checkpoint") as refused:
        RunLog(tmp_path / "run", config_toml="")
    assert "--resume" not in str(refused.value)


def test_a_folder_of_a_run_that_saved_names_the_way_on(tmp_path: Path) -> None:
    RunLog(tmp_path / "run", config_toml="").close()
    (tmp_path / "run" / "checkpoints" / "samples-00000000000001.pt").write_bytes(b"")
    with pytest.raises(RunFolderError, match=f"go on with --resume {tmp_path / 'run'}"):
        RunLog(tmp_path / "run", config_toml="")


def test_a_run_that_goes_on_drops_the_lines_its_checkpoint_had_not_seen(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run", config_toml="") as log:
        for samples in (1, 2, 3):
            log.write("train", {**FIGURES, "samples": samples})
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"cut by a ki')
    with RunLog(tmp_path / "run", config_toml="", keep_lines=2) as log:
        assert log.num_lines == 2
        log.write("train", {**FIGURES, "samples": 9})
    assert [record["samples"] for record in read_metrics(tmp_path / "run")] == [1, 2, 9]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "line 2: Expecting"),
        (b"[1]", "line 2: no JSON object"),
        (b"[" * 100_000, "line 2: maximum recursion"),
        (b"\xff", "line 2: 'utf-8' codec"),
        (b'{"schema_version": 9}', "schema_version 9, this program reads 1"),
        (b'{"schema_version": 1, "kind": ["train"]}', r"kind \['train'\], none of train, val, end"),
        (b'{"schema_version": 1, "kind": "val", "epoch": 0, "samples": 1, "top1": null, "top5": true, "loss": 1e999}',
         "no number is top1, top5, loss"),
    ],
)  # fmt: skip
def test_a_line_that_no_run_writes_is_left_out_and_told(
    line: bytes, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RunLog(tmp_path / "run", config_toml="") as log:
        log.write("train", FIGURES)
    with (tmp_path / "run" / "metrics.jsonl").open("ab") as file:
        file.write(line + b"\n")
    assert len(read_metrics(tmp_path / "run")) == 1
    assert "metrics.jsonl: 1 line is left out" in caplog.text
    assert re.search(said, caplog.text)


def test_two_runs_do_not_write_to_one_folder_at_once(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run", config_toml="") as log:
        for keep_lines in (None, 0):
            with pytest.raises(RunFolderError, match="another run is writing to it"):
                RunLog(tmp_path / "run", config_toml="other", keep_lines=keep_lines)
        log.write("train", FIGURES)
    RunLog(tmp_path / "run", config_toml="", keep_lines=1).close()
    assert len(read_metrics(tmp_path / "run")) == 1


def test_a_record_that_cannot_be_written_names_the_file(tmp_path: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RunLog(tmp_path / "run", config_toml="") as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, most))
        try:
            with pytest.raises(OSError, match=r"File too large: '.*/metrics\.jsonl'"):
                log.write("train", FIGURES)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def test_a_failure_on_a_full_disk_is_raised_as_it_was(tmp_path: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RunLog(tmp_path / "run", config_toml="") as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, most))
        try:
            with (
                pytest.raises(ValueError, match="the real one"),
                log.telling_failure(TrainState(), cause=lambda error: error),
            ):
                raise ValueError("the real one")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def test_a_run_folder_is_named_by_time_and_recipe_and_counts_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    now = time.struct_time((2030, 1, 2, 3, 4, 5, 2, 2, 0))
    assert new_run_dir("seed", now=now) == Path("runs/20300102-030405-seed")
    Path("runs/20300102-030405-seed").mkdir(parents=True)
    assert new_run_dir("seed", now=now) == Path("runs/20300102-030405-seed-2")
