"""The loss of every row of a batch, for whole labels and for those of mixed pictures. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from resnettrain.config import LossConfig

__all__ = ["Targets", "row_losses"]


@dataclass(frozen=True, slots=True)
class Targets:
    """What a batch is to be called: `labels` int64 (N,), and for mixed pictures `others` (N,).

    `share` is how much of every picture `labels` is right for; the rest is of `others`.
    """

    labels: Tensor
    others: Tensor | None = None
    share: float = 1.0


def row_losses(logits_NK: Tensor, targets: Targets, *, config: LossConfig) -> Tensor:
    """Return the loss of every row: float (N,)."""
    if config.kind == "bce":
        return _binary(logits_NK, targets, config=config)
    smoothing = config.label_smoothing
    own_N = functional.cross_entropy(logits_NK, targets.labels, reduction="none", label_smoothing=smoothing)
    if targets.others is None:
        return own_N
    # Cross-entropy is linear in its target, so that two with whole labels are one with shares.
    other_N = functional.cross_entropy(logits_NK, targets.others, reduction="none", label_smoothing=smoothing)
    return targets.share * own_N + (1 - targets.share) * other_N


def _binary(logits_NK: Tensor, targets: Targets, *, config: LossConfig) -> Tensor:
    shares_NK = _shares(targets, num_classes=logits_NK.shape[1], smoothing=config.label_smoothing)
    if config.bce_threshold is not None:
        shares_NK = (shares_NK > config.bce_threshold).to(shares_NK.dtype)
    return functional.binary_cross_entropy_with_logits(logits_NK, shares_NK, reduction="none").mean(dim=1)


def _shares(targets: Targets, *, num_classes: int, smoothing: float) -> Tensor:
    """Return what share of every class a row is: float32 (N, K)."""
    size = (len(targets.labels), num_classes)
    shares_NK = torch.full(size, smoothing / num_classes, device=targets.labels.device)
    for labels_N, share in ((targets.labels, targets.share), (targets.others, 1 - targets.share)):
        if labels_N is not None:
            weights_N1 = torch.full((size[0], 1), share * (1 - smoothing), device=labels_N.device)
            shares_NK.scatter_add_(1, labels_N.unsqueeze(1), weights_N1)
    return shares_NK
