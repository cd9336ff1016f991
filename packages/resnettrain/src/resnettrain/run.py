"""One open run: its parts, what this rank asks all of them for, and its checkpoints.

How it is opened is `opening.py`; the loop over it is `trainer.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from resnettrain.checkpoint import CheckpointWriter, SaveClock, checkpoint_path
from resnettrain.config import TrainConfig
from resnettrain.distributed import Ranks
from resnettrain.errors import DataMismatchError, NonFiniteLossError
from resnettrain.evaluate import EvalResult, Evaluator
from resnettrain.feed import DeviceBatch, Feed
from resnettrain.guard import FiniteGuard
from resnettrain.metrics import Meter, Window
from resnettrain.norm_stats import averaged
from resnettrain.numerics import Numerics
from resnettrain.progress import CheckpointSaved, Progress
from resnettrain.runlog import RunLog
from resnettrain.schedule import Schedule
from resnettrain.state import (
    Identity,
    TrainState,
    pack_content,
    pack_ranks,
)
from resnettrain.step import TrainStep
from resnettrain.stop import LOOK, SAVE, TIME_IS_UP, Agreement, StopRequest
from resnettrain.utilization import Utilization

__all__ = ["Run"]


@dataclass(slots=True, kw_only=True)
class Run:
    """The parts of an open run. `config` is resolved: learning rate, classes and run folder are worked out."""

    config: TrainConfig
    numerics: Numerics
    identity: Identity
    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    feed: Feed
    evaluator: Evaluator | None
    state: TrainState
    window: Window
    meter: Meter
    guard: FiniteGuard
    step: TrainStep
    log: RunLog
    progress: Progress
    stop: StopRequest
    ranks: Ranks
    agreement: Agreement
    writer: CheckpointWriter
    save_clock: SaveClock
    utilization: Utilization
    last_checkpoint: Path | None
    val: EvalResult | None = None
    val_s: float = 0.0
    save_s: float = 0.0
    # Agreed by all ranks, and done at the next boundary where a checkpoint can be made.
    save_is_due: bool = False

    def rest_of_epoch(self) -> Iterator[DeviceBatch]:
        """Hand out what is left of the current epoch, and note the waiting for it.

        Nothing is left where a checkpoint was made after its last batch.
        """
        return iter(()) if self.epoch_is_fed else self.feed.epoch(waiting=self.meter.waiting)

    @property
    def epoch_is_fed(self) -> bool:
        """Return whether every batch of the current epoch has been trained on."""
        return self.feed.epoch_batches is not None and self.state.batch >= self.feed.epoch_batches

    def no_batch(self) -> DataMismatchError:
        """Return the error of an epoch that had not one batch."""
        data = self.config.data
        return DataMismatchError(
            f"{data.urls[0]}: an epoch gave not one whole batch of {data.batch_size}. Lower data.batch_size or "
            "data.num_workers (without a manifest each worker fills batches from shards of its own)."
        )

    def asked(self) -> int | None:
        """Return what this rank asks all of them for: a signal's number, TIME_IS_UP, LOOK, SAVE, or None."""
        if self.stop.signal is not None:
            return self.stop.signal
        hours = self.config.schedule.max_hours
        if hours is not None and self.stop.elapsed_s >= hours * 3600:
            return TIME_IS_UP
        return SAVE if self.save_clock.is_due() else None

    def poll(self) -> int | None:
        """Return the signal or TIME_IS_UP that all ranks heed at this boundary of steps, or None.

        That a checkpoint is due is noted in `save_is_due`.
        Raises: NonFiniteLossError, as `require_finite`. CheckpointError: one could not be written meanwhile.
        """
        self.tell_written()
        answer = self.agreement.poll(LOOK if self.guard.found else self.asked())
        if answer == LOOK:
            self.require_finite()
        if answer == SAVE:
            self.save_is_due = True
            return None
        return answer

    def require_finite(self) -> None:
        """Look, on all ranks at once, whether a loss was not finite. Waits for the device.

        Raises: NonFiniteLossError: naming the batch, whichever rank had it. PeerError: the same, where the first tells.
        """
        if self.guard.is_raised():
            failures = self.ranks.gather_objects(self.guard.failure())
            error = next((failure for failure in failures if failure is not None), None)
            raise self.ranks.agreed(
                error or NonFiniteLossError("A loss is not finite, and no rank knows of which batch.")
            )

    def save(self, *, is_best: bool = False) -> None:
        """Begin to write a checkpoint of this moment; the oldest goes, and any that a resume from before it left.

        Raises: NonFiniteLossError: the weights come from a run that should have stopped; nothing is written.
        CheckpointError: it, or the one before, could not be written.
        """
        begin = self.meter.now()
        self.require_finite()
        models = self.step.learner.models
        with averaged(models, ranks=self.ranks) as norms_Rn:
            of_each = pack_ranks(models, norms_Rn, ranks=self.ranks)
            of_all = pack_content(
                self.step.learner,
                state=self.state,
                window=self.window,
                identity=self.identity,
                config=self.config,
                metrics_lines=self.log.num_lines,
            )
            if self.ranks.is_first:
                self.writer.write({**of_all, "ranks": of_each}, samples=self.state.samples, is_best=is_best)
        self.last_checkpoint = checkpoint_path(self.log.checkpoint_dir, samples=self.state.samples)
        self.save_is_due = False
        self.save_clock.restart()
        self.save_s += self.meter.now() - begin
        self.tell_written()

    def tell_written(self) -> None:
        """Tell of the checkpoints that have become complete. Raises: CheckpointError: one could not be written."""
        for path, samples in self.writer.written():
            self.progress(CheckpointSaved(path=path, samples=samples))
