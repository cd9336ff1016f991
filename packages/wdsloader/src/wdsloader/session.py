"""From a dataset and settings to the order of a run: first state, plan, and what a saved state must fit. No I/O."""

from __future__ import annotations

import logging
from dataclasses import replace

from shardkit import counted
from wdsloader.config import LoaderConfig
from wdsloader.dataset import Dataset
from wdsloader.errors import ConfigError, DatasetError
from wdsloader.mixing import MixedDataset, MixSchedule
from wdsloader.plan import LISTED, Plan, first_state
from wdsloader.state import LoaderState

__all__ = ["order_of", "plan_of", "resumed", "schedule_of"]

log = logging.getLogger(__name__)


def order_of(dataset: Dataset | MixedDataset, config: LoaderConfig, *, world_size: int) -> LoaderState:
    """Return the state at the start of a run.

    Raises: ConfigError: settings that this dataset has no order for. DatasetError: shards are missing, and nobody said
        that they may be.
    """
    if config.on_error == "stop" and dataset.lost_shards:
        lost = dataset.lost_shards
        raise DatasetError(
            f"{lost[0]}: missing or damaged, {counted(len(lost), 'such shard')}. Mend this, or set on_error='skip'"
        )
    mixed = isinstance(dataset, MixedDataset)
    if mixed and (config.resampled or not config.shuffle):
        raise ConfigError("a mixture is always shuffled, and every part comes whole: leave shuffle and resampled")
    if mixed and config.tail != "drop":
        raise ConfigError(f"tail={config.tail!r}: the epochs of a mixture are whole batches, nothing is left over")
    if config.resampled and dataset.counts is None:
        raise ConfigError("resampled=True needs the sample counts of the shards, and no manifest has them")
    parts = dataset.parts if isinstance(dataset, MixedDataset) else (dataset,)
    num_shards = None if dataset.counts is None else min(len(part.urls) for part in parts)
    return first_state(
        config,
        digest=dataset.digest,
        num_shards=num_shards,
        packed_shuffled=dataset.packed_shuffled,
        remote=dataset.remote,
        world_size=world_size,
    )


def plan_of(
    state: LoaderState, *, dataset: Dataset | MixedDataset, config: LoaderConfig, rank: int, world_size: int
) -> Plan | None:
    """Return how batches are cut from the order of a state; None in the inexact mode. Raises: ConfigError."""
    num_samples = dataset.num_samples if state.resampled is None else state.resampled
    if num_samples is None:
        return None
    if isinstance(dataset, MixedDataset) and num_samples >= state.batch:
        num_samples -= num_samples % state.batch
        schedule_of(dataset, state)
    return Plan(
        num_samples=num_samples,
        batch_size=state.batch,
        lanes=state.lanes,
        tail=config.tail,
        rank=rank,
        world_size=world_size,
    )


def schedule_of(dataset: Dataset | MixedDataset, state: LoaderState) -> MixSchedule | None:
    """Return the schedule of a mixture, None for a dataset alone. Raises: ConfigError: a batch too small for it."""
    if not isinstance(dataset, MixedDataset):
        return None
    return MixSchedule.of(dataset, batch_size=state.batch, lanes=state.lanes, seed=state.seed)


def resumed(
    saved: LoaderState, *, dataset: Dataset | MixedDataset, config: LoaderConfig, rank: int, world_size: int
) -> LoaderState:
    """Return the state at which a loader goes on where another one stood.

    Raises: ConfigError: saved with other data, seed or order, or at a position where these batches cannot start.
    """
    if saved.lanes != LISTED and config.shuffle:
        config = replace(config, lanes=config.lanes or saved.lanes, block=config.block or saved.block)
    mine = order_of(dataset, config, world_size=world_size)
    mine.require_same_order(saved, source="the saved state")
    if isinstance(dataset, MixedDataset) and saved.batch != mine.batch:
        raise ConfigError(
            f"the saved state has a global batch of {saved.batch}, this loader {mine.batch}: the schedule of a mixture "
            f"is made for one. Use {saved.batch} over all ranks together"
        )
    loaded = replace(mine, epoch=saved.epoch, position=saved.position)
    plan = plan_of(loaded, dataset=dataset, config=config, rank=rank, world_size=world_size)
    if plan is None:
        if loaded.position:
            log.warning("the inexact mode cannot resume inside an epoch: epoch %d starts again", loaded.epoch)
        return replace(loaded, position=0)
    plan.require_resumable(loaded.position)
    if not plan.steps_from(loaded.position):
        left = plan.num_samples - loaded.position
        log.info("%d samples of epoch %d make no batch: going on with the next", left, loaded.epoch)
        loaded = replace(loaded, epoch=loaded.epoch + 1, position=0)
    return loaded
