"""Check that a loader did the work that is compared: so many samples, each once, these crops, this kind of array.

Measured on the rulers (``photos.ruler``), whose pixels tell from where in the picture they come: the slope of red
along a row is the width of the crop and its sign the mirroring, that of green along a column is the height.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.peers.floor import draw_box
from bench.peers.task import BATCH_SIZE, MEAN, STD, Delivered

__all__ = ["Asked", "Work", "as_nhwc", "measure_work", "wrongs"]

_WIDTH, _HEIGHT = 400, 300
_REACH = 240 - 16  # of red from the left to the right edge, of green from the top to the bottom
# Shares of the area at which the crops of a loader are held against those of RandomResizedCrop.
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was to be delivered. ``draws``, ``drops``: see ``task.Peer``."""

    num_samples: int
    image_size: int
    dtype: str
    draws: bool = False
    drops: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What was delivered, in numbers.

    ``labels``: how many different ones; ``label_sum``: their checksum; ``repeated``: how often one came again.
    ``kinds``: of image arrays, as text. ``areas``: quantiles of the crops' share of the picture; ``ratio``: mean of
    |log(width / height)|; ``flipped``: the share that is mirrored; ``mean_rgb``: of all pixels, in 0..255.
    """

    samples: int
    labels: int
    label_sum: int
    repeated: int
    kinds: tuple[str, ...]
    areas: tuple[float, ...]
    ratio: float
    flipped: float
    mean_rgb: tuple[float, ...]


def measure_work(batches: Iterable[Delivered]) -> Work:
    """Take all batches and say what came."""
    labels: list[int] = []
    kinds: set[str] = set()
    crops: list[Floats] = []
    means: list[Floats] = []
    for images, batch_labels in batches:
        labels += [int(label) for label in np.asarray(batch_labels).reshape(-1)]
        array = np.asarray(images)
        kinds.add(f"{array.dtype} {_shape(array)}")
        pixels = as_nhwc(array)
        means.append(pixels.mean(axis=(0, 1, 2)) * len(pixels))
        crops.append(_crops(pixels))
    wide, high = np.concatenate(crops).T if crops else (np.ones(1), np.ones(1))
    areas = np.abs(wide) * high
    return Work(
        samples=len(labels),
        labels=len(set(labels)),
        label_sum=sum(set(labels)),
        repeated=len(labels) - len(set(labels)),
        kinds=tuple(sorted(kinds)),
        areas=tuple(float(value) for value in np.quantile(areas, _QUANTILES)),
        ratio=float(np.mean(np.abs(np.log(_length(wide) * _WIDTH / (_length(high) * _HEIGHT))))),
        flipped=float(np.mean(wide < 0)),
        mean_rgb=tuple(float(value) for value in np.sum(means, axis=0) / max(len(labels), 1)) if means else (),
    )


def wrongs(work: Work, asked: Asked) -> list[str]:
    """Return what is wrong with the work; empty: it is what was asked for."""
    return [*_wrong_samples(work, asked), *_wrong_pixels(work, asked)]


def _wrong_samples(work: Work, asked: Asked) -> list[str]:
    found = []
    expected = asked.num_samples - asked.num_samples % BATCH_SIZE if asked.drops else asked.num_samples
    if work.samples != expected:
        found.append(f"{work.samples} samples came, not {expected}")
    if work.repeated and not asked.draws:
        found.append(f"{work.repeated} samples came more than once")
    whole = asked.num_samples * (asked.num_samples - 1) // 2
    if work.samples == asked.num_samples and not work.repeated and work.label_sum != whole:
        found.append(f"the labels add up to {work.label_sum}, not {whole}")
    if work.labels > asked.num_samples:
        found.append(f"{work.labels} different labels came of {asked.num_samples} samples")
    return found


def _wrong_pixels(work: Work, asked: Asked) -> list[str]:
    found = []
    size = asked.image_size
    right = {f"{asked.dtype} {size}x{size}x3", f"{asked.dtype} 3x{size}x{size}"}
    if len(work.kinds) != 1 or work.kinds[0] not in right:
        found.append(f"arrays are {', '.join(work.kinds) or 'none'}, not one of {', '.join(sorted(right))}")
        return found
    # Four standard errors of so many crops; 0.01 is what reading them off costs.
    loose = 4 / math.sqrt(max(work.samples, 1))
    areas, ratio = _expected_crops()
    for share, area, expected in zip(_QUANTILES, work.areas, areas, strict=True):
        if abs(area - expected) > 0.01 + 0.45 * loose:
            found.append(f"{share:.0%} of the crops are smaller than {area:.3f} of the picture, not {expected:.3f}")
    if abs(work.ratio - ratio) > 0.01 + 0.1 * loose:
        found.append(f"crops are off a square by {work.ratio:.3f} on average, not {ratio:.3f}")
    if abs(work.flipped - 0.5) > 0.5 * loose:
        found.append(f"{work.flipped:.0%} of the crops are mirrored, not half")
    expected_rgb = (128.0, 128.0, 119.5)
    if any(abs(mean - value) > 1.5 + 31 * loose for mean, value in zip(work.mean_rgb, expected_rgb, strict=True)):
        found.append(f"mean colour {[round(value, 1) for value in work.mean_rgb]}, not about {list(expected_rgb)}")
    return found


def as_nhwc(images: Any) -> Floats:
    """Return a batch of either kind and layout as float (b, h, w, 3) in 0..255."""
    array = np.asarray(images)
    if array.shape[-1] != 3:
        array = array.transpose(0, 2, 3, 1)
    if array.dtype == np.uint8:
        return array.astype(np.float64)
    pixels: Floats = (array.astype(np.float64) * np.array(STD) + np.array(MEAN)) * 255
    return pixels


def _length(sides: Floats) -> Floats:
    """Return how long sides are; what is no ruler at all may look as if it had no length, which has no logarithm."""
    return np.maximum(np.abs(sides), 1e-6)


def _shape(array: npt.NDArray[Any]) -> str:
    return "x".join(map(str, array.shape[1:]))


def _crops(pixels: Floats) -> Floats:
    """Return (b, 2): width and height of each crop as shares of the ruler, the width negative where mirrored."""
    red, green = pixels[..., 0].mean(axis=1), pixels[..., 1].mean(axis=2)
    return np.stack([_slopes(red), _slopes(green)], axis=1)


def _slopes(lines: Floats) -> Floats:
    """Return of each line by how much of the ruler's reach it rises over its whole length."""
    length = lines.shape[1]
    at = np.arange(length) - (length - 1) / 2
    rises: Floats = lines @ at / (at @ at) * length / _REACH
    return rises


def _expected_crops() -> tuple[Sequence[float], float]:
    random = np.random.Generator(np.random.PCG64(0))
    boxes = np.array([draw_box(random, width=_WIDTH, height=_HEIGHT) for _ in range(4000)])
    areas = boxes[:, 2] * boxes[:, 3] / (_WIDTH * _HEIGHT)
    ratio = float(np.mean(np.abs(np.log(boxes[:, 2] / boxes[:, 3]))))
    return [float(value) for value in np.quantile(areas, _QUANTILES)], ratio
