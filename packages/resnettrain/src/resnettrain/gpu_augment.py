"""What is done to a batch of uint8 images on the device. Now: normalize; mixup, cutmix and erasing belong here."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "normalize"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def normalize(images_NHWC: Tensor, *, channels_last: bool) -> Tensor:
    """Return float32 (N, C, H, W) images with ImageNet's mean 0 and deviation 1, on the device of the input.

    Equal to torchvision's ToTensor and Normalize to 1e-6.
    Args: images_NHWC: uint8.  channels_last: keep NHWC in memory, which makes the turn of the axes free.
    """
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
