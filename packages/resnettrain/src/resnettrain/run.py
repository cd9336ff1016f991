"""One run, opened: data, model, optimizer, log and the state to start from.

What can be refused is refused here, before the first step. The loop over it is `trainer.py`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from resnettrain.checkpoint import checkpoint_path, find_checkpoint, remove_unfinished, rotate, write_checkpoint
from resnettrain.config import AugmentConfig, ResolutionConfig, TrainConfig
from resnettrain.errors import CheckpointError, ConfigError, DataMismatchError
from resnettrain.evaluate import EvalResult, Evaluator, require_label_range, require_same_classes
from resnettrain.feed import DeviceBatch, Feed, LanesFeed, SourceFeed
from resnettrain.guard import FiniteGuard
from resnettrain.metrics import Meter, Window
from resnettrain.model import build_model, count_parameters
from resnettrain.numerics import Numerics
from resnettrain.optimizer import apply_settings
from resnettrain.progress import CheckpointSaved, Progress, RunStarted
from resnettrain.runlog import RunLog, new_run_dir
from resnettrain.schedule import Schedule, make_schedule
from resnettrain.settings import to_toml
from resnettrain.state import Identity, TrainState, identity_of, pack_content, unpack_content
from resnettrain.step import TrainStep, make_step
from resnettrain.stop import StopRequest
from wdsloader import Dataset, mask_url, open_dataset

__all__ = ["Run", "open_run"]

log = logging.getLogger(__name__)

# ImageNet's, and torchvision's own default, where the shards do not say.
_DEFAULT_CLASSES = 1000
# A checkpoint file and its content.
_Found = tuple[Path, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    run_dir: Path
    numerics: Numerics
    identity: Identity
    feed: Feed
    evaluator: Evaluator | None


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
    last_checkpoint: Path | None
    val: EvalResult | None = None
    val_s: float = 0.0
    save_s: float = 0.0

    def rest_of_epoch(self) -> Iterator[DeviceBatch]:
        """Hand out what is left of the current epoch: nothing where a checkpoint was made after its last batch."""
        return iter(()) if self.epoch_is_fed else self.feed.epoch()

    @property
    def epoch_is_fed(self) -> bool:
        """Return whether every batch of the current epoch has been trained on."""
        return self.feed.epoch_batches is not None and self.state.batch >= self.feed.epoch_batches

    def save(self) -> None:
        """Write a checkpoint of this moment and drop the oldest, and any that a resume from before them left behind.

        Raises: NonFiniteLossError: the weights come from a run that should have stopped; nothing is written.
        """
        begin = self.meter.now()
        self.guard.check()
        path = checkpoint_path(self.log.checkpoint_dir, samples=self.state.samples)
        content = pack_content(
            self.step.learner,
            state=self.state,
            window=self.window,
            identity=self.identity,
            config=self.config,
            metrics_lines=self.log.num_lines,
        )
        write_checkpoint(path, content)
        rotate(self.log.run_dir, newest=path, keep=self.config.checkpoint.keep)
        self.last_checkpoint = path
        self.save_s += self.meter.now() - begin
        self.progress(CheckpointSaved(path=path, samples=self.state.samples))


@contextmanager
def open_run(config: TrainConfig, *, progress: Progress, stop: StopRequest, resume: Path | None) -> Iterator[Run]:
    """Open everything a run needs, and close it afterwards.

    Raises: ConfigError, DataMismatchError, CheckpointError, RunFolderError, EvaluationError, and wdsloader's errors:
    what does not fit is refused in words before anything is trained.
    """
    found = find_checkpoint(resume) if resume is not None else None
    saved = identity_of(found[1], path=found[0]) if found is not None else None
    if found is not None and saved is not None:
        _require_resumable(config, saved, path=found[0])
    if not config.data.urls:
        raise ConfigError("data.urls: no shards are named. Give --urls PATTERN.")
    if config.model.init is not None:
        raise ConfigError(f"model.init: {config.model.init} cannot be loaded by this version. Leave it out.")
    _require_heeded(config)
    numerics = Numerics.of(config.runtime)
    torch.manual_seed(config.seed)
    with ExitStack() as stack:
        dataset = _training_set(config, stack)
        identity = _identity(config, dataset)
        if found is not None and saved is not None:
            _require_same_run(identity, saved, path=found[0])
        home = _home(found[0]) if found is not None else None
        run_dir = config.run_dir or home or new_run_dir(config.recipe)
        config = _resolved(config, run_dir=run_dir, num_classes=identity.num_classes)
        evaluator = _evaluator(config, stack, dataset=dataset, identity=identity, numerics=numerics)
        feed = _feed(
            config,
            dataset=dataset,
            numerics=numerics,
            num_classes=identity.num_classes,
            state=found[1]["loader"] if found is not None else None,
        )
        stack.callback(feed.close)
        parts = _Parts(run_dir=run_dir, numerics=numerics, identity=identity, feed=feed, evaluator=evaluator)
        run = _assemble(config, parts, progress=progress, stop=stop, found=found)
        stack.callback(run.log.close)
        _tell_start(run, resumed_from=found[0] if found else None)
        yield run


def _training_set(config: TrainConfig, stack: ExitStack) -> Dataset | None:
    if config.data.pipeline == "source":
        return None
    data = config.data
    return stack.enter_context(_open(data.urls, config, exact=data.exact))


def _open(urls: tuple[str, ...], config: TrainConfig, *, exact: bool) -> Dataset:
    data = config.data
    return open_dataset(
        urls, cache=data.cache(), allow_commands=data.allow_commands, exact=exact, on_error=data.on_error
    )


def _identity(config: TrainConfig, dataset: Dataset | None) -> Identity:
    """Work out what the run is of, and refuse labels that the model has no class for."""
    classes = dataset.classes if dataset is not None else None
    num_classes = config.model.num_classes
    if num_classes is None:
        num_classes = len(classes) if classes is not None else _DEFAULT_CLASSES
        if classes is None:
            log.info("%s: no class list: the model gets %d. Set model.num_classes.", config.data.urls[0], num_classes)
    if dataset is not None:
        require_label_range(dataset, num_classes=num_classes)
    return Identity(
        model=config.model.name,
        num_classes=num_classes,
        image_size=config.model.image_size,
        batch_size=config.data.batch_size,
        digest=dataset.digest if dataset is not None else None,
        classes=classes,
    )


def _resolved(config: TrainConfig, *, run_dir: Path, num_classes: int) -> TrainConfig:
    """Put what was worked out in place of what the settings left open."""
    return replace(
        config,
        run_dir=run_dir,
        model=replace(config.model, num_classes=num_classes),
        optim=replace(config.optim, lr=config.peak_lr),
    )


def _evaluator(
    config: TrainConfig, stack: ExitStack, *, dataset: Dataset | None, identity: Identity, numerics: Numerics
) -> Evaluator | None:
    if not config.data.val_urls:
        return None
    val = stack.enter_context(_open(config.data.val_urls, config, exact=True))
    if dataset is not None:
        _require_apart(dataset, val)
    require_same_classes(identity.classes, val.classes, names=(config.data.urls[0], val.urls[0]))
    return stack.enter_context(Evaluator(val, config, numerics=numerics, num_classes=identity.num_classes))


def _require_apart(dataset: Dataset, val: Dataset) -> None:
    """Refuse a shard that is trained on and validated on: the figure would be of what was learnt by heart."""
    shared = set(map(os.path.realpath, dataset.urls)) & set(map(os.path.realpath, val.urls))
    if shared:
        raise DataMismatchError(
            f"{min(shared)}: {len(shared)} shards are both trained on and validated on. Name the two sets apart, for "
            "example by their manifests."
        )


def _feed(
    config: TrainConfig, *, dataset: Dataset | None, numerics: Numerics, num_classes: int, state: dict[str, Any] | None
) -> Feed:
    if dataset is None:
        return SourceFeed(config, numerics=numerics, num_classes=num_classes)
    feed = LanesFeed(dataset, config, numerics=numerics, num_classes=num_classes, state=state)
    if feed.epoch_samples is None:
        log.warning(
            "%s: the length of an epoch is unknown (no manifest): the learning rate stays at its peak, %g. "
            "Make an index with `wds index`, or say schedule.epoch_samples.",
            config.data.urls[0],
            config.peak_lr,
        )
    return feed


def _assemble(
    config: TrainConfig, parts: _Parts, *, progress: Progress, stop: StopRequest, found: _Found | None
) -> Run:
    numerics, identity = parts.numerics, parts.identity
    model = numerics.place(
        build_model(
            identity.model,
            num_classes=identity.num_classes,
            seed=config.seed,
            zero_init_residual=config.model.zero_init_residual,
            antialias=config.model.antialias,
        )
    )
    step = make_step(config, model, numerics=numerics)
    state = TrainState()
    if found is not None:
        state = unpack_content(
            found[1], path=found[0], learner=step.learner, window=step.window, device=numerics.device
        )
        apply_settings(step.optimizer, config.optim)
    run_dir, keep_lines = parts.run_dir, None
    if found is not None and _same_place(run_dir, _home(found[0])):
        keep_lines = int(found[1]["metrics_lines"])
    run_log = RunLog(run_dir, config_toml=_for_reading(config), keep_lines=keep_lines)
    remove_unfinished(run_dir)
    return Run(
        config=config,
        numerics=numerics,
        identity=identity,
        model=model,
        optimizer=step.optimizer,
        schedule=make_schedule(config, epoch_samples=parts.feed.epoch_samples),
        feed=parts.feed,
        evaluator=parts.evaluator,
        state=state,
        window=step.window,
        meter=Meter(every_s=config.log.every_s),
        guard=step.guard,
        step=step,
        log=run_log,
        progress=progress,
        stop=stop,
        last_checkpoint=found[0] if found is not None else None,
    )


def _for_reading(config: TrainConfig) -> str:
    """Return the settings for config.toml, secrets in URLs masked: people show it around; a checkpoint has all."""
    data = config.data
    masked = replace(data, urls=tuple(map(mask_url, data.urls)), val_urls=tuple(map(mask_url, data.val_urls)))
    return to_toml(replace(config, run_dir=None, data=masked))


def _home(checkpoint: Path) -> Path | None:
    """Return the run folder that a checkpoint lies in, None where it has been moved elsewhere."""
    return checkpoint.parent.parent if checkpoint.parent.name == "checkpoints" else None


def _same_place(first: Path, second: Path | None) -> bool:
    return second is not None and first.resolve() == second.resolve()


def _tell_start(run: Run, *, resumed_from: Path | None) -> None:
    config = run.config
    run.progress(
        RunStarted(
            run_dir=run.log.run_dir,
            recipe=config.recipe,
            model=run.identity.model,
            num_classes=run.identity.num_classes,
            num_parameters=count_parameters(run.model),
            device=str(run.numerics.device),
            precision=run.numerics.precision,
            batch_size=config.data.batch_size,
            epochs=config.schedule.epochs,
            epoch_batches=run.feed.epoch_batches,
            total_samples=run.schedule.total_samples,
            start_samples=run.state.samples,
            resumed_from=resumed_from,
        )
    )


def _require_heeded(config: TrainConfig) -> None:
    """Refuse settings that the source's own pipeline would pass over in silence."""
    if config.data.pipeline != "source":
        return
    unheeded = {
        "augment": config.augment != AugmentConfig(),
        "resolution": config.resolution != ResolutionConfig(),
        "data.lanes": config.data.lanes is not None,
        "data.exact": config.data.exact,
        "data.on_error": config.data.on_error != "stop",
    }
    names = ", ".join(name for name, said in unheeded.items() if said)
    if names:
        raise ConfigError(f"{names}: the source's pipeline has its own way. Leave it, or set data.pipeline=lanes.")


def _require_resumable(config: TrainConfig, saved: Identity, *, path: Path) -> None:
    if config.data.pipeline == "source":
        raise ConfigError(
            f"{path}: a run of the recipe '{config.recipe}' cannot be resumed: it draws with replacement and has "
            "no position. The checkpoint can be evaluated."
        )
    if config.data.batch_size != saved.batch_size:
        raise ConfigError(
            f"data.batch_size: {config.data.batch_size}, but {path} was made with {saved.batch_size}. "
            f"A resume keeps it: give --batch-size {saved.batch_size}."
        )


def _require_same_run(identity: Identity, saved: Identity, *, path: Path) -> None:
    for name in ("model", "num_classes", "digest"):
        ours, theirs = getattr(identity, name), getattr(saved, name)
        if ours != theirs:
            what = "training shards (by their digest)" if name == "digest" else name
            raise CheckpointError(f"{path}: made with another {what}: {theirs} there, {ours} here. Nothing was loaded.")
