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

import torch
from torch import nn

from resnettrain.config import TrainConfig
from resnettrain.distributed import open_ranks
from resnettrain.errors import EvaluationError
from resnettrain.evaluate import EvalResult
from resnettrain.garbage import Collector
from resnettrain.memory import memory_in_words
from resnettrain.norm_stats import averaged
from resnettrain.numerics import Numerics, global_switches
from resnettrain.opening import open_run
from resnettrain.profile import Profiler
from resnettrain.progress import Progress, RunEnded, TrainReport, ValReport, silent, without_waiting
from resnettrain.rank import Rank
from resnettrain.resume import Resume
from resnettrain.run import Run
from resnettrain.schedule import lr_at, reached_cap, resolution_at
from resnettrain.stop import TIME_IS_UP, StopRequest

__all__ = ["Outcome", "TrainResult", "train"]

log = logging.getLogger(__name__)

Outcome = Literal["completed", "capped", "interrupted"]
# How a run ends, and the signal that ended it.
_Ending = tuple[Outcome, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """How a run ended. "capped": `max_samples`, `max_updates` or `max_hours` ended it; "interrupted": `signal` did.
    In either case the work is saved.

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

    @property
    def wait_share(self) -> float:
        """Return the part of the training time that went to waiting for data."""
        return min(1.0, self.wait_s / max(self.seconds - self.val_s - self.save_s, 1e-9))

    @property
    def compute_images_per_s(self) -> float:
        """Return how many images a second there would have been without that."""
        return without_waiting(self.images_per_s, wait_share=self.wait_share)


def train(
    config: TrainConfig, *, progress: Progress = silent, resume: Resume = None, place: Rank | None = None
) -> TrainResult:
    """Train a model as the settings say, or go on where a checkpoint stands.

    Args: resume: a checkpoint file, a run folder, or "auto": the newest checkpoint in `config.run_dir`, if there is
    one; `AutoFound` names it, where it was looked for before.  place: of several ranks, which this process is; each
    calls this, and the first one's settings hold for all. That one alone writes and tells.
    Raises: ConfigError, DataMismatchError, CheckpointError, RunFolderError, EvaluationError: refused before the first
    step. NonFiniteLossError: the loss became NaN or infinite. CheckpointError: one could not be written.
    OutOfMemoryError. PeerError: another rank failed. And wdsloader's errors.
    """
    stop = StopRequest()
    try:
        with stop:
            return _train(config, progress=progress, resume=resume, place=place or Rank(), stop=stop)
    except KeyboardInterrupt:
        # It came as another signal, and whoever handles that is back in place.
        if stop.signal not in (None, signal.SIGINT):
            signal.raise_signal(stop.signal)
        raise


def _train(config: TrainConfig, *, progress: Progress, resume: Resume, place: Rank, stop: StopRequest) -> TrainResult:
    with open_ranks(place, must_leave=lambda: stop.signal is not None) as ranks:
        config = ranks.from_first(config)
        with (
            global_switches(Numerics.of(config.runtime, local_rank=place.local_rank), threads=config.runtime.threads),
            open_run(config, progress=progress, stop=stop, resume=resume, ranks=ranks) as run,
            memory_in_words(run.config.data, model=run.model),
            Collector(every=config.runtime.gc_every) as collector,
            Profiler(
                config.runtime.profile if ranks.is_first else None, folder=run.log.run_dir, device=run.numerics.device
            ) as profiler,
        ):
            begin = run.meter.now()
            number: int | None = None
            try:
                outcome, number = _loop(run, collector=collector, profiler=profiler)
                run.agreement.close()
            except KeyboardInterrupt:
                if not ranks.is_alone:
                    raise
                log.warning("stopped at once, without a checkpoint of this moment")
                outcome, number = "interrupted", stop.signal or signal.SIGINT
            return _end(run, outcome, number=number, seconds=run.meter.now() - begin)


def _loop(run: Run, *, collector: Collector, profiler: Profiler) -> _Ending:
    """Run epochs until the last one, a cap or a signal; return how it ended, and the signal."""
    config, state = run.config, run.state
    ending = _ending(run)
    while ending is None and state.epoch < config.schedule.epochs:
        run.step.train()
        for batch in run.rest_of_epoch():
            report_due = run.meter.due()
            lr = lr_at(state.samples, schedule=run.schedule)
            run.step.run(batch, lr=lr, state=state)
            num_samples = batch.size * run.ranks.world_size
            run.meter.count(num_samples)
            state.samples += num_samples
            state.updates += 1
            state.batch += 1
            state.loader = batch.state
            collector.after_update(state.updates)
            profiler.after_update()
            run.ranks.step_done()

            if report_due:
                _report(run, lr=lr)
            ending = _ending(run)
            if ending is not None:
                break
            if _save_is_due(run):
                run.save()

        ending, is_best = _close_epoch(run, ending=ending)
        if ending is not None or is_best or _epoch_save_is_due(run):
            run.save(is_best=is_best)
    return ending or ("completed", None)


def _ending(run: Run) -> _Ending | None:
    """Return why the run ends at this step boundary, on all ranks alike, or None."""
    schedule, state = run.config.schedule, run.state
    asked = run.poll()
    if asked is not None:
        return _asked_ending(asked)
    cap = reached_cap(schedule, samples=state.samples, updates=state.updates)
    return None if cap is None else ("capped", None)


def _asked_ending(asked: int) -> _Ending:
    return ("capped", None) if asked == TIME_IS_UP else ("interrupted", asked)


def _save_is_due(run: Run) -> bool:
    every = run.config.checkpoint.every_updates
    return run.save_is_due or (every is not None and run.state.updates % every == 0)


def _epoch_save_is_due(run: Run) -> bool:
    epoch = run.state.epoch
    return run.save_is_due or epoch % run.config.checkpoint.every_epochs == 0 or epoch == run.config.schedule.epochs


def _close_epoch(run: Run, *, ending: _Ending | None) -> tuple[_Ending | None, bool]:
    """Report, validate and move on to the next epoch; return how the run ends, and whether it is the best so far.

    A signal skips the validation or ends it.
    """
    state = run.state
    if ending is not None and ending[0] == "interrupted":
        return ending, False
    if ending is None and state.batch == 0:
        # Else every epoch would pass without a step, and the fresh weights be called trained.
        raise run.no_batch()
    run.require_finite()
    if run.config.log.at_epoch_end and state.reported != state.samples:
        _report(run, lr=run.optimizer.param_groups[0]["lr"])
    is_best = False
    if run.evaluator is not None:
        asked, is_best = _validate(run)
        if asked is not None:
            return _asked_ending(asked), False
    run.meter.restart()
    if ending is None or run.epoch_is_fed:
        state.epoch, state.batch, state.loader = state.epoch + 1, 0, run.feed.position()
    return ending, is_best


def _validate(run: Run) -> tuple[int | None, bool]:
    """Evaluate and report; return what ended it early, if anything, and whether the model is the best so far."""
    if run.evaluator is None:
        return None, False
    begin = run.meter.now()
    answers: list[int] = []

    def must_stop() -> bool:
        answer = run.poll()
        answers.extend([answer] if answer is not None else [])
        return answer is not None

    result = None
    try:
        with averaged(run.step.learner.models, ranks=run.ranks):
            for name, model in _weighed(run).items():
                result = run.evaluator.run(model, progress=run.progress, must_stop=must_stop)
                if result is None:
                    break
                _log_validation(run, result, weights=name)
    except EvaluationError:
        # The epoch's work is not the validation set's fault.
        run.save()
        raise
    run.val_s += run.meter.now() - begin
    if result is None:
        return answers[0], False
    run.val = result
    return None, _report_validation(run, result)


def _report(run: Run, *, lr: float) -> None:
    if len(run.window) <= run.config.log.min_steps or not run.ranks.is_first:
        return
    if run.guard.is_raised():
        # Of several ranks the first alone reports: all look at it together, at the next boundary where they agree.
        return
    loss, top1 = run.window.means()
    images_per_s, wait_share = run.meter.read()
    state = run.state
    left, device = _samples_left(run), run.numerics.device
    report = TrainReport(
        epoch=state.epoch,
        batch=state.batch,
        samples=state.samples,
        updates=state.updates,
        loss=loss,
        top1=top1,
        lr=lr,
        images_per_s=images_per_s,
        wait_share=wait_share,
        eta_s=left / images_per_s if left is not None and images_per_s > 0 else None,
        memory_bytes=torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        mfu=run.utilization.share(images_per_s, image_size=resolution_at(state.epoch, config=run.config)),
    )
    state.reported = state.samples
    run.log.write("train", _lasting(report))
    run.progress(report)


def _lasting(report: TrainReport) -> dict[str, object]:
    """Return what is recorded of a report: what will still be of use, and what is known."""
    figures = {**asdict(report), "compute_images_per_s": report.compute_images_per_s}
    return {name: figure for name, figure in figures.items() if name != "eta_s" and figure is not None}


def _weighed(run: Run) -> dict[str, nn.Module]:
    """Return the weights to evaluate by what they are called; the last ones' figures are those of the run."""
    learner, wanted = run.step.learner, run.config.eval.weights
    if learner.ema is None or wanted == "model":
        return {"model": learner.model}
    average = {"ema": learner.ema.module}
    return average if wanted == "auto" else {"model": learner.model, **average}


def _log_validation(run: Run, result: EvalResult, *, weights: str) -> None:
    figures = {name: getattr(result, name) for name in ("count", "top1", "top5", "loss", "seconds")}
    if result.flip is not None:
        figures |= {f"flip_{name}": figure for name, figure in asdict(result.flip).items()}
    state = run.state
    run.log.write("val", {"epoch": state.epoch, "samples": state.samples, "weights": weights, **figures})


def _report_validation(run: Run, result: EvalResult) -> bool:
    """Report, and return whether it is the best so far."""
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
    run.progress(report)
    return is_best


def _samples_left(run: Run) -> int | None:
    schedule = run.config.schedule
    updates = schedule.max_updates * run.identity.global_batch if schedule.max_updates is not None else None
    limits = [limit for limit in (run.schedule.total_samples, schedule.max_samples, updates) if limit is not None]
    return max(0, min(limits) - run.state.samples) if limits else None


def _end(run: Run, outcome: Outcome, *, number: int | None, seconds: float) -> TrainResult:
    run.writer.wait()
    run.tell_written()
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
            **_cap(run, outcome),
            "loss": loss,
            "top1": top1,
            "images_per_s": result.images_per_s,
            "compute_images_per_s": result.compute_images_per_s,
            "wait_share": result.wait_share,
            "skipped": sum(result.skipped.values()),
            "seconds": seconds,
        },
    )
    run.progress(RunEnded(outcome=outcome, samples=result.samples, updates=result.updates, seconds=seconds))
    return result


def _cap(run: Run, outcome: Outcome) -> dict[str, str]:
    """Return which setting has ended a run: of those that hold beside the samples and updates, the hours alone."""
    if outcome != "capped":
        return {}
    state = run.state
    name = reached_cap(run.config.schedule, samples=state.samples, updates=state.updates)
    return {"cap": f"schedule.{name or 'max_hours'}"}
