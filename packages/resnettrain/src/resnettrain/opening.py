"""A run is opened: data, model, optimizer, log and the state to start from.

What can be refused is refused here, before the first step.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from resnettrain.checkpoint import CheckpointWriter, SaveClock, remove_unfinished
from resnettrain.config import TrainConfig
from resnettrain.distributed import Ranks
from resnettrain.errors import ConfigError, DataMismatchError
from resnettrain.evaluate import Evaluator, require_label_range, require_same_classes
from resnettrain.events import EventWriter
from resnettrain.feed import Feed, LanesFeed, SourceFeed
from resnettrain.metrics import Meter
from resnettrain.model import build_model, count_parameters, require_fitting_pictures
from resnettrain.numerics import Numerics, require_decoder
from resnettrain.optimizer import apply_settings
from resnettrain.progress import Progress, RunStarted, silent
from resnettrain.refusals import require_runnable
from resnettrain.repeated import OneBatchFeed, SyntheticFeed
from resnettrain.resume import (
    AUTO,
    Resume,
    Start,
    find_start,
    fitted_batch,
    require_left,
    require_resumable,
    require_same_run,
)
from resnettrain.run import Run
from resnettrain.runlog import RunLog, new_run_dir
from resnettrain.schedule import make_schedule, resolutions
from resnettrain.settings import to_toml
from resnettrain.state import (
    Identity,
    TrainState,
    unpack_content,
    unpack_ranks,
)
from resnettrain.step import make_step
from resnettrain.stop import Agreement, StopRequest
from resnettrain.utilization import Utilization
from resnettrain.weights import read_init, read_weights, start_from
from shardkit import counted
from wdsloader import Dataset, mask_url, open_dataset

__all__ = ["open_run"]

log = logging.getLogger(__name__)

# ImageNet's, and torchvision's own default, where the shards do not say.
_DEFAULT_CLASSES = 1000
# Seeds of the ranks lie so far apart that no run's is another's.
_RANK_STRIDE = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    run_dir: Path
    numerics: Numerics
    identity: Identity
    feed: Feed
    evaluator: Evaluator | None
    ranks: Ranks


@contextmanager
def open_run(
    config: TrainConfig, *, progress: Progress, stop: StopRequest, resume: Resume, ranks: Ranks
) -> Iterator[Run]:
    """Open everything a run needs, and close it afterwards.

    Raises: ConfigError, DataMismatchError, CheckpointError, RunFolderError, EvaluationError, and wdsloader's errors:
    what does not fit is refused in words before anything is trained.
    """
    start = find_start(resume, run_dir=config.run_dir, ranks=ranks)
    if start is not None:
        require_resumable(config, start)
    require_runnable(config, world_size=ranks.world_size)
    config = fitted_batch(config, start, world_size=ranks.world_size)
    numerics = Numerics.of(config.runtime, local_rank=ranks.place.local_rank)
    ranks.require_own_device(numerics.device)
    require_decoder(config.data.decode, device=numerics.device)
    torch.manual_seed(config.seed + _RANK_STRIDE * ranks.place.rank)
    with ExitStack() as stack:
        with ranks.in_turn():
            dataset = _training_set(config, stack, ranks=ranks)
        identity = _identity(config, dataset, world_size=ranks.world_size)
        if start is not None:
            require_same_run(identity, start)
        home = start.home if start is not None else None
        run_dir = ranks.from_first(config.run_dir or home or new_run_dir(config.recipe))
        config = _resolved(config, run_dir=run_dir, num_classes=identity.num_classes)
        with ranks.in_turn():
            val = stack.enter_context(_open(config.data.val_urls, config, exact=True)) if config.data.val_urls else None
        evaluator = None
        if val is not None:
            _require_fitting(val, config, dataset=dataset, identity=identity)
            evaluator = stack.enter_context(
                Evaluator(val, config, numerics=numerics, num_classes=identity.num_classes, ranks=ranks)
            )
        feed = _feed(
            config,
            dataset=dataset,
            numerics=numerics,
            num_classes=identity.num_classes,
            ranks=ranks,
            state=start.content["loader"] if start is not None else None,
        )
        stack.callback(feed.close)
        if start is not None:
            require_left(config, start, resume=resume)
        parts = _Parts(
            run_dir=run_dir, numerics=numerics, identity=identity, feed=feed, evaluator=evaluator, ranks=ranks
        )
        fresh_in_place = resume == AUTO and start is None
        run = _assemble(
            config, parts, progress=progress if ranks.is_first else silent, stop=stop, start=start,
            keep_lines=0 if fresh_in_place else None, stack=stack,
        )  # fmt: skip
        stack.callback(run.writer.wait)
        _tell_start(run, resumed_from=start.path if start is not None else None)
        yield run


def _training_set(config: TrainConfig, stack: ExitStack, *, ranks: Ranks) -> Dataset | None:
    if config.data.pipeline != "lanes":
        return None
    data = config.data
    # Of a stream whose length nobody knows, the ranks would get different numbers of batches.
    return stack.enter_context(_open(data.urls, config, exact=data.exact or not ranks.is_alone))


def _open(urls: tuple[str, ...], config: TrainConfig, *, exact: bool) -> Dataset:
    data = config.data
    return open_dataset(
        urls, cache=data.cache(), allow_commands=data.allow_commands, exact=exact, on_error=data.on_error
    )


def _identity(config: TrainConfig, dataset: Dataset | None, *, world_size: int) -> Identity:
    """Work out what the run is of, and refuse labels that the model has no class for."""
    classes = dataset.classes if dataset is not None else None
    num_classes = config.model.num_classes
    if num_classes is None and dataset is not None:
        num_classes = dataset.num_classes
    if num_classes is None:
        num_classes = _DEFAULT_CLASSES
        if config.data.urls:
            log.info("%s: no class list: the model gets %d. Set model.num_classes.", config.data.urls[0], num_classes)
    if dataset is not None:
        require_label_range(dataset, num_classes=num_classes)
    return Identity(
        model=config.model.name,
        num_classes=num_classes,
        image_size=config.model.image_size,
        global_batch=config.data.batch_size * world_size,
        digest=dataset.digest if dataset is not None else None,
        classes=classes,
    )


def _resolved(config: TrainConfig, *, run_dir: Path, num_classes: int) -> TrainConfig:
    """Put what was worked out in place of what the settings left open."""
    return replace(
        config,
        run_dir=run_dir,
        model=replace(config.model, num_classes=num_classes),
    )


def _require_fitting(val: Dataset, config: TrainConfig, *, dataset: Dataset | None, identity: Identity) -> None:
    if dataset is not None:
        _require_apart(dataset, val)
    require_same_classes(identity.classes, val.classes, names=(config.data.urls[0], val.urls[0]))


def _require_apart(dataset: Dataset, val: Dataset) -> None:
    """Refuse a shard that is trained on and validated on: the figure would be of what was learnt by heart."""
    shared = set(map(os.path.realpath, dataset.urls)) & set(map(os.path.realpath, val.urls))
    if shared:
        raise DataMismatchError(
            f"{min(shared)}: {counted(len(shared), 'shard is/shards are')} both trained on and validated on. "
            "Name the two sets apart, for example by their manifests."
        )


def _feed(
    config: TrainConfig, *, dataset: Dataset | None, numerics: Numerics, num_classes: int, ranks: Ranks,
    state: dict[str, Any] | None,
) -> Feed:  # fmt: skip
    if config.data.pipeline == "synthetic":
        return SyntheticFeed(config, numerics=numerics, num_classes=num_classes, world_size=ranks.world_size)
    if dataset is None:
        return SourceFeed(config, numerics=numerics, num_classes=num_classes)
    feed = LanesFeed(dataset, config, numerics=numerics, num_classes=num_classes, place=ranks.place, state=state)
    if config.data.one_batch:
        return OneBatchFeed(feed)
    if feed.epoch_samples is None:
        log.warning(
            "%s: the length of an epoch is unknown (no manifest): the learning rate stays at its peak, %g. "
            "Make an index with `wds index`, or say schedule.epoch_samples.",
            config.data.urls[0],
            config.peak_lr,
        )
    return feed


def _assemble(
    config: TrainConfig, parts: _Parts, *, progress: Progress, stop: StopRequest, start: Start | None,
    keep_lines: int | None, stack: ExitStack,
) -> Run:  # fmt: skip
    numerics, identity, ranks = parts.numerics, parts.identity, parts.ranks
    step = make_step(
        config,
        _placed(config, parts, fresh=start is None),
        numerics=numerics,
        rank=ranks.place.rank,
        world_size=ranks.world_size,
        agree=None if ranks.is_alone else ranks.max_,
        mean=None if ranks.is_alone else ranks.mean_,
    )
    step.forward = ranks.wrap(step.forward)
    state = TrainState()
    if start is not None:
        state = unpack_content(
            start.content, path=start.path, learner=step.learner, window=step.window, device=numerics.device
        )
        unpack_ranks(start.content, path=start.path, models=step.learner.models, place=ranks.place)
        apply_settings(step.optimizer, config.optim)
    run_dir = parts.run_dir
    if start is not None and _same_place(run_dir, start.home):
        keep_lines = int(start.content["metrics_lines"])
    run_log = RunLog(run_dir, config_toml=_for_reading(config) if ranks.is_first else None, keep_lines=keep_lines)
    stack.callback(run_log.close)
    stack.enter_context(run_log.telling_failure(state, cause=ranks.cause))
    if config.log.tensorboard and ranks.is_first:
        run_log.add(EventWriter(run_dir, start_samples=state.samples or None))
    if ranks.is_first:
        remove_unfinished(run_dir)
    return Run(
        config=config,
        numerics=numerics,
        identity=identity,
        model=step.model,
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
        ranks=ranks,
        # On a CPU a step takes long, and its gradients wait for all ranks anyway.
        agreement=Agreement(ranks, every=config.distributed.agree_every if numerics.device.type == "cuda" else 1),
        writer=CheckpointWriter(run_dir, keep=config.checkpoint.keep, background=config.checkpoint.background),
        utilization=Utilization(
            config, numerics=numerics, num_classes=identity.num_classes, world_size=ranks.world_size
        ),
        save_clock=SaveClock(every_minutes=config.checkpoint.every_minutes),
        last_checkpoint=start.path if start is not None else None,
    )


def _require_fitting_pictures(config: TrainConfig, *, name: str, has_val: bool) -> None:
    """Raise ConfigError where the model cannot be trained on pictures of these sizes, or evaluated on them."""
    at_a_time = config.data.batch_size // config.runtime.micro_batches
    if config.distributed.sync_norm:  # normalizes over all ranks
        at_a_time = max(2, at_a_time)
    sizes = resolutions(config)
    for size in {sizes[0], sizes[-1]}:
        require_fitting_pictures(name, batch_size=at_a_time, image_size=size, training=True)
    if has_val:
        size = config.eval.image_size or config.model.image_size
        require_fitting_pictures(name, batch_size=1, image_size=size, training=False)


def _placed(config: TrainConfig, parts: _Parts, *, fresh: bool) -> nn.Module:
    """Return the model on its device; a run that begins has the weights of `model.init` in it.

    Raises: ConfigError: pictures that it cannot take; a way to normalize that the device does not have; no such
    weights. CheckpointError: of another model.
    """
    _require_fitting_pictures(config, name=parts.identity.model, has_val=parts.evaluator is not None)
    model = build_model(
        parts.identity.model,
        num_classes=parts.identity.num_classes,
        seed=config.seed,
        zero_init_residual=config.model.zero_init_residual,
        antialias=config.model.antialias,
    )
    if fresh and config.model.init is not None:
        ranks, path = parts.ranks, config.model.init
        data = (
            ranks.bytes_from_first(read_init(path) if ranks.is_first else b"").getvalue()
            if not ranks.is_alone
            else read_init(path)
        )
        log.info("%s: %s", path, start_from(read_weights(data, path=path), model=model, path=path))
    model = parts.numerics.place(model)
    if not config.distributed.sync_norm or parts.ranks.is_alone:
        return model
    if parts.numerics.device.type != "cuda":
        raise ConfigError("distributed.sync_norm: torch normalizes over several ranks on CUDA alone. Leave it out.")
    return cast(nn.Module, nn.SyncBatchNorm.convert_sync_batchnorm(model))


def _for_reading(config: TrainConfig) -> str:
    """Return the settings for config.toml, secrets in URLs masked: people show it around; a checkpoint has all."""
    data = config.data
    masked = replace(data, urls=tuple(map(mask_url, data.urls)), val_urls=tuple(map(mask_url, data.val_urls)))
    return to_toml(replace(config, run_dir=None, data=masked))


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
            world_size=run.ranks.world_size,
            epochs=config.schedule.epochs,
            epoch_batches=run.feed.epoch_batches,
            dataset_samples=run.feed.dataset_samples,
            left_out=_left_out(run.feed),
            total_samples=run.schedule.total_samples,
            start_samples=run.state.samples,
            resumed_from=resumed_from,
        )
    )


def _left_out(feed: Feed) -> int | None:
    if feed.dataset_samples is None or feed.epoch_batches is None or feed.epoch_samples is None:
        return None
    return feed.dataset_samples - feed.epoch_samples
