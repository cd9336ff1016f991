"""An exponential moving average of a model: a module of its own, evaluated and saved like the model itself."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from resnettrain.config import EmaConfig

__all__ = ["Ema", "make_ema"]


class Ema:
    """The average and how it follows. `module` has the names of the bare model, whatever wraps that for training."""

    def __init__(self, model: nn.Module, *, decay: float, every: int, warmup: bool) -> None:
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self._decay, self._every, self._warmup = decay, every, warmup
        self._averages: list[Tensor] = list(self.module.parameters())
        self._weights: list[Tensor] = list(model.parameters())
        # BatchNorm's own averages belong to weights of now; averaged once more they would lag behind the weights.
        self._copies, self._originals = list(self.module.buffers()), list(model.buffers())

    def decay_at(self, updates: int) -> float:
        """Return how much of the average is kept when it follows after `updates` updates."""
        decay = min(self._decay, (1 + updates) / (10 + updates)) if self._warmup else self._decay
        return float(decay**self._every)

    @torch.no_grad()
    def follow(self, updates: int) -> None:
        """Bring the average up to date where it is due. Args: updates: made so far, this one included."""
        if updates % self._every:
            return
        torch._foreach_lerp_(self._averages, self._weights, 1 - self.decay_at(updates))
        if self._copies:
            torch._foreach_copy_(self._copies, self._originals)


def make_ema(model: nn.Module, config: EmaConfig) -> Ema | None:
    """Return the average that the settings ask for, which begins with the weights of now."""
    if config.decay is None:
        return None
    return Ema(model, decay=config.decay, every=config.every, warmup=config.warmup)
