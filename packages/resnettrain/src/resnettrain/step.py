"""One update of the weights: forward, loss, backward, guard, optimizer. The host waits for nothing here.

`model` is always the bare module, the one that is saved, evaluated and averaged; what is called for training may be a
wrapper around it (compiled, distributed), so that no name of a weight ever carries a wrapper's prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from resnettrain.config import TrainConfig
from resnettrain.feed import DeviceBatch
from resnettrain.guard import FiniteGuard
from resnettrain.metrics import Window, weighted_loss
from resnettrain.numerics import Numerics

__all__ = ["TrainStep"]


@dataclass(slots=True, kw_only=True)
class TrainStep:
    """The parts that make an update. `forward` is the bare model or a wrapper of it; wrap it before the first step."""

    config: TrainConfig
    numerics: Numerics
    model: nn.Module
    optimizer: torch.optim.Optimizer
    guard: FiniteGuard
    window: Window
    forward: Callable[[Tensor], Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.forward = self.model

    def run(self, batch: DeviceBatch, *, lr: float, epoch: int, samples: int) -> None:
        """Make one update with a batch. Args: samples: consumed over all ranks before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        with self.numerics.autocast():
            logits_NK = self.forward(batch.images).float()
        smoothing = self.config.loss.label_smoothing
        loss = weighted_loss(logits_NK, batch.labels, weights_N=batch.weights, label_smoothing=smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        # The fused optimizer makes no update where this flag is up.
        found_inf = self.guard.watch(loss, epoch=epoch, samples=samples, keys=batch.keys)
        self.optimizer.found_inf = found_inf  # type: ignore[attr-defined]  # read by torch's fused step
        self.optimizer.step()
        self.window.add(loss, logits_NK=logits_NK.detach(), labels_N=batch.labels, weights_N=batch.weights)
