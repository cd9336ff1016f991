"""The training loop, read from top to bottom. Parts come from `run.py`; the only clock is the samples consumed.

The host waits for the device at reports and checkpoints, never in a step.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from resnettrain.config import TrainConfig
from resnettrain.errors import DataMismatchError, EvaluationError
from resnettrain.evaluate import EvalResult
from resnettrain.garbage import Collector
from resnettrain.numerics import Numerics, global_switches
from resnettrain.progress import Progress, RunEnded, TrainReport, ValReport, silent
from resnettrain.run import Run, open_run
from resnettrain.schedule import lr_at
from resnettrain.stop import StopRequest

__all__ = ["Outcome", "TrainResult", "train"]

log = logging.getLogger(__name__)

Outcome = Literal["completed", "capped", "interrupted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """How a run ended. "capped": `max_samples` or `max_updates` ended it; "interrupted": `signal` did, work is saved.

    `loss` and `top1` are the means of the last steps, None before the first; `val` is the last validation. `seconds`
    counts from when the run was open; of it `wait_s`, `val_s` and `save_s` went to data, validation and checkpoints.
    `images_per_s` leaves the last two out. `skipped` counts the samples that could not be delivered, by cause.
    """

    outcome: Outcome
    signal: int | None
    run_dir: Path
    checkpoint: Path | None
    samples: int
    updates: int
    loss: float | None
    top1: float | None
    val: EvalResult | None
    skipped: Mapping[str, int]
    best_top1: float | None
    seconds: float
    wait_s: float
    val_s: float
    save_s: float
    images_per_s: float


def train(config: TrainConfig, *, progress: Progress = silent, resume: Path | None = None) -> TrainResult:
    """Train a model as the settings say, or go on where a checkpoint stands.

    Args: resume: a checkpoint file or a run folder.
    Raises: ConfigError, DataMismatchError, CheckpointError, RunFolderError, EvaluationError: refused before the first
    step. NonFiniteLossError: the loss became NaN or infinite. And wdsloader's errors.
    """
    with (
        StopRequest() as stop,
        global_switches(Numerics.of(config.runtime), threads=config.runtime.threads),
        open_run(config, progress=progress, stop=stop, resume=resume) as run,
        Collector(every=config.runtime.gc_every) as collector,
    ):
        begin = run.meter.now()
        try:
            outcome = _loop(run, collector=collector)
        except KeyboardInterrupt:
            log.warning("stopped at once, without a checkpoint of this moment")
            outcome = "interrupted"
        number = stop.signal or (signal.SIGINT if outcome == "interrupted" else None)
        return _end(run, outcome, number=number, seconds=run.meter.now() - begin)


def _loop(run: Run, *, collector: Collector) -> Outcome:
    """Run epochs until the last one, a cap or a signal."""
    config, state = run.config, run.state
    ending = _ending(run)
    while ending is None and state.epoch < config.schedule.epochs:
        run.step.train()
        for batch in run.meter.waiting(run.rest_of_epoch()):
            report_due = run.meter.due()
            lr = lr_at(state.samples, schedule=run.schedule)
            run.step.run(batch, lr=lr, state=state)
            run.meter.count(batch.size)
            state.samples += batch.size
            state.updates += 1
            state.batch += 1
            state.loader = batch.state
            collector.after_update(state.updates)

            if report_due:
                _report(run, lr=lr)
            ending = _ending(run)
            if ending is not None:
                break
            if _save_is_due(run):
                run.save()

        ending = _close_epoch(run, ending=ending)
        if ending is not None or _epoch_save_is_due(run):
            run.save()
    return ending or "completed"


def _ending(run: Run) -> Outcome | None:
    """Return why the run ends at this step boundary, or None."""
    schedule, state = run.config.schedule, run.state
    if run.stop.signal is not None:
        return "interrupted"
    if schedule.max_updates is not None and state.updates >= schedule.max_updates:
        return "capped"
    if schedule.max_samples is None:
        return None
    # The source goes on until its limit is exceeded: with a limit of 64, two batches of 64.
    over = state.samples > schedule.max_samples
    return "capped" if over or (schedule.stop_rule == "reach" and state.samples == schedule.max_samples) else None


def _save_is_due(run: Run) -> bool:
    every = run.config.checkpoint.every_updates
    return every is not None and run.state.updates % every == 0


def _epoch_save_is_due(run: Run) -> bool:
    epoch = run.state.epoch
    return epoch % run.config.checkpoint.every_epochs == 0 or epoch == run.config.schedule.epochs


def _close_epoch(run: Run, *, ending: Outcome | None) -> Outcome | None:
    """Report, validate and move on to the next epoch; a signal skips that or ends it, and is what is returned then."""
    state = run.state
    if ending == "interrupted":
        return ending
    if ending is None and state.batch == 0:
        # Else every epoch would pass without a step, and the fresh weights be called trained.
        raise DataMismatchError(
            f"{run.config.data.urls[0]}: an epoch gave not one whole batch of {run.config.data.batch_size}. Lower "
            "data.batch_size or data.num_workers (without a manifest each worker fills batches from shards of its own)."
        )
    run.guard.check()
    if run.config.log.at_epoch_end and state.reported != state.samples:
        _report(run, lr=run.optimizer.param_groups[0]["lr"])
    if run.evaluator is not None:
        begin = run.meter.now()
        try:
            result = run.evaluator.run(run.model, progress=run.progress, stop=run.stop)
        except EvaluationError:
            # The epoch's work is not the validation set's fault.
            run.save()
            raise
        run.val_s += run.meter.now() - begin
        if result is None:
            return "interrupted"
        run.val = result
        _report_validation(run, result)
    run.meter.restart()
    if ending is None or run.epoch_is_fed:
        state.epoch, state.batch, state.loader = state.epoch + 1, 0, run.feed.position()
    return ending


def _report(run: Run, *, lr: float) -> None:
    if len(run.window) <= run.config.log.min_steps:
        return
    run.guard.check()
    loss, top1 = run.window.means()
    images_per_s, wait_share = run.meter.read()
    state = run.state
    left = _samples_left(run)
    report = TrainReport(
        epoch=state.epoch,
        batch=state.batch,
        samples=state.samples,
        loss=loss,
        top1=top1,
        lr=lr,
        images_per_s=images_per_s,
        wait_share=wait_share,
        eta_s=left / images_per_s if left is not None and images_per_s > 0 else None,
    )
    state.reported = state.samples
    run.log.write("train", {name: figure for name, figure in asdict(report).items() if name != "eta_s"})
    run.progress(report)


def _report_validation(run: Run, result: EvalResult) -> None:
    state = run.state
    is_best = state.best_top1 is None or result.top1 > state.best_top1
    state.best_top1 = result.top1 if is_best else state.best_top1
    report = ValReport(
        epoch=state.epoch,
        samples=state.samples,
        count=result.count,
        top1=result.top1,
        top5=result.top5,
        loss=result.loss,
        seconds=result.seconds,
        is_best=is_best,
    )
    run.log.write("val", {name: figure for name, figure in asdict(report).items() if name != "is_best"})
    run.progress(report)


def _samples_left(run: Run) -> int | None:
    schedule = run.config.schedule
    updates = schedule.max_updates * run.config.data.batch_size if schedule.max_updates is not None else None
    limits = [limit for limit in (run.schedule.total_samples, schedule.max_samples, updates) if limit is not None]
    return max(0, min(limits) - run.state.samples) if limits else None


def _end(run: Run, outcome: Outcome, *, number: int | None, seconds: float) -> TrainResult:
    loss, top1 = run.window.means() if len(run.window) else (None, None)
    training_s = max(seconds - run.val_s - run.save_s, 1e-9)
    result = TrainResult(
        outcome=outcome,
        signal=number,
        run_dir=run.log.run_dir,
        checkpoint=run.last_checkpoint,
        samples=run.state.samples,
        updates=run.state.updates,
        loss=loss,
        top1=top1,
        val=run.val,
        skipped=dict(sorted(run.feed.skipped.items())),
        best_top1=run.state.best_top1,
        seconds=seconds,
        wait_s=run.meter.total_wait_s,
        val_s=run.val_s,
        save_s=run.save_s,
        images_per_s=run.meter.total_images / training_s,
    )
    run.log.write(
        "end",
        {
            "epoch": run.state.epoch,
            "samples": result.samples,
            "outcome": outcome,
            "loss": loss,
            "top1": top1,
            "images_per_s": result.images_per_s,
            "wait_share": min(1.0, result.wait_s / training_s),
            "skipped": sum(result.skipped.values()),
            "seconds": seconds,
        },
    )
    run.progress(RunEnded(outcome=outcome, samples=result.samples, updates=result.updates, seconds=seconds))
    return result
