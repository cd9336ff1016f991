"""Batches of a dataset, or of the source's own pipeline, as device batches. The position travels with the batch.

The order is wdsloader's; the way to the device is `ring.py`. Labels are checked here, on the host, where looking is
free: on a device a wrong one is a crash without a name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from resnettrain.config import TrainConfig
from resnettrain.errors import DataMismatchError
from resnettrain.numerics import Numerics
from resnettrain.rank import Rank
from resnettrain.ring import DeviceRing
from resnettrain.schedule import resolution_at
from wdsloader import AugmentConfig as CropConfig
from wdsloader import Batch, Dataset, LoaderConfig, NoLengthError, SourceConfig, TorchLoader, source_loader

__all__ = ["DeviceBatch", "Feed", "LanesFeed", "SourceFeed", "Waiting", "require_labels", "unnoted"]

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBatch:
    """One batch on the device; its tensors are good until the next batch is asked for.

    `images` uint8 (N, H, W, 3), or float32 normalized (N, 3, H, W) from the source's pipeline; `labels` int64 (N,),
    `weights` float32 (N,): 0 masks a row out.
    `size` is its number of rows, masked ones included; `state` the data position after it, None where there is none.
    """

    images: Tensor
    labels: Tensor
    weights: Tensor
    keys: tuple[str | None, ...]
    size: int
    state: dict[str, Any] | None


class Waiting(Protocol):
    """Hands items on and notes how long each is waited for."""

    def __call__(self, items: Iterable[_Item], /) -> Iterator[_Item]: ...


def unnoted(items: Iterable[_Item], /) -> Iterator[_Item]:
    """Hand items on and note nothing."""
    return iter(items)


class Feed(Protocol):
    """What the loop draws from. `epoch_batches` and `epoch_samples` are None where nobody knows the length.

    `skipped` counts the samples of all epochs so far that could not be delivered, by cause. `dataset_samples` is the
    size of the dataset, None where that is not known or no epoch is one pass over it.
    """

    dataset_samples: int | None
    epoch_batches: int | None
    epoch_samples: int | None
    skipped: Counter[str]

    def epoch(self, *, waiting: Waiting = unnoted) -> Iterator[DeviceBatch]:
        """Hand out the rest of the current epoch; the next call begins the next one.

        Args: waiting: wraps the loader's batches alone. Where the host is a whole ring ahead of the device, this waits
        as well, but for computing and not for data.
        """
        ...

    def position(self) -> dict[str, Any] | None:
        """Return the data position behind the last batch handed out, None where there is none."""
        ...

    def close(self) -> None:
        """End the workers."""
        ...


class LanesFeed:
    """Training batches in wdsloader's exact order, from a position on; each epoch in its own size of pictures."""

    def __init__(
        self,
        dataset: Dataset,
        config: TrainConfig,
        *,
        numerics: Numerics,
        num_classes: int,
        place: Rank,
        state: dict[str, Any] | None,
    ) -> None:
        augment = config.augment
        self._dataset, self._config, self._num_classes = dataset, config, num_classes
        self._settings = LoaderConfig(
            batch_size=config.data.batch_size,
            image_size=resolution_at(_epoch_of(state), config=config),
            seed=config.seed,
            shuffle=True,
            tail="drop",
            num_workers=config.data.num_workers,
            lanes=config.data.lanes,
            augment=CropConfig(
                scale=augment.scale,
                ratio=augment.ratio,
                flip=augment.flip,
                alternating_flip=augment.alternating_flip,
            ),
            exact=config.data.exact,
            on_error=config.data.on_error,
            max_skipped=config.data.max_skipped,
            pin_memory=numerics.device.type == "cuda" and config.data.decode == "cpu",
            decode=config.data.decode,
        )
        self._place, self._device = place, numerics.device
        self.dataset_samples = dataset.num_samples
        self._loader = self._open()
        self._ring = DeviceRing(numerics.device)
        self.skipped: Counter[str] = Counter()
        try:
            self.epoch_batches: int | None = len(self._loader)
        except NoLengthError:
            self.epoch_batches = None
        self.epoch_samples = config.schedule.epoch_samples
        if self.epoch_batches is not None:
            self.epoch_samples = self.epoch_batches * config.data.batch_size * place.world_size
        if state is not None:
            self._loader.load_state_dict(state)

    def epoch(self, *, waiting: Waiting = unnoted) -> Iterator[DeviceBatch]:
        """Hand out the rest of the current epoch; the next call begins the next one."""
        self._resize()
        for batch, moved in self._ring.stream(self._checked(waiting)):
            images, labels, weights = moved
            yield DeviceBatch(
                images=images,
                labels=labels,
                weights=weights,
                keys=batch.keys,
                size=len(batch.labels),
                state=dict(batch.state),
            )

    def _checked(self, waiting: Waiting) -> Iterator[tuple[Batch, list[Tensor]]]:
        for batch in waiting(self._loader):
            self.skipped.update(fault.label for fault in batch.faults)
            require_labels(batch.labels, num_classes=self._num_classes, keys=batch.keys)
            yield batch, [batch.images, batch.labels, batch.weights]

    def _resize(self) -> None:
        """Open the loader anew where this epoch has another size of pictures: at the same position."""
        position = self._loader.state_dict()
        size = resolution_at(_epoch_of(position), config=self._config)
        if size != self._settings.image_size:
            self._loader.close()
            self._settings = replace(self._settings, image_size=size)
            self._loader = self._open()
            self._loader.load_state_dict(position)

    def _open(self) -> TorchLoader:
        place = self._place
        return TorchLoader(
            self._dataset, self._settings, rank=place.rank, world_size=place.world_size, device=self._device
        )

    def position(self) -> dict[str, Any] | None:
        """Return the data position behind the last batch handed out."""
        return dict(self._loader.state_dict())

    def close(self) -> None:
        """End the workers."""
        self._loader.close()


class SourceFeed:
    """The source's own pipeline: float batches, shards drawn with replacement, no position."""

    def __init__(self, config: TrainConfig, *, numerics: Numerics, num_classes: int) -> None:
        source = SourceConfig(
            urls=config.data.urls,
            cache_dir=config.data.cache_dir,
            batch_size=config.data.batch_size,
            image_size=config.model.image_size,
        )
        if config.data.num_workers is not None:
            source = replace(source, num_workers=config.data.num_workers)
        self._loader = source_loader(source)
        self._ring = DeviceRing(numerics.device)
        self.skipped: Counter[str] = Counter()
        self._num_classes = num_classes
        self.dataset_samples: int | None = None
        self.epoch_batches: int | None = source.epoch_batches
        self.epoch_samples: int | None = source.epoch_batches * source.batch_size

    def epoch(self, *, waiting: Waiting = unnoted) -> Iterator[DeviceBatch]:
        """Hand out one epoch of the source."""
        for size, (images, labels, weights) in self._ring.stream(self._checked(waiting)):
            yield DeviceBatch(images=images, labels=labels, weights=weights, keys=(), size=size, state=None)

    def _checked(self, waiting: Waiting) -> Iterator[tuple[int, list[Tensor]]]:
        for images, labels in waiting(self._loader):
            require_labels(labels, num_classes=self._num_classes, keys=())
            yield len(labels), [images, labels, torch.ones(len(labels))]

    def position(self) -> dict[str, Any] | None:
        """Return None: what is drawn with replacement has no position."""
        return None

    def close(self) -> None:
        """Leave the workers to webdataset, which ends them with the iterator."""


def require_labels(labels_N: Tensor, *, num_classes: int, keys: tuple[str | None, ...]) -> None:
    """Refuse labels outside 0..num_classes-1.

    Raises: DataMismatchError: naming the first such label and its key.
    """
    wrong = ((labels_N < 0) | (labels_N >= num_classes)).nonzero()
    if len(wrong):
        row = int(wrong[0, 0])
        name = f"'{keys[row]}': " if row < len(keys) and keys[row] is not None else ""
        raise DataMismatchError(
            f"{name}label {int(labels_N[row])} is outside 0..{num_classes - 1}. "
            "Set model.num_classes, or mend the labels."
        )


def _epoch_of(position: Mapping[str, Any] | None) -> int:
    # What else is wrong with a position, the loader says.
    epoch = None if position is None else position.get("epoch")
    return epoch if isinstance(epoch, int) else 0
