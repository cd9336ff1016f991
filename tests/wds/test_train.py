from __future__ import annotations

import json
import os
import re
import signal
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.cli import TINY, Ended, invoke, processes_of_session, started_wds, wait_until
from tests.helpers.damaged import write_with_bad_pictures
from tests.helpers.picture_sets import PictureSet
from tests.helpers.shards import jpeg_bytes, write_samples, write_shard
from tests.wds.conftest import FinishedRun


def train(*args: object) -> Ended:
    return invoke("train", *args, *TINY)


def records(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def checkpoints(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


# ------------------------------------------------------------------------------------------------ a run and its folder


def test_a_run_ends_with_0_and_its_figures_on_stdout(finished: FinishedRun) -> None:
    assert finished.ended.code == 0
    lines = finished.ended.stdout.splitlines()
    assert re.fullmatch(
        r"completed: 128 samples, 8 updates in [\d.]+ s, [\d.]+ images/s, \d+% waiting .+ images/s without\)", lines[0]
    )
    assert re.fullmatch(r"train: loss \d\.\d{4}, top-1 [01]\.\d{4} over the last steps", lines[1])
    assert re.fullmatch(r"validation: top-1 [01]\.\d{4}, top-5 1\.0000, loss \d\.\d{4} on 37 samples", lines[2])
    assert lines[3] == f"checkpoint: {finished.folder}/checkpoints/samples-00000000000128.pt"


def test_progress_is_on_stderr_with_rate_and_share_of_waiting(finished: FinishedRun) -> None:
    pattern = r"epoch 2/2 batch 4/4  loss .* top-1 .* lr .* \d+ images/s, \d+% waiting for data, 0 s left"
    assert any(re.fullmatch(pattern, line) for line in finished.ended.stderr.splitlines())
    assert "epoch 2 validation: top-1 " in finished.ended.stderr


def test_the_run_folder_holds_settings_metrics_and_checkpoints(finished: FinishedRun) -> None:
    assert sorted(path.name for path in finished.folder.iterdir()) == ["checkpoints", "config.toml", "metrics.jsonl"]
    names = ["best.pt", "samples-00000000000064.pt", "samples-00000000000128.pt"]
    assert checkpoints(finished.folder) == names


def test_the_settings_of_the_run_folder_are_resolved(finished: FinishedRun) -> None:
    settings = tomllib.loads((finished.folder / "config.toml").read_text())
    assert settings["model"].items() >= {"name": "tiny", "num_classes": 4, "image_size": 32}.items()
    assert settings["data"]["urls"][0].endswith("tiny-train-<000000..000002>.tar")
    assert (settings["optim"]["lr"], settings["schedule"]["epochs"], settings["seed"]) == (0.05, 2, 0)


def test_metrics_are_one_json_object_a_line(finished: FinishedRun) -> None:
    assert [record["count"] for record in records(finished.folder, "val")] == [37, 37]
    assert records(finished.folder, "train")[-1]["samples"] == 128
    assert [record["outcome"] for record in records(finished.folder, "end")] == ["completed"]


def test_the_last_validation_on_stdout_is_the_one_in_the_metrics(finished: FinishedRun) -> None:
    top1 = records(finished.folder, "val")[-1]["top1"]
    assert f"validation: top-1 {top1:.4f}," in finished.ended.stdout


def test_the_settings_of_a_run_make_it_again(finished: FinishedRun, tmp_path: Path) -> None:
    ended = invoke("train", "--config", finished.folder / "config.toml", "--run-dir", tmp_path / "again")
    assert ended.code == 0
    same = ("epoch", "batch", "samples", "loss", "top1", "lr")
    first, again = records(finished.folder, "train"), records(tmp_path / "again", "train")
    assert [{name: record[name] for name in same} for record in first] == [
        {name: record[name] for name in same} for record in again
    ]


def test_a_folder_that_holds_a_run_is_refused(finished: FinishedRun, train_set: PictureSet) -> None:
    ended = train("--urls", train_set.manifest, "--run-dir", finished.folder)
    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert f"--resume {finished.folder}" in ended.stderr


# ------------------------------------------------------------------------------------------------- lengths and outputs


def test_max_steps_counts_samples(train_set: PictureSet, tmp_path: Path) -> None:
    ended = train("--urls", train_set.manifest, "--max-steps", 32, "--run-dir", tmp_path / "run", "--json")
    document = json.loads(ended.stdout)
    assert ended.code == 0
    assert (document["outcome"], document["samples"], document["updates"]) == ("capped", 32, 2)
    assert document["val"] is None
    assert document["checkpoint"] == f"{tmp_path}/run/checkpoints/samples-00000000000032.pt"
    assert ended.stderr == ""


def test_max_updates_counts_optimizer_steps(train_set: PictureSet, tmp_path: Path) -> None:
    ended = train("--urls", train_set.manifest, "--max-updates", 1, "--run-dir", tmp_path / "run")
    assert ended.stdout.startswith("capped: 16 samples, 1 update in ")


def test_quiet_leaves_only_the_result(train_set: PictureSet, tmp_path: Path) -> None:
    args = ("--urls", train_set.manifest, "--max-updates", 1, "--run-dir", tmp_path / "run")
    ended = invoke("-q", "train", *args, *TINY)
    assert ended.stderr == ""
    assert ended.stdout.startswith("capped: ")


@pytest.mark.filterwarnings("ignore::UserWarning")  # webdataset's, on what the source passes and it ignores
def test_the_seed_recipe_reports_and_stops_as_the_source_does(train_set: PictureSet, tmp_path: Path) -> None:
    urls = train_set.manifest.parent / "tiny-train-<000000..000002>.tar"
    args = ("--recipe", "seed", "--urls", urls, "--cache-dir", tmp_path / "cache", "--run-dir", tmp_path / "run")
    ended = invoke("train", *args, *TINY, "--batch-size", 8, "--max-steps", 64)
    assert ended.code == 0
    *reports, first, second, third = [line for line in ended.stdout.splitlines() if line[0] not in "- "]
    # The source reports once it has more than five losses, and stops once 64 samples are exceeded.
    assert [re.sub(r"\d\.\d{5}", "#", line) for line in reports] == [
        f"[1, {batch}] loss: # correct: #" for batch in (6, 7, 8, 9)
    ]
    assert first.startswith("capped: 72 samples, 9 updates in ")
    assert second.startswith("train: loss ")
    assert third.endswith("/samples-00000000000072.pt")


# ------------------------------------------------------------------------------------------------------ naming shards


def test_names_that_a_shell_made_of_a_glob_are_the_shards_of_the_option_before_them(
    train_set: PictureSet, val_set: PictureSet, tmp_path: Path
) -> None:
    args = ("--urls", *train_set.shards, "--val-urls", *val_set.shards, "--run-dir", tmp_path / "run")
    ended = train(*args, "--epochs", 1)
    assert ended.code == 0
    settings = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert settings["data"]["urls"] == [str(shard) for shard in train_set.shards]
    assert settings["data"]["val_urls"] == [str(shard) for shard in val_set.shards]
    assert "on 37 samples" in ended.stdout


def test_shards_may_be_named_without_an_option(train_set: PictureSet) -> None:
    ended = train(*train_set.shards, "--dry-run")
    assert tomllib.loads(ended.stdout)["data"]["urls"] == [str(shard) for shard in train_set.shards]


def test_a_list_on_standard_input_is_kept_in_the_settings(train_set: PictureSet) -> None:
    listed = "".join(f"{shard}\n" for shard in train_set.shards)
    ended = invoke("train", "--urls", "-", "--dry-run", stdin=listed)
    assert tomllib.loads(ended.stdout)["data"]["urls"] == [str(shard) for shard in train_set.shards]


def test_without_shards_nothing_is_trained() -> None:
    ended = train()
    assert (ended.code, ended.stderr) == (2, "Error: data.urls: no shards are named. Give --urls PATTERN.\n")


@pytest.mark.parametrize("option", ["--urls", "--val-urls"])
@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("none-*.tar", "no file matches"),
        ("none-{0..1}.tar", "none-0.tar, none-1.tar: no such file"),
        ("x-{000000..000003.tar", "the '{' at character 3 has no partner"),
        ("x-(000..003).tar", "'(000..003)' is no range here"),
        ("", "an empty shard pattern"),
        ("http://127.0.0.1:9/x-*.tar", "cannot be listed over http"),
        ("@none.txt", "the list cannot be read"),
    ],
)
def test_a_bad_pattern_is_one_line_and_wrong_use(train_set: PictureSet, option: str, pattern: str, words: str) -> None:
    others = () if option == "--urls" else ("--urls", train_set.manifest)
    ended = train(*others, option, pattern)
    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert words in ended.stderr


def test_a_gap_in_the_numbering_is_named_before_the_first_step(train_set: PictureSet, tmp_path: Path) -> None:
    pattern = f"{train_set.manifest.parent}/tiny-train-{{000000..000004}}.tar"
    ended = train("--urls", pattern, "--run-dir", tmp_path / "run")
    assert (ended.code, ended.stderr.count("\n")) == (1, 1)
    assert "tiny-train-000003.tar, " in ended.stderr
    assert "tiny-train-000004.tar: no such file, 2 of 5 shards" in ended.stderr
    assert not (tmp_path / "run").exists()


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--set", "optim.lrr=0.1"), "optim.lrr: unknown key. Did you mean 'optim.lr'?"),
        (("--set", "optim.lr=fast"), "optim.lr: expected a number"),
        (("--set", "optim.lr"), "expected section.key=value"),
        (("--recipe", "sed"), "Did you mean 'seed'?"),
        (("--model", "resnet500"), "resnet50"),
        (("--device", "tpu"), "tpu"),
        (("--epochs", "0"), "schedule.epochs: 0 must be at least 1"),
        (("--decode", "tpu"), "data.decode"),
        (("--decode", "gpu", "--device", "cpu"), "this run is on 'cpu'. Set data.decode=cpu (--decode cpu)"),
    ],
)
def test_a_bad_setting_is_one_line_and_wrong_use(
    train_set: PictureSet, tmp_path: Path, args: tuple[str, ...], words: str
) -> None:
    run = ("--run-dir", tmp_path / "run")
    ended = invoke("train", "--urls", train_set.manifest, *run, *TINY, *args)
    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert words in ended.stderr
    assert not (tmp_path / "run").exists()


def test_an_unknown_key_in_a_file_of_settings_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("[optim]\nmomentun = 0.5\n")
    ended = train("--config", tmp_path / "run.toml")
    assert ended.code == 2
    assert "optim.momentun: unknown key. Did you mean 'optim.momentum'?" in ended.stderr


def test_a_flag_wins_over_set_over_file_over_recipe(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("seed = 1\n[optim]\nmomentum = 0.1\n[schedule]\nepochs = 3\n")
    sets = ("--set", "optim.momentum=0.2", "--set", "seed=2", "--set", "augment.scale=[0.35,1]")
    ended = invoke("train", "--config", tmp_path / "run.toml", *sets, "--seed", 3, "--dry-run")
    settings = tomllib.loads(ended.stdout)
    assert (settings["schedule"]["epochs"], settings["optim"]["momentum"], settings["seed"]) == (3, 0.2, 3)
    assert settings["augment"]["scale"] == [0.35, 1.0]


def test_a_dry_run_prints_the_settings_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_set: PictureSet
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = train("--urls", train_set.manifest, "--dry-run")
    assert (ended.code, ended.stderr) == (0, "")
    assert tomllib.loads(ended.stdout)["model"]["name"] == "tiny"
    assert list(tmp_path.iterdir()) == []


def test_labels_beyond_the_classes_are_refused_before_the_first_step(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "a.tar", 20)  # labels 0..9
    ended = train("--urls", shard, "--set", "model.num_classes=4", "--run-dir", tmp_path / "run")
    assert ended.code == 1
    assert "labels 0..9 are outside 0..3" in ended.stderr
    assert not (tmp_path / "run").exists()


def test_validation_shards_with_other_classes_are_refused(tmp_path: Path) -> None:
    for split, names in (("train", ("cat", "dog")), ("val", ("cat", "eel"))):
        for number, name in enumerate(names):
            (tmp_path / split / name).mkdir(parents=True)
            (tmp_path / split / name / "a.jpg").write_bytes(jpeg_bytes(number))
        args = ("--from-folder", tmp_path / split, "--split", split, "--out", tmp_path / "out", "--jobs", 1)
        assert invoke("make-shards", *args).code == 0
    manifests = [tmp_path / "out" / f"imagenet-{split}.manifest.json" for split in ("train", "val")]
    ended = train("--urls", manifests[0], "--val-urls", manifests[1], "--run-dir", tmp_path / "run")
    assert (ended.code, ended.stderr.count("\n")) == (1, 1)
    assert "class 1 is 'dog' in the first and 'eel' in the second" in ended.stderr
    assert not (tmp_path / "run").exists()


def test_a_picture_that_does_not_decode_ends_the_run_by_name(tmp_path: Path) -> None:
    members = [(f"{n:06d}.{ext}", data) for n in range(20) for ext, data in (("jpg", jpeg_bytes(n)), ("cls", b"1"))]
    members[14] = ("000007.jpg", jpeg_bytes(7)[:-40])
    shard = write_shard(tmp_path / "one-bad.tar", members)
    ended = train("--urls", shard, "--epochs", 2, "--run-dir", tmp_path / "run")
    assert ended.code == 1
    assert re.match(rf"Error: {shard}: '000007' at byte \d+: .+", ended.stderr.splitlines()[-1])


def test_a_loss_that_is_no_number_ends_the_run_in_words(train_set: PictureSet, tmp_path: Path) -> None:
    args = ("--urls", train_set.manifest, "--run-dir", tmp_path / "run")
    ended = invoke("train", *args, *TINY, "--lr", 1e30, "--epochs", 9)
    assert ended.code == 1
    assert re.match(r"Error: .*loss", ended.stderr.splitlines()[-1])


# ------------------------------------------------------------------------------------------------- resume and signals


def test_resuming_from_what_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    ended = train("--resume", tmp_path / "none")
    assert (ended.code, ended.stderr) == (2, f"Error: {tmp_path}/none: there is no such checkpoint or run folder\n")


def test_resuming_from_a_folder_without_a_checkpoint_is_an_error(tmp_path: Path) -> None:
    ended = train("--resume", tmp_path)
    assert (ended.code, ended.stderr.count("\n")) == (1, 1)
    assert "there is no checkpoint in it" in ended.stderr


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "evil.pt").write_bytes(b"\x80\x04cos\nsystem\n(Vtouch CANARY\ntR.")
    ended = train("--resume", tmp_path / "evil.pt")
    assert (ended.code, ended.stderr.count("\n")) == (1, 1)
    assert "not a safe checkpoint" in ended.stderr


def test_a_capped_run_goes_on_where_it_stopped(train_set: PictureSet, tmp_path: Path) -> None:
    assert (
        train("--urls", train_set.manifest, "--max-updates", 2, "--epochs", 1, "--run-dir", tmp_path / "run").code == 0
    )
    ended = invoke("train", "--resume", tmp_path / "run", "--max-updates", 3)
    assert ended.code == 0
    assert f"resumed at 32 samples: {tmp_path}/run/checkpoints/samples-00000000000032.pt" in ended.stderr
    assert ended.stdout.startswith("capped: 48 samples, 3 updates in ")
    assert [record["samples"] for record in records(tmp_path / "run", "train")] == [16, 32, 48]


def test_a_resume_keeps_the_batch_size(finished: FinishedRun) -> None:
    ended = invoke("train", "--resume", finished.folder, "--batch-size", 8)
    assert (ended.code, ended.stderr.count("\n")) == (2, 1)
    assert "give --batch-size 16" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_leaves_no_process(
    train_set: PictureSet, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    args = ("--urls", train_set.manifest, "--epochs", 500, "--run-dir", "run")
    with started_wds("train", *args, *TINY, "--workers", 2, cwd=tmp_path) as process:
        assert process.stderr is not None
        shown = iter(process.stderr.readline, "")
        assert any(line.startswith("epoch 1/500 batch") for line in shown)
        assert len(processes_of_session(process.pid)) > 1
        begin = time.monotonic()
        # A terminal sends Ctrl-C to the whole group, a cluster its SIGTERM to the leader.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        _, stderr = process.communicate(timeout=60)
        took_s = time.monotonic() - begin
        assert process.returncode == code
        assert wait_until(lambda: not processes_of_session(process.pid))
    assert took_s < 30
    assert "Traceback" not in stderr
    assert stderr.endswith("Stopped by a signal. Go on: wds train --resume run\n")
    assert checkpoints(tmp_path / "run")
    assert [record["outcome"] for record in records(tmp_path / "run", "end")] == ["interrupted"]


# ------------------------------------------------------------------------------------------- what cannot be delivered


def test_skipped_samples_are_counted_at_the_end_of_each_epoch_and_of_the_run(tmp_path: Path) -> None:
    """TRN-06: 31 of 32 samples, and the line '1 skipped'."""
    shard = write_with_bad_pictures(tmp_path / "s.tar", 32, bad={9})
    more = ("--set", "model.num_classes=10", "--run-dir", tmp_path / "run", "--epochs", 2, "--on-error", "skip")
    ended = train("--urls", shard, *more, "--max-skipped", 1)
    assert ended.code == 0
    lines = [line for line in ended.stderr.splitlines() if "1 skipped" in line]
    assert [line.split(": ")[1] for line in lines] == ["epoch 1", "epoch 2"]
    assert "31 delivered, 1 skipped (1 undecodable picture (WDS040); in 1 shard)" in lines[0]
    assert "skipped: 2 samples could not be delivered: 2 undecodable pictures (WDS040)" in ended.stdout.splitlines()
    assert records(tmp_path / "run", "end")[0]["skipped"] == 2


@pytest.mark.parametrize("limit", ["0", "0.01"])
def test_more_than_the_limit_ends_the_run_with_1_and_one_line(tmp_path: Path, limit: str) -> None:
    shard = write_with_bad_pictures(tmp_path / "s.tar", 32, bad={9})
    more = ("--set", "model.num_classes=10", "--run-dir", tmp_path / "run", "--on-error", "skip")
    ended = train("--urls", shard, *more, "--max-skipped", limit)
    assert ended.code == 1
    assert f"max_skipped={limit}" in ended.stderr.splitlines()[-1]
    assert f"{shard}: '000009' at byte " in ended.stderr.splitlines()[-1]


def test_a_missing_shard_stops_before_the_first_step_unless_skipping_is_asked_for(tmp_path: Path) -> None:
    """URL-05."""
    for number in (0, 2):
        write_samples(tmp_path / f"s-{number}.tar", 16)
    args = ("--urls", f"{tmp_path}/s-{{0..2}}.tar", "--set", "model.num_classes=10", "--run-dir", tmp_path / "run")
    stopped = train(*args, "--epochs", 1)
    assert (stopped.code, f"{tmp_path}/s-1.tar" in stopped.stderr) == (1, True)
    skipped = train(*args, "--epochs", 1, "--on-error", "skip", "--max-skipped", 1)
    assert skipped.code == 0
    assert "32 delivered, 1 shard missing or damaged" in skipped.stderr


@pytest.mark.parametrize("value", ["ten", "-1", "1.5"])
def test_a_limit_that_is_none_is_wrong_use(tmp_path: Path, value: str) -> None:
    ended = train("--urls", write_samples(tmp_path / "s.tar", 4), "--max-skipped", value)
    assert ended.code == 2


def test_an_epoch_survives_a_validation_set_with_gaps(tmp_path: Path) -> None:
    write_samples(tmp_path / "s.tar", 16)
    val = write_with_bad_pictures(tmp_path / "val.tar", 8, bad={3}, first=0)
    more = ("--set", "model.num_classes=10", "--run-dir", tmp_path / "run", "--on-error", "skip")
    ended = train("--urls", tmp_path / "s.tar", "--val-urls", val, *more)
    assert (ended.code, "7 samples were counted, the dataset has 8" in ended.stderr) == (1, True)
    assert checkpoints(tmp_path / "run") == ["samples-00000000000016.pt"]
