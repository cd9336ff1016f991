"""The losses of short runs, stored: what the trainer learns does not change unseen.

The rate is low: at a higher one the run doubles a rounding error with every step, and two processors soon disagree.

A new file, `python -m tests.resnettrain.test_golden_losses`, is a breaking change: say so in the changelog.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from resnettrain import read_metrics, train
from tests.helpers.picture_sets import PictureSet, make_picture_set, tiny_config

GOLDEN = Path(__file__).parents[1] / "golden" / "trainer_losses.json"
COUNTS = (53, 31, 17)


RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "everything": {
        "augment__policy": "trivial",
        "augment__mixup": 0.2,
        "augment__cutmix": 1.0,
        "augment__erasing": 0.5,
        "optim__clip_norm": 1.0,
        "runtime__micro_batches": 2,
        "resolution__start_size": 24,
        "resolution__ramp_end": 2,
        "resolution__multiple": 8,
    },
    "lamb": {"optim__kind": "lamb", "loss__kind": "bce", "optim__weight_decay": 0.02},
}


def golden_losses(train_set: PictureSet, run_dir: Path, *, name: str) -> list[float]:
    torch.set_num_threads(1)
    common: dict[str, Any] = {
        "schedule__epochs": 3,
        "optim__lr": 0.001,
        "log__window_steps": 1,
        "checkpoint__every_epochs": 3,
    }
    train(tiny_config(train_set, run_dir, **common, **RUNS[name]))
    return [line["loss"] for line in read_metrics(run_dir) if line["kind"] == "train"]


def torch_version() -> str:
    return ".".join(torch.__version__.split(".")[:2])


@pytest.mark.parametrize("name", ["plain", *(pytest.param(name, marks=pytest.mark.slow) for name in list(RUNS)[1:])])
def test_a_run_has_the_losses_it_always_had(name: str, train_set: PictureSet, tmp_path: Path) -> None:
    known = json.loads(GOLDEN.read_text())
    if torch_version() not in known:
        pytest.skip(f"no golden losses for torch {torch_version()}; there are {', '.join(sorted(known))}")
    assert golden_losses(train_set, tmp_path / "run", name=name) == pytest.approx(
        known[torch_version()][name], rel=0.01, abs=0.001
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        pictures = make_picture_set(Path(folder) / "train", counts=COUNTS)
        made = {name: golden_losses(pictures, Path(folder) / name, name=name) for name in RUNS}
    stored = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    stored[torch_version()] = {name: [round(loss, 5) for loss in losses] for name, losses in made.items()}
    GOLDEN.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
