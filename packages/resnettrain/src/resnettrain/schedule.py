"""The learning rate as a pure function of the samples consumed. No torch, no state, no clock but the sample count."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from resnettrain.config import TrainConfig

__all__ = ["Schedule", "lr_at", "make_schedule"]

# Warm-up starts at a tenth of the peak: from 0 the first update would be none at all.
_WARMUP_START = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A curve: linear from a tenth of `peak_lr` over `warmup_samples`, then `kind` until `total_samples`.

    `total_samples` None: nobody knows how long the run is, and the curve stays at the peak.
    """

    kind: Literal["cosine", "constant"]
    peak_lr: float
    warmup_samples: int
    total_samples: int | None


def make_schedule(config: TrainConfig, *, epoch_samples: int | None) -> Schedule:
    """Return the curve of a run.

    Args: epoch_samples: what training consumes in one epoch over all ranks; None where it is unknown.
    """
    if epoch_samples is None:
        return Schedule(kind=config.schedule.kind, peak_lr=config.peak_lr, warmup_samples=0, total_samples=None)
    return Schedule(
        kind=config.schedule.kind,
        peak_lr=config.peak_lr,
        warmup_samples=round(config.schedule.warmup * epoch_samples),
        total_samples=config.schedule.epochs * epoch_samples,
    )


def lr_at(samples: int, *, schedule: Schedule) -> float:
    """Return the learning rate of the update that follows `samples` consumed samples."""
    if samples < schedule.warmup_samples:
        share = samples / schedule.warmup_samples
        return schedule.peak_lr * (_WARMUP_START + (1 - _WARMUP_START) * share)
    if schedule.kind == "constant" or schedule.total_samples is None:
        return schedule.peak_lr
    span = schedule.total_samples - schedule.warmup_samples
    share = min(1.0, (samples - schedule.warmup_samples) / span) if span > 0 else 1.0
    return schedule.peak_lr * 0.5 * (1 + math.cos(math.pi * share))
