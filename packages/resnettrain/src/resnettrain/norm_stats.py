"""The running statistics of batch normalization: each rank has its own, and what is evaluated or shared is their mean.

Owns reading, putting back and averaging them. Each rank's own are kept too, so that neither an evaluation nor a
checkpoint changes what the training goes on with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from resnettrain.distributed import Ranks

__all__ = ["averaged", "norm_stats", "set_norm_stats"]


def norm_stats(models: Sequence[nn.Module]) -> Tensor:
    """Return the running means and variances of all models as one float32 vector in host memory."""
    buffers = _buffers(models)
    return torch.cat([buffer.flatten() for buffer in buffers]).float().cpu() if buffers else torch.zeros(0)


def set_norm_stats(models: Sequence[nn.Module], stats: Tensor) -> None:
    """Put back what `norm_stats` gave."""
    buffers = _buffers(models)
    parts = stats.split([buffer.numel() for buffer in buffers])
    for buffer, part in zip(buffers, parts, strict=True):
        buffer.copy_(part.view_as(buffer))


@contextmanager
def averaged(models: Sequence[nn.Module], *, ranks: Ranks) -> Iterator[Tensor]:
    """Give the models the mean of all ranks' statistics until the block ends; hand out those of each: (world, n)."""
    own = norm_stats(models)
    of_all = ranks.gather(own)
    if ranks.is_alone:
        yield of_all
        return
    set_norm_stats(models, of_all.to(torch.float64).mean(dim=0).float())
    try:
        yield of_all
    finally:
        set_norm_stats(models, own)


def _buffers(models: Sequence[nn.Module]) -> list[Tensor]:
    return [
        buffer
        for model in models
        for module in model.modules()
        if isinstance(module, _NormBase)
        for buffer in (module.running_mean, module.running_var)
        if buffer is not None
    ]
