"""What is done to a batch of uint8 images on the device. Now: normalize; mixup, cutmix and erasing belong here."""

from __future__ import annotations

from collections import deque

from torch import Tensor

from wdsloader import normalize_images

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Normalizer", "normalize"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


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

    def __call__(self, images_NHWC: Tensor) -> Tensor:
        """Return what :func:`normalize` returns."""
        if images_NHWC.device.type != "cpu":
            return normalize(images_NHWC, channels_last=self._channels_last)
        out = self._results.popleft() if len(self._results) == 2 else None
        if out is not None and out.permute(0, 2, 3, 1).shape != images_NHWC.shape:
            out = None
        self._results.append(normalize(images_NHWC, channels_last=self._channels_last, out=out))
        return self._results[-1]
