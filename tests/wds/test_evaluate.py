from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from shardkit import read_manifest
from tests.helpers.cli import TINY, Ended, invoke
from tests.helpers.http_server import serve
from tests.helpers.picture_sets import PictureSet
from tests.wds.conftest import FinishedRun


def evaluate(*args: object) -> Ended:
    return invoke("eval", *args)


def test_the_figures_are_those_of_the_last_validation_digit_for_digit(finished: FinishedRun) -> None:
    lines = (finished.folder / "metrics.jsonl").read_text().splitlines()
    last = [record for record in map(json.loads, lines) if record["kind"] == "val"][-1]
    document = json.loads(evaluate(finished.folder, "--json").stdout)
    assert {name: document[name] for name in ("top1", "top5", "loss", "count")} == {
        name: last[name] for name in ("top1", "top5", "loss", "count")
    }


def test_the_text_is_one_line_on_stdout(finished: FinishedRun) -> None:
    ended = evaluate(finished.folder)
    document = json.loads(evaluate(finished.folder, "--json").stdout)
    assert ended.code == 0
    assert ended.stdout == (
        f"top-1 {document['top1']:.4f}  top-5 {document['top5']:.4f}  loss {document['loss']:.4f}  37 samples\n"
    )
    assert ended.stderr == ""


def test_a_picture_shows_what_was_taken_for_what_and_the_text_stays(finished: FinishedRun, tmp_path: Path) -> None:
    picture = tmp_path / "classes.png"
    ended = evaluate(finished.folder, "--confusion", picture)
    assert (ended.code, ended.stdout) == (0, evaluate(finished.folder).stdout)
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    refused = evaluate(finished.folder, "--confusion", picture)
    assert (refused.code, refused.stdout, "--on-exists overwrite" in refused.stderr) == (2, "", True)
    assert evaluate(finished.folder, "--confusion", picture, "--on-exists", "overwrite").code == 0
    assert picture.read_bytes() == content
    unnamed = evaluate(finished.folder, "--confusion", tmp_path / "classes.txt")
    assert (unnamed.code, "ends in .png" in unnamed.stderr) == (2, True)


def test_a_checkpoint_file_is_taken_as_well_as_a_run_folder(finished: FinishedRun) -> None:
    newest = finished.folder / "checkpoints" / "samples-00000000000128.pt"
    assert evaluate(newest).stdout == evaluate(finished.folder).stdout


def test_other_shards_are_evaluated_every_sample_once(finished: FinishedRun, train_set: PictureSet) -> None:
    document = json.loads(evaluate(finished.folder, "--urls", train_set.manifest, "--json").stdout)
    assert (document["count"], document["urls"]) == (64, [str(train_set.manifest)])


def test_another_batch_size_counts_the_same_samples(finished: FinishedRun) -> None:
    whole = json.loads(evaluate(finished.folder, "--json").stdout)
    other = json.loads(evaluate(finished.folder, "--batch-size", 5, "--json").stdout)
    assert (other["count"], other["top1"]) == (whole["count"], whole["top1"])
    assert other["loss"] == pytest.approx(whole["loss"], rel=1e-5)


def test_decoding_on_a_device_that_is_none_is_wrong_use(finished: FinishedRun) -> None:
    ended = evaluate(finished.folder, "--decode", "gpu", "--device", "cpu")
    assert (ended.code, ended.stdout) == (2, "")
    assert "data.decode: 'gpu' decodes on a CUDA device, and this run is on 'cpu'" in ended.stderr


def test_names_that_a_shell_made_of_a_glob_are_shards_too(finished: FinishedRun, val_set: PictureSet) -> None:
    document = json.loads(evaluate(finished.folder, "--urls", *val_set.shards, "--json").stdout)
    assert document["count"] == 37


def test_remote_shards_without_a_manifest_are_refused_with_a_way_out_that_works(
    finished: FinishedRun, val_set: PictureSet, tmp_path: Path
) -> None:
    shard = Path(val_set.shards[0])
    (tmp_path / "far").mkdir()
    shutil.copy(shard, tmp_path / "far")
    with serve(tmp_path / "far") as server:
        url = f"{server.url}/{shard.name}"
        refused = evaluate(finished.folder, "--urls", url)
        assert (refused.code, "run `wds index URL --out DIR`" in refused.stderr) == (1, True)
        (tmp_path / "names").write_text("".join(f"{name}\n" for name in read_manifest(val_set.manifest).classes))
        options = ("--prefix", "t", "--classes", tmp_path / "names")
        assert invoke("index", url, "--out", tmp_path / "far", *options).code == 0
        ended = evaluate(finished.folder, "--urls", server.url + "/t.manifest.json", "--json")
    assert json.loads(ended.stdout)["count"] == 20


def test_a_command_is_refused_with_an_option_that_is_there(finished: FinishedRun, val_set: PictureSet) -> None:
    command = f"pipe:cat {val_set.shards[0]}"
    refused = evaluate(finished.folder, "--urls", command)
    assert (refused.code, "--allow-commands" in refused.stderr) == (2, True)
    uncounted = evaluate(finished.folder, "--urls", command, "--allow-commands")
    assert (uncounted.code, "an exact order needs counts" in uncounted.stderr) == (1, True)


def test_missing_shards_are_wrong_use(finished: FinishedRun) -> None:
    ended = evaluate(finished.folder, "--urls", "none-{0..1}.tar")
    assert (ended.code, ended.stderr) == (2, "Error: none-0.tar, none-1.tar: no such file. Check the path\n")


def test_a_checkpoint_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    ended = evaluate(tmp_path / "none.pt")
    assert (ended.code, ended.stderr) == (2, f"Error: {tmp_path}/none.pt: there is no such checkpoint or run folder\n")


def test_a_file_that_is_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(b"not a checkpoint")
    ended = evaluate(tmp_path / "a.pt")
    assert (ended.code, ended.stderr.count("\n")) == (1, 1)
    assert "not a checkpoint" in ended.stderr


def test_a_run_without_validation_shards_needs_some(train_set: PictureSet, tmp_path: Path) -> None:
    run = tmp_path / "run"
    invoke("train", "--urls", train_set.manifest, "--max-updates", 1, "--run-dir", run, *TINY)
    ended = evaluate(run)
    assert (ended.code, ended.stderr.count("\n")) == (2, 1)
    assert "Give --urls PATTERN" in ended.stderr


def test_a_checkpoint_gives_no_leave_to_run_commands(tmp_path: Path, train_set: PictureSet) -> None:
    """TRN-05, SEC-01: it may be anybody's; who resumes it allows them, or not."""
    command, canary = f"pipe:touch {tmp_path}/canary; cat {train_set.shards[0]}", tmp_path / "canary"
    args = ("--set", "schedule.epoch_samples=24", "--allow-commands", "--max-updates", 1, *TINY)
    assert invoke("train", "--urls", command, "--run-dir", tmp_path / "run", *args).code == 0
    canary.unlink()
    refused = invoke("train", "--resume", tmp_path / "run", "--max-updates", 2)
    assert (refused.code, "--allow-commands" in refused.stderr, canary.exists()) == (2, True, False)
    allowed = invoke("train", "--resume", tmp_path / "run", "--max-updates", 2, "--allow-commands")
    assert (allowed.code, canary.exists()) == (0, True)
