"""Batches of a dataset, or of the source's own pipeline, as device batches. The position travels with the batch.

Owns the way from host to device; the order is wdsloader's. Labels are checked here, on the host, where looking is free:
on a device a wrong one is a crash without a name.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from resnettrain.config import TrainConfig
from resnettrain.errors import DataMismatchError
from resnettrain.gpu_augment import Normalizer
from resnettrain.numerics import Numerics
from wdsloader import AugmentConfig as CropConfig
from wdsloader import Batch, Dataset, LoaderConfig, NoLengthError, SourceConfig, TorchLoader, source_loader

__all__ = ["DeviceBatch", "Feed", "LanesFeed", "SourceFeed", "to_device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBatch:
    """One batch on the device.

    `images` float32 normalized (N, 3, H, W), `labels` int64 (N,), `weights` float32 (N,): 0 masks a row out.
    `size` is what the batch adds to the samples consumed; `state` the data position after it, None where there is none.
    """

    images: Tensor
    labels: Tensor
    weights: Tensor
    keys: tuple[str | None, ...]
    size: int
    state: dict[str, Any] | None


class Feed(Protocol):
    """What the loop draws from. `epoch_batches` and `epoch_samples` are None where nobody knows the length.

    `skipped` counts the samples of all epochs so far that could not be delivered, by cause.
    """

    epoch_batches: int | None
    epoch_samples: int | None
    skipped: Counter[str]

    def epoch(self) -> Iterator[DeviceBatch]:
        """Hand out the rest of the current epoch; the next call begins the next one."""
        ...

    def position(self) -> dict[str, Any] | None:
        """Return the data position behind the last batch handed out, None where there is none."""
        ...

    def close(self) -> None:
        """End the workers."""
        ...


class LanesFeed:
    """Training batches in wdsloader's exact order, from a position on."""

    def __init__(
        self,
        dataset: Dataset,
        config: TrainConfig,
        *,
        numerics: Numerics,
        num_classes: int,
        state: dict[str, Any] | None,
    ) -> None:
        augment = config.augment
        self._loader = TorchLoader(
            dataset,
            LoaderConfig(
                batch_size=config.data.batch_size,
                image_size=config.model.image_size,
                seed=config.seed,
                shuffle=True,
                tail="drop",
                num_workers=config.data.num_workers,
                lanes=config.data.lanes,
                augment=CropConfig(scale=augment.scale, ratio=augment.ratio, flip=augment.flip),
                exact=config.data.exact,
                on_error=config.data.on_error,
                max_skipped=config.data.max_skipped,
                pin_memory=numerics.device.type == "cuda",
            ),
        )
        self.skipped: Counter[str] = Counter()
        self._copied = _Copied()
        self._numerics, self._num_classes = numerics, num_classes
        self._normalize = Normalizer(channels_last=numerics.channels_last)
        try:
            self.epoch_batches: int | None = len(self._loader)
        except NoLengthError:
            self.epoch_batches = None
        self.epoch_samples = config.schedule.epoch_samples
        if self.epoch_batches is not None:
            self.epoch_samples = self.epoch_batches * config.data.batch_size
        if state is not None:
            self._loader.load_state_dict(state)

    def epoch(self) -> Iterator[DeviceBatch]:
        """Hand out the rest of the current epoch; the next call begins the next one."""
        for batch in self._loader:
            self.skipped.update(fault.label for fault in batch.faults)
            moved = to_device(batch, numerics=self._numerics, num_classes=self._num_classes, normalize=self._normalize)
            if self._numerics.device.type == "cuda":
                self._copied.hold(batch, self._numerics.device)
            yield moved

    def position(self) -> dict[str, Any] | None:
        """Return the data position behind the last batch handed out."""
        return dict(self._loader.state_dict())

    def close(self) -> None:
        """End the workers."""
        self._loader.close()


class _Copied:
    """Host batches that are copied to a CUDA device in the background: their memory must not be filled anew by then."""

    def __init__(self) -> None:
        self._held: deque[tuple[torch.cuda.Event, Batch]] = deque()

    def hold(self, batch: Batch, device: torch.device) -> None:
        """Keep a batch until the copy that was begun is done, and let go of those whose copy is."""
        copied = torch.cuda.Event()
        copied.record(torch.cuda.current_stream(device))
        self._held.append((copied, batch))
        while self._held[0][0].query() and len(self._held) > 1:
            self._held.popleft()


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
        self.skipped: Counter[str] = Counter()
        self._numerics, self._num_classes = numerics, num_classes
        self.epoch_batches: int | None = source.epoch_batches
        self.epoch_samples: int | None = source.epoch_batches * source.batch_size

    def epoch(self) -> Iterator[DeviceBatch]:
        """Hand out one epoch of the source."""
        device = self._numerics.device
        for images, labels in self._loader:
            require_labels(labels, num_classes=self._num_classes, keys=())
            yield DeviceBatch(
                images=_move(images, device),
                labels=_move(labels, device),
                weights=torch.ones(len(labels), device=device),
                keys=(),
                size=len(labels),
                state=None,
            )

    def position(self) -> dict[str, Any] | None:
        """Return None: what is drawn with replacement has no position."""
        return None

    def close(self) -> None:
        """Leave the workers to webdataset, which ends them with the iterator."""


def to_device(batch: Batch, *, numerics: Numerics, num_classes: int, normalize: Normalizer) -> DeviceBatch:
    """Return a host batch on the device, normalized; `normalize` says how long its images stay.

    Raises: DataMismatchError: a label outside 0..num_classes-1, naming its key.
    """
    require_labels(batch.labels, num_classes=num_classes, keys=batch.keys)
    images, labels, weights = (_move(part, numerics.device) for part in (batch.images, batch.labels, batch.weights))
    return DeviceBatch(
        images=normalize(images),
        labels=labels,
        weights=weights,
        keys=batch.keys,
        size=len(batch.labels),
        state=dict(batch.state),
    )


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


def _move(tensor: Tensor, device: torch.device) -> Tensor:
    # From pinned memory, which the loader's batches are in, the copy waits for nothing; from any other it waits for the
    # device, and would count as waiting for data.
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
