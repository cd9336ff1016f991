"""The losses of one short run, stored: what the trainer learns does not change unseen.

A new file, `python -m tests.resnettrain.test_golden_losses`, is a breaking change: say so in the changelog.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import torch

from resnettrain import read_metrics, train
from tests.helpers.picture_sets import PictureSet, make_picture_set, tiny_config

GOLDEN = Path(__file__).parents[1] / "golden" / "trainer_losses.json"
COUNTS = (53, 31, 17)


def golden_losses(train_set: PictureSet, run_dir: Path) -> list[float]:
    torch.set_num_threads(1)
    train(tiny_config(train_set, run_dir, schedule__epochs=5, log__window_steps=1, checkpoint__every_epochs=5))
    return [line["loss"] for line in read_metrics(run_dir) if line["kind"] == "train"]


def torch_version() -> str:
    return ".".join(torch.__version__.split(".")[:2])


def test_a_run_of_thirty_steps_has_the_losses_it_always_had(train_set: PictureSet, tmp_path: Path) -> None:
    known = json.loads(GOLDEN.read_text())
    if torch_version() not in known:
        pytest.skip(f"no golden losses for torch {torch_version()}; there are {', '.join(sorted(known))}")
    assert golden_losses(train_set, tmp_path / "run") == pytest.approx(known[torch_version()], rel=0.02, abs=0.02)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = golden_losses(make_picture_set(Path(folder) / "train", counts=COUNTS), Path(folder) / "run")
    stored = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    stored[torch_version()] = [round(loss, 5) for loss in made]
    GOLDEN.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
