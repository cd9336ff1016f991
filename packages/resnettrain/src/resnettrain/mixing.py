"""Mixup and cutmix of a batch on the device, and random erasing. What is drawn is drawn on the host (`chance.py`).

Sources: Zhang et al. 2017 (mixup), Yun et al. 2019 (cutmix), Zhong et al. 2017 (random erasing), in the forms that
torchvision.transforms.v2 gives them: the partner of a row is the one before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from resnettrain.chance import beta, row_uniforms, uniforms
from resnettrain.config import AugmentConfig
from resnettrain.loss import Targets
from shardkit import Key

__all__ = ["Mix", "draw_erasing", "draw_mix", "erase", "mix"]

_ERASED_AREA = (0.02, 0.33)
_ERASED_RATIO = (0.3, 3.3)
_ERASING_TRIES = 10


@dataclass(frozen=True, slots=True)
class Mix:
    """How the rows of a batch are mixed. `share`: of the row itself. `box` (top, bottom, left, right) is cutmix's."""

    share: float
    box: tuple[int, int, int, int] | None = None


def draw_mix(config: AugmentConfig, *, seed: int, samples: int, size: int) -> Mix | None:
    """Return how the batch that begins after `samples` consumed samples is mixed; None: not at all.

    Args: size: height and width in pixels.
    """
    if config.mixup == 0 and config.cutmix == 0:
        return None
    key: Key = (seed, samples, "mix")
    choice, x, y = uniforms(3, key=key)
    both = config.mixup > 0 and config.cutmix > 0
    is_cutmix = choice < 0.5 if both else config.cutmix > 0
    share = beta(config.cutmix if is_cutmix else config.mixup, key=(*key, "share"))
    if not is_cutmix:
        return Mix(share)
    row, column = int(y * size), int(x * size)
    half = int(0.5 * math.sqrt(1 - share) * size)
    top, bottom = max(row - half, 0), min(row + half, size)
    left, right = max(column - half, 0), min(column + half, size)
    # The box is cut off at the edges, and the share is of what is left of it.
    return Mix(1 - (bottom - top) * (right - left) / size**2, (top, bottom, left, right))


def mix(images_NCHW: Tensor, labels_N: Tensor, *, drawn: Mix | None) -> tuple[Tensor, Targets]:
    """Return the mixed images and what they are to be called. A batch of one row is mixed with itself."""
    if drawn is None:
        return images_NCHW, Targets(labels_N)
    partners_NCHW, targets = images_NCHW.roll(1, dims=0), Targets(labels_N, labels_N.roll(1), drawn.share)
    if drawn.box is None:
        return images_NCHW.mul(drawn.share).add_(partners_NCHW.mul_(1 - drawn.share)), targets
    top, bottom, left, right = drawn.box
    mixed_NCHW = images_NCHW.clone()
    mixed_NCHW[..., top:bottom, left:right] = partners_NCHW[..., top:bottom, left:right]
    return mixed_NCHW, targets


def draw_erasing(
    probability: float, *, num_rows: int, size: int, key: Key, rank: int = 0, world_size: int = 1
) -> npt.NDArray[np.int64]:
    """Return the box erased from every row: int64 (num_rows, 4), top, bottom, left, right; empty where nothing is."""
    drawn = row_uniforms(num_rows, 3 + 2 * _ERASING_TRIES, key=key, rank=rank, world_size=world_size)
    areas = size**2 * (_ERASED_AREA[0] + (_ERASED_AREA[1] - _ERASED_AREA[0]) * drawn[:, 3::2])
    low, high = map(math.log, _ERASED_RATIO)
    ratios = np.exp(low + (high - low) * drawn[:, 4::2])
    heights, widths = (np.rint(np.sqrt(sides)).astype(np.int64) for sides in (areas * ratios, areas / ratios))
    fits = (heights < size) & (widths < size)
    first = fits.argmax(axis=1)[:, None]
    height, width = (np.take_along_axis(sides, first, axis=1)[:, 0] for sides in (heights, widths))
    top, left = ((drawn[:, i] * (size - side + 1)).astype(np.int64) for i, side in ((1, height), (2, width)))
    boxes = np.stack([top, top + height, left, left + width], axis=1)
    boxes[(drawn[:, 0] >= probability) | ~fits.any(axis=1)] = 0
    return boxes


def erase(images_NCHW: Tensor, boxes_N4: Tensor) -> Tensor:
    """Return the images with 0, the mean colour after normalization, in the box of every row."""
    top, bottom, left, right = boxes_N4.view(-1, 4, 1, 1, 1).unbind(dim=1)
    rows = torch.arange(images_NCHW.shape[2], device=images_NCHW.device).view(-1, 1)
    columns = torch.arange(images_NCHW.shape[3], device=images_NCHW.device).view(1, -1)
    inside = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
    return images_NCHW.masked_fill(inside, 0.0)
