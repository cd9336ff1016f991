"""What is done to a batch of images on the device: a policy on uint8, normalization, erasing, mixup and cutmix.

The parts are `policy.py` and `mixing.py`; nothing here waits for the device, and every draw has its key (`chance.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from resnettrain.config import AugmentConfig
from resnettrain.loss import Targets
from resnettrain.mixing import draw_erasing, draw_mix, erase, mix
from resnettrain.policy import apply_policy, draw_policy, on_device

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "DeviceAugment", "normalize"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAugment:
    """The augmentations of a run. Rows are counted over all ranks, so that ranks do not show in what is drawn."""

    config: AugmentConfig
    seed: int
    channels_last: bool
    rank: int = 0
    world_size: int = 1

    def __call__(
        self, images: Tensor, labels_N: Tensor, *, samples: int, part: int = 0, num_parts: int = 1
    ) -> tuple[Tensor, Targets]:
        """Return images ready for the model, and what they are to be called.

        Args: images: as `normalize` takes them.  samples: consumed before the batch, over all ranks.  part: which of
        `num_parts` micro-batches of this rank these rows are.
        """
        config, size, key = self.config, images.shape[2], (self.seed, samples)
        first, step = self.rank + self.world_size * part, self.world_size * num_parts
        if config.policy != "none":
            drawn = draw_policy(
                config, num_rows=len(images), size=size, key=(*key, "policy"), rank=first, world_size=step
            )
            images = apply_policy(images, drawn)
        images = normalize(images, channels_last=self.channels_last)
        if config.erasing > 0:
            boxes_N4 = draw_erasing(
                config.erasing, num_rows=len(images), size=size, key=(*key, "erasing"), rank=first, world_size=step
            )
            images = erase(images, on_device(torch.from_numpy(boxes_N4), images.device))
        return mix(images, labels_N, drawn=draw_mix(config, seed=self.seed, samples=samples, size=size))


def normalize(images: Tensor, *, channels_last: bool) -> Tensor:
    """Return float32 (N, C, H, W) images with ImageNet's mean 0 and deviation 1, on the device of the input.

    Equal to torchvision's ToTensor and Normalize to 1e-6.
    Args: images: uint8 (N, H, W, C); float ones are taken for normalized and returned as they are.  channels_last: keep
    NHWC in memory, which makes the turn of the axes free.
    """
    if images.is_floating_point():
        return images
    images_NHWC = images
    shift, scale = _shift_and_scale(images_NHWC.device)
    images_NCHW = images_NHWC.to(torch.float32).sub_(shift).mul_(scale).permute(0, 3, 1, 2)
    return images_NCHW if channels_last else images_NCHW.contiguous()


@cache
def _shift_and_scale(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return what is taken from a value in 0..255, and what the rest is multiplied by: float32 (3,) each."""
    # Once a device: to bring a number there waits for all the device has still to do. A first call from an evaluation
    # must not make tensors that are for inference alone.
    with torch.inference_mode(mode=False):
        shift = torch.tensor(IMAGENET_MEAN, device=device).mul_(255.0)
        return shift, torch.tensor(IMAGENET_STD, device=device).mul_(255.0).reciprocal_()
