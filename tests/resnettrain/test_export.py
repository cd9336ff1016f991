from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from resnettrain import ExportError, build_model, export_model, resolve_config
from resnettrain.state import Identity
from resnettrain.weights import TrainedModel


class Moody(nn.Module):
    """Answers otherwise once it is exported."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = build_model("tiny", num_classes=4, seed=0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.inner(x)
        return logits + 1 if torch.compiler.is_compiling() else logits


def test_a_model_that_answers_otherwise_is_not_written(tmp_path: Path) -> None:
    identity = Identity(model="tiny", num_classes=4, image_size=32, global_batch=1, digest=None, classes=None)
    config = resolve_config(overrides=["model.image_size=32"])
    trained = TrainedModel(
        path=tmp_path / "a.pt", model=Moody().eval(), identity=identity, config=config, weights="model"
    )
    with pytest.raises(ExportError, match="not written: its answers differ"):
        export_model(trained, tmp_path / "a.pt2", format="torch-export")
    assert not list(tmp_path.iterdir())
