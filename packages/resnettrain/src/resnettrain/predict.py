"""Single pictures through a trained model: what it takes each for, most likely first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from resnettrain.config import RuntimeConfig
from resnettrain.gpu_augment import normalize
from resnettrain.numerics import Numerics, global_switches
from resnettrain.weights import load_trained
from shardkit import PictureError, ShardReadError, iter_samples, picture_extension
from wdsloader import evaluation_picture

__all__ = ["Answer", "Picture", "Predictor", "Unreadable", "pictures_in_files", "pictures_in_shards"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An encoded picture and where it is from; without `data`, `reason` says why there is none."""

    source: str
    data: bytes | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The likeliest classes of a picture, the first one first: numbers, names, and shares that add up to at most 1."""

    source: str
    labels: tuple[int, ...]
    names: tuple[str, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """What could not be looked at, and why."""

    source: str
    reason: str


class Predictor:
    """A checkpoint's model on its device, seeing pictures as evaluation does.

    Args: average: use the moving average of the weights where there is one.
    Raises: CheckpointError, as `load_trained`. ConfigError: no such device.
    """

    def __init__(self, checkpoint: Path, *, runtime: RuntimeConfig | None = None, average: bool = True) -> None:
        trained = load_trained(checkpoint, average=average)
        self.path, self.names, self.image_size = trained.path, trained.names, trained.image_size
        self._runtime = runtime or RuntimeConfig()
        self._numerics = Numerics.of(self._runtime)
        self._model = self._numerics.place(trained.model)

    def answers(self, pictures: Iterable[Picture], *, batch_size: int, top_k: int) -> Iterator[Answer | Unreadable]:
        """Hand out an answer for every picture, in their order; those that cannot be read are told as such."""
        source = iter(pictures)
        while batch := list(islice(source, batch_size)):
            yield from self._batch(batch, top_k=min(top_k, len(self.names)))

    def _batch(self, batch: Sequence[Picture], *, top_k: int) -> Iterator[Answer | Unreadable]:
        seen = [self._seen(picture) for picture in batch]
        images = [image for image in seen if not isinstance(image, Unreadable)]
        rows: Iterator[tuple[list[int], list[float]]] = iter(())
        if images:
            # What does not compute leaves no row, so rows and pictures are put together by their order.
            shares_NK, labels_NK = self._look(np.stack(images), top_k=top_k)
            rows = zip(labels_NK.tolist(), shares_NK.tolist(), strict=True)
        for picture, image in zip(batch, seen, strict=True):
            if isinstance(image, Unreadable):
                yield image
                continue
            labels, shares = next(rows)
            names = tuple(self.names[label] for label in labels)
            yield Answer(source=picture.source, labels=tuple(labels), names=names, shares=tuple(shares))

    def _seen(self, picture: Picture) -> np.ndarray | Unreadable:
        if picture.data is None:
            return Unreadable(source=picture.source, reason=picture.reason)
        try:
            return evaluation_picture(picture.data, image_size=self.image_size)
        except PictureError as error:
            return Unreadable(source=picture.source, reason=str(error))

    def _look(self, images_NHWC: np.ndarray, *, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
        numerics = self._numerics
        with global_switches(numerics, threads=self._runtime.threads), torch.inference_mode():
            images = torch.from_numpy(images_NHWC).to(numerics.device)
            with numerics.autocast():
                logits_NK = self._model(normalize(images, channels_last=numerics.channels_last))
            best = logits_NK.float().softmax(dim=1).topk(top_k, dim=1)
        return best.values.cpu(), best.indices.cpu()


def pictures_in_files(paths: Iterable[Path]) -> Iterator[Picture]:
    """Hand out the pictures of files, those that cannot be opened without data."""
    for path in paths:
        try:
            yield Picture(source=str(path), data=path.read_bytes())
        except OSError as error:
            yield Picture(source=str(path), data=None, reason=error.strerror or str(error))


def pictures_in_shards(paths: Iterable[Path]) -> Iterator[Picture]:
    """Hand out the pictures of local shards, a shard from its damage on as one without data."""
    for path in paths:
        try:
            with path.open("rb") as stream:
                for sample in iter_samples(stream, shard=str(path)):
                    extension, where = picture_extension(sample.members), f"{path}/{sample.key}"
                    if extension is None:
                        yield Picture(source=where, data=None, reason="no picture is in this sample")
                    else:
                        yield Picture(source=f"{where}.{extension}", data=sample.members[extension])
        except (OSError, ShardReadError) as error:
            yield Picture(source=str(path), data=None, reason=str(error))
