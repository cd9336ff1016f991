"""Learning rate and picture size as pure functions of the samples consumed. No torch, no state, no other clock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from resnettrain.config import ScheduleConfig, TrainConfig

__all__ = ["Schedule", "lr_at", "make_schedule", "reached_cap", "resolution_at", "resolutions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A curve: linear from `warmup_start` x `peak_lr` over `warmup_samples`, then `kind` until `total_samples`.

    "step" multiplies by `step_factor` at every multiple of `step_samples` from the start of the run.
    `total_samples` None: nobody knows how long the run is, and the curve stays at the peak.
    """

    kind: Literal["cosine", "linear", "step", "constant"]
    peak_lr: float
    warmup_samples: int
    total_samples: int | None
    warmup_start: float = 0.1
    step_samples: int = 1
    step_factor: float = 1.0


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
        warmup_start=config.schedule.warmup_start,
        step_samples=config.schedule.step_epochs * epoch_samples,
        step_factor=config.schedule.step_factor,
    )


def lr_at(samples: int, *, schedule: Schedule) -> float:
    """Return the learning rate of the update that follows `samples` consumed samples."""
    if samples < schedule.warmup_samples:
        share = samples / schedule.warmup_samples
        return schedule.peak_lr * (schedule.warmup_start + (1 - schedule.warmup_start) * share)
    if schedule.kind == "constant" or schedule.total_samples is None:
        return schedule.peak_lr
    if schedule.kind == "step":
        return schedule.peak_lr * schedule.step_factor ** (samples // schedule.step_samples)
    span = schedule.total_samples - schedule.warmup_samples
    share = min(1.0, (samples - schedule.warmup_samples) / span) if span > 0 else 1.0
    if schedule.kind == "linear":
        return schedule.peak_lr * (1 - share)
    return schedule.peak_lr * 0.5 * (1 + math.cos(math.pi * share))


def resolution_at(epoch: int, *, config: TrainConfig) -> int:
    """Return the side of the training pictures of an epoch, counted from 0, in pixels.

    Source: the rule of ffcv-imagenet: linear between the ends of the ramp, rounded to a multiple, whole at its ends.
    """
    ramp, last = config.resolution, config.model.image_size
    if ramp.start_size is None or epoch >= ramp.ramp_end:
        return last
    if epoch <= ramp.ramp_start:
        return ramp.start_size
    share = (epoch - ramp.ramp_start) / (ramp.ramp_end - ramp.ramp_start)
    between = ramp.start_size + (last - ramp.start_size) * share
    size = round(between / ramp.multiple) * ramp.multiple
    return min(max(size, ramp.start_size), last)


def resolutions(config: TrainConfig) -> list[int]:
    """Return every side that training pictures have in the run, ascending."""
    return sorted({resolution_at(epoch, config=config) for epoch in range(config.schedule.epochs)})


def reached_cap(schedule: ScheduleConfig, *, samples: int, updates: int) -> str | None:
    """Return the name of the cap that ends a run after so many samples and updates, None where none does."""
    if schedule.max_updates is not None and updates >= schedule.max_updates:
        return "max_updates"
    if schedule.max_samples is None:
        return None
    # The source goes on until its limit is exceeded: with a limit of 64, two batches of 64.
    at_it = schedule.stop_rule == "reach" and samples == schedule.max_samples
    return "max_samples" if at_it or samples > schedule.max_samples else None
