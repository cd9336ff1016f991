"""What two checkpoints must have in common, and how to compare it bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from resnettrain import read_checkpoint, read_metrics

__all__ = ["assert_equal", "learnt", "losses"]


def learnt(checkpoint: Path | None) -> dict[str, Any]:
    """Return what must be equal bit for bit: weights, buffers, momentum, average, RNG, position."""
    assert checkpoint is not None
    content = read_checkpoint(checkpoint)
    return {key: content[key] for key in ("model", "optimizer", "ema", "scaler", "ranks", "progress", "loader")}


def assert_equal(one: Any, other: Any) -> None:
    """Compare nested values, tensors bit for bit."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_equal(first, second)
    else:
        assert one == other


def losses(run_dir: Path) -> list[tuple[str, int, float]]:
    return [(line["kind"], line["samples"], line["loss"]) for line in read_metrics(run_dir)]
