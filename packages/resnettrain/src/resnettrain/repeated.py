"""Feeds without a loader in the way: made-up pictures for compute alone, and one batch over and over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from resnettrain.config import TrainConfig
from resnettrain.errors import DataMismatchError
from resnettrain.feed import DeviceBatch, LanesFeed, Waiting, unnoted
from resnettrain.numerics import Numerics

__all__ = ["OneBatchFeed", "SyntheticFeed"]

# ImageNet's, so that a schedule is as long as that of a real run.
_EPOCH_SAMPLES = 1_281_167


class SyntheticFeed:
    """One made-up batch that lies on the device: what a run would be with data that costs nothing."""

    def __init__(self, config: TrainConfig, *, numerics: Numerics, num_classes: int, world_size: int) -> None:
        size, side = config.data.batch_size, config.model.image_size
        random = torch.Generator().manual_seed(config.seed)
        images = torch.randint(0, 256, (size, side, side, 3), dtype=torch.uint8, generator=random)
        labels = torch.randint(0, num_classes, (size,), generator=random)
        self._batch = DeviceBatch(
            images=images.to(numerics.device),
            labels=labels.to(numerics.device),
            weights=torch.ones(size, device=numerics.device),
            keys=(None,) * size,
            size=size,
            state={},
        )
        self.skipped: Counter[str] = Counter()
        self.dataset_samples: int | None = None
        samples = config.schedule.epoch_samples or _EPOCH_SAMPLES
        self.epoch_batches: int | None = max(1, samples // (size * world_size))
        self.epoch_samples: int | None = self.epoch_batches * size * world_size

    def epoch(self, *, waiting: Waiting = unnoted) -> Iterator[DeviceBatch]:  # noqa: ARG002  # nothing is waited for
        """Hand out the batch as often as an epoch is long."""
        for _ in range(self.epoch_batches or 0):
            yield self._batch

    def position(self) -> dict[str, Any] | None:
        """Return an empty position: there is none."""
        return {}

    def close(self) -> None:
        """Nothing is open."""


class OneBatchFeed:
    """The first batch of a dataset, kept, and handed out in place of all others.

    Raises: DataMismatchError, by `epoch`: the dataset has no whole batch.
    """

    def __init__(self, feed: LanesFeed) -> None:
        self._feed = feed
        self._kept: DeviceBatch | None = None
        self.dataset_samples: int | None = None
        self.epoch_batches, self.epoch_samples, self.skipped = feed.epoch_batches, feed.epoch_samples, feed.skipped

    def epoch(self, *, waiting: Waiting = unnoted) -> Iterator[DeviceBatch]:
        """Hand out the batch as often as an epoch is long; where nobody knows, once."""
        if self._kept is None:
            batch = next(self._feed.epoch(waiting=waiting), None)
            if batch is None:
                raise DataMismatchError("data.one_batch: the dataset has no whole batch. Lower data.batch_size.")
            # The feed's own buffers are filled anew.
            self._kept = DeviceBatch(
                images=batch.images.clone(),
                labels=batch.labels.clone(),
                weights=batch.weights.clone(),
                keys=batch.keys,
                size=batch.size,
                state={},
            )
        for _ in range(self.epoch_batches or 1):
            yield self._kept

    def position(self) -> dict[str, Any] | None:
        """Return an empty position: there is none to go on from."""
        return {}

    def close(self) -> None:
        """End the workers."""
        self._feed.close()
