"""Look for a learning rate: it rises by a constant factor from update to update, until the loss diverges.

Owns the test and what it suggests. It trains as a run of the same settings would, in a folder that goes with it.
Source: L. N. Smith, Cyclical Learning Rates for Training Neural Networks, WACV 2017, section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from resnettrain.config import EmaConfig, LogConfig, TrainConfig
from resnettrain.distributed import Ranks
from resnettrain.errors import ConfigError
from resnettrain.feed import DeviceBatch
from resnettrain.memory import memory_in_words
from resnettrain.numerics import Numerics, global_switches
from resnettrain.opening import open_run
from resnettrain.progress import silent
from resnettrain.run import Run
from resnettrain.stop import StopRequest

__all__ = ["LrPoint", "LrRange", "find_lr", "suggested_lr"]

# A single batch says little: a point's smoothed loss remembers some ten of them.
_MEMORY = 0.9
# fastai's rule for the end: the smoothed loss is so many times the lowest one.
_DIVERGED = 4.0
# A loss that has fallen by less has not shown that it falls.
_FELL = 0.99
# The loss is lowest where the rate begins to be too high; an order of magnitude below, it falls well (fastai).
_BELOW_LOWEST = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LrPoint:
    """One update at a learning rate: its loss before the update, and the mean that remembers those before it."""

    lr: float
    loss: float
    smoothed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LrRange:
    """What came out. `suggestion`: a peak learning rate, None where the loss did not fall. `diverged`: it ended early.

    `points` are in the order of the rates; the loss that was not finite is not among them.
    """

    points: tuple[LrPoint, ...]
    suggestion: float | None
    diverged: bool


def find_lr(
    config: TrainConfig,
    *,
    num_updates: int = 100,
    lowest: float = 1e-5,
    highest: float = 10.0,
    on_point: Callable[[LrPoint], None] | None = None,
) -> LrRange:
    """Train from `lowest` to `highest` in `num_updates` updates on one rank, and save nothing.

    The batch counts: give it the one of all ranks, in micro-batches where it does not fit. `config.optim.lr`, the
    schedule, validation and the average of the weights do not matter.
    Raises: ConfigError: rates or number of updates that make no range. And what `train` raises before the first step,
    DataMismatchError, OutOfMemoryError, and wdsloader's errors.
    """
    if not 0 < lowest < highest < math.inf:
        raise ConfigError(f"lowest, highest: {lowest:g} and {highest:g} must be positive, and the second the larger.")
    if num_updates < 2:
        raise ConfigError(f"num_updates: {num_updates} must be at least 2.")
    numerics, stop = Numerics.of(config.runtime), StopRequest()
    points: list[LrPoint] = []
    with (
        TemporaryDirectory(prefix="lr-find-") as folder,
        global_switches(numerics, threads=config.runtime.threads),
        open_run(_alone(config, folder=Path(folder)), progress=silent, stop=stop, resume=None, ranks=Ranks()) as run,
        memory_in_words(run.config.data, model=run.model),
    ):
        factor = (highest / lowest) ** (1 / (num_updates - 1))
        mean = 0.0
        for number, batch in zip(range(num_updates), _batches(run), strict=False):
            lr = lowest * factor**number
            run.step.run(batch, lr=lr, state=run.state)
            run.state.samples += batch.size
            run.state.updates += 1
            loss, _ = run.window.means()
            if not math.isfinite(loss):
                return LrRange(points=tuple(points), suggestion=suggested_lr(points), diverged=True)
            mean = _MEMORY * mean + (1 - _MEMORY) * loss
            points.append(LrPoint(lr=lr, loss=loss, smoothed=mean / (1 - _MEMORY ** (number + 1))))
            if on_point is not None:
                on_point(points[-1])
            if points[-1].smoothed > _DIVERGED * min(point.smoothed for point in points):
                return LrRange(points=tuple(points), suggestion=suggested_lr(points), diverged=True)
    return LrRange(points=tuple(points), suggestion=suggested_lr(points), diverged=False)


def suggested_lr(points: Sequence[LrPoint]) -> float | None:
    """Return a tenth of the learning rate at which the smoothed loss was lowest; None where it did not fall."""
    if not points:
        return None
    best = min(points, key=lambda point: point.smoothed)
    return best.lr / _BELOW_LOWEST if best.smoothed < _FELL * points[0].smoothed else None


def _alone(config: TrainConfig, *, folder: Path) -> TrainConfig:
    """Return the settings without what is not for a test: validation, the average, traces, events."""
    return replace(
        config,
        run_dir=folder / "run",
        data=replace(config.data, val_urls=()),
        ema=EmaConfig(),
        runtime=replace(config.runtime, profile=None),
        # Of each update the loss by itself.
        log=LogConfig(window_steps=1),
    )


def _batches(run: Run) -> Iterator[DeviceBatch]:
    """Hand out batches without end, epoch after epoch. Raises: DataMismatchError: an epoch has none."""
    while True:
        updates = run.state.updates
        run.step.train()
        yield from run.feed.epoch()
        if run.state.updates == updates:
            raise run.no_batch()
        run.state.epoch += 1
