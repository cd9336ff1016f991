"""What is done to a batch of images on the device: a policy on uint8, normalization, erasing, mixup and cutmix.

The parts are `policy.py` and `mixing.py`; nothing here waits for the device, and every draw has its key (`chance.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from resnettrain.config import AugmentConfig
from resnettrain.loss import Targets
from resnettrain.mixing import draw_erasing, draw_mix, erase, mix
from resnettrain.policy import apply_policy, draw_policy, on_device
from wdsloader import normalize_images

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "DeviceAugment", "Normalizer", "normalize"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAugment:
    """The augmentations of a run. Rows are counted over all ranks, so that ranks do not show in what is drawn."""

    config: AugmentConfig
    seed: int
    normalizer: Normalizer
    rank: int = 0
    world_size: int = 1

    def __call__(
        self, images: Tensor, labels_N: Tensor, *, samples: int, part: int = 0, num_parts: int = 1
    ) -> tuple[Tensor, Targets]:
        """Return images ready for the model, and what they are to be called.

        Args: images: as `Normalizer` takes them.  samples: consumed before the batch, over all ranks.  part: which of
        `num_parts` micro-batches of this rank these rows are.
        """
        config, size, key = self.config, images.shape[2], (self.seed, samples)
        first, step = self.rank + self.world_size * part, self.world_size * num_parts
        if config.policy != "none":
            drawn = draw_policy(
                config, num_rows=len(images), size=size, key=(*key, "policy"), rank=first, world_size=step
            )
            images = apply_policy(images, drawn)
        images = self.normalizer(images)
        if config.erasing > 0:
            boxes_N4 = draw_erasing(
                config.erasing, num_rows=len(images), size=size, key=(*key, "erasing"), rank=first, world_size=step
            )
            images = erase(images, on_device(torch.from_numpy(boxes_N4), images.device))
        return mix(images, labels_N, drawn=draw_mix(config, seed=self.seed, samples=samples, size=size))


def normalize(images_NHWC: Tensor, *, channels_last: bool, out: Tensor | None = None) -> Tensor:
    """Return float32 (N, C, H, W) images with ImageNet's mean 0 and deviation 1, on the device of the input.

    Equal to torchvision's ToTensor and Normalize to 1e-6.
    Args: images_NHWC: uint8.  channels_last: keep NHWC in memory.  out: an earlier result to write over.
    """
    return normalize_images(images_NHWC, mean=IMAGENET_MEAN, std=IMAGENET_STD, channels_last=channels_last, out=out)


class Normalizer:
    """Normalizes the batches of a loop. On the CPU a result is written over by the next call but one.

    New memory for each batch costs there, page by page, several times what the arithmetic does.
    """

    def __init__(self, *, channels_last: bool) -> None:
        self._channels_last = channels_last
        self._results: deque[Tensor] = deque()

    def __call__(self, images: Tensor) -> Tensor:
        """Return what :func:`normalize` returns; float images are taken for normalized and returned as they are."""
        if images.is_floating_point():
            return images
        if images.device.type != "cpu":
            return normalize(images, channels_last=self._channels_last)
        out = self._results.popleft() if len(self._results) == 2 else None
        if out is not None and out.permute(0, 2, 3, 1).shape != images.shape:
            out = None
        self._results.append(normalize(images, channels_last=self._channels_last, out=out))
        return self._results[-1]
