"""Real pictures, the whole way: scikit-learn's 1,797 handwritten digits, packed, learnt, evaluated."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageOps

from tests.helpers.cli import Ended, invoke, run_wds, started_wds, wait_until

# A minute or two on two free cores; the rest is for machines that do other work as well.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

# Evaluation looks at the middle 28 of 32 pixels, so that is where the digit goes; it has 8 x 8 pixels to begin with.
SIDE_PIXELS, DIGIT_PIXELS = 32, 28
TINY: tuple[object, ...] = ("--model", "tiny", "--batch-size", 32, "--lr", 0.1, "--device", "cpu", "--workers", 2)
TINY += ("--image-size", SIDE_PIXELS, "--set", "augment.scale=[0.6,1]", "--set", "augment.flip=false")
TINY += ("--set", "augment.ratio=[0.85,1.18]", "--set", "runtime.threads=1")


@dataclass(frozen=True, slots=True)
class Digits:
    """The packed digits: manifests of the two splits."""

    train: Path
    val: Path


def write_pictures(folder: Path) -> int:
    """Write the digits as JPEGs, a folder for each digit; return their number."""
    from sklearn.datasets import load_digits  # takes over a second: not where tests are but collected

    data = load_digits()
    for digit in range(10):
        (folder / str(digit)).mkdir(parents=True)
    for number, (pixels, digit) in enumerate(zip(data.images, data.target, strict=True)):
        picture = Image.fromarray((pixels * 255 / 16).round().astype("uint8"))
        picture = picture.resize((DIGIT_PIXELS, DIGIT_PIXELS), Image.Resampling.BICUBIC).convert("RGB")
        picture = ImageOps.expand(picture, (SIDE_PIXELS - DIGIT_PIXELS) // 2)
        picture.save(folder / str(digit) / f"{number:04d}.jpg", quality=95)
    return len(data.target)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Digits:
    folder = tmp_path_factory.mktemp("digits")
    assert write_pictures(folder / "pictures") == 1797
    args = ("--from-folder", "pictures", "--val-share", 0.2, "--shard-size", 250, "--out", "shards")
    for split in ("train", "val"):
        ended = run_wds("make-shards", *args, "--split", split, cwd=folder)
        assert ended.code == 0, ended.stderr
    manifests = [folder / "shards" / f"imagenet-{split}.manifest.json" for split in ("train", "val")]
    assert sum(json.loads(manifest.read_text())["num_samples"] for manifest in manifests) == 1797
    return Digits(train=manifests[0], val=manifests[1])


def train(*args: object, cwd: Path) -> Ended:
    ended = run_wds("train", *args, cwd=cwd, timeout_s=800)
    assert ended.code == 0, ended.stderr
    return ended


def newest(run_dir: Path) -> dict[str, Any]:
    path = max((run_dir / "checkpoints").glob("*.pt"))
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return content


def tensors(content: object, name: str = "") -> dict[str, torch.Tensor]:
    """Return every tensor in a nested value by its path."""
    if isinstance(content, torch.Tensor):
        return {name: content}
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return {path: tensor for key, value in items for path, tensor in tensors(value, f"{name}/{key}").items()}


def steps(run_dir: Path) -> list[tuple[int, float]]:
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [(record["samples"], record["loss"]) for record in records if record["kind"] == "train"]


def test_held_out_digits_are_told_apart_and_eval_gives_the_same_figure(digits: Digits, tmp_path: Path) -> None:
    urls = ("--urls", digits.train, "--val-urls", digits.val, "--run-dir", "run")
    args = (*urls, *TINY, "--epochs", 10, "--json")
    document = json.loads(train(*args, "--set", "runtime.micro_batches=2", cwd=tmp_path).stdout)
    print(f"digits: top-1 {document['val']['top1']:.4f} in {document['seconds']:.0f} s")
    assert document["val"]["count"] == json.loads(digits.val.read_text())["num_samples"]
    assert document["val"]["top1"] >= 0.985
    evaluated = json.loads(invoke("eval", tmp_path / "run", "--json").stdout)
    assert {name: evaluated[name] for name in document["val"]} == document["val"]
    # Two ranks with half of the batch each learn what the two halves taught above; of the statistics of normalization
    # they keep the mean, where one process has those of one half after the other: nearly the same answers.
    args = (*args, "--batch-size", 16, "--nproc", 2, "--workers", 1, "--run-dir", "pair")
    pair = json.loads(train(*args, cwd=tmp_path).stdout)
    print(f"digits on two ranks: top-1 {pair['val']['top1']:.4f} in {pair['seconds']:.0f} s")
    assert abs(pair["val"]["top1"] - document["val"]["top1"]) * pair["val"]["count"] <= 2.5


def test_a_run_killed_in_the_middle_and_resumed_ends_as_one_left_alone(digits: Digits, tmp_path: Path) -> None:
    common = ("--urls", digits.train, *TINY, "--epochs", 2, "--set", "log.every_s=0.0")
    assert invoke("train", *common, "--run-dir", tmp_path / "alone").code == 0

    # 44 batches an epoch: the checkpoints after 20 and 40 updates lie inside the first one.
    with started_wds(
        "train", *common, "--run-dir", "killed", "--set", "checkpoint.every_updates=20", cwd=tmp_path
    ) as process:
        saved = tmp_path / "killed" / "checkpoints" / f"samples-{20 * 32:014d}.pt"
        assert wait_until(saved.exists, timeout_s=120)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert newest(tmp_path / "killed")["progress"]["batch"] in {20, 40}

    resumed = invoke("train", "--resume", tmp_path / "killed")
    assert (resumed.code, "resumed at " in resumed.stderr) == (0, True)
    alone, killed = newest(tmp_path / "alone"), newest(tmp_path / "killed")
    for part in ("model", "optimizer"):
        first, second = tensors(alone[part]), tensors(killed[part])
        assert first.keys() == second.keys()
        assert len(first) > 20
        assert [name for name in first if not torch.equal(first[name], second[name])] == []
    assert alone["progress"] == killed["progress"]
    assert steps(tmp_path / "alone") == steps(tmp_path / "killed")
