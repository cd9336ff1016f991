"""A batch of uint8 pictures on the host -> floats for a model, in one pass over the memory. Torch.

Where the kernel is not built, torch's operations give the same bits in three passes; on a device they are as quick.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from wdsloader.decode import HAS_KERNEL
from wdsloader.errors import ConfigError

if HAS_KERNEL:
    from wdsloader import _crop

__all__ = ["normalize_images"]

Triple = tuple[float, float, float]
_FLOATS = (torch.float32, torch.bfloat16)


def normalize_images(
    images_NHWC: Tensor,
    *,
    mean: Triple,
    std: Triple,
    channels_last: bool = True,
    dtype: torch.dtype = torch.float32,
    out: Tensor | None = None,
) -> Tensor:
    """Return the pictures as (N, 3, H, W) with the given mean and deviation of each channel taken out.

    (v / 255 - mean) / std, computed as (v - shift) * scale in float32 and then rounded to ``dtype``: the same bits with
    the kernel and without, and on any device.
    Args: images_NHWC: uint8. mean, std: of values from 0 to 1. channels_last: NHWC in memory. dtype: float32 or
        bfloat16. out: what an earlier call returned for a batch of this form, to be written again.
    Raises: ConfigError: images, ``dtype`` or ``out`` of another form.
    """
    _require_form(images_NHWC, dtype)
    num, height, width, _ = images_NHWC.shape
    if out is None:
        shape = (num, height, width, 3) if channels_last else (num, 3, height, width)
        memory = torch.empty(shape, dtype=dtype, device=images_NHWC.device)
    else:
        memory = out.permute(0, 2, 3, 1) if channels_last else out
        _require_fit(memory, images_NHWC, channels_last=channels_last, dtype=dtype)
    shift, scale = _shift_and_scale(mean, std)
    if HAS_KERNEL and images_NHWC.device.type == "cpu" and images_NHWC.is_contiguous():
        numbers = memory if dtype == torch.float32 else memory.view(torch.int16)
        _crop.normalize(images_NHWC.numpy(), numbers.numpy(), shift, scale, channels_last)
    else:
        _with_torch(images_NHWC, memory, shift=shift, scale=scale, channels_last=channels_last)
    return memory.permute(0, 3, 1, 2) if channels_last else memory


def _with_torch(images: Tensor, memory: Tensor, *, shift: Triple, scale: Triple, channels_last: bool) -> None:
    on_device = [_on_device(numbers, images.device) for numbers in (shift, scale)]
    floats = images.to(torch.float32).sub_(on_device[0]).mul_(on_device[1])
    memory.copy_(floats if channels_last else floats.permute(0, 3, 1, 2))


@cache
def _shift_and_scale(mean: Triple, std: Triple) -> tuple[Triple, Triple]:
    """Return what is taken from a value in 0..255, and what the rest is multiplied by: float32 numbers."""
    shift = np.float32(255) * np.asarray(mean, np.float32)
    scale = np.float32(1) / (np.float32(255) * np.asarray(std, np.float32))
    return _triple(shift), _triple(scale)


def _triple(numbers: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Triple:
    red, green, blue = (float(number) for number in numbers)
    return red, green, blue


@cache
def _on_device(numbers: Triple, device: torch.device) -> Tensor:
    # Once a device: to bring a number there waits for all the device has still to do. A first call from an evaluation
    # must not make tensors that are for inference alone.
    with torch.inference_mode(mode=False):
        return torch.tensor(numbers, dtype=torch.float32, device=device)


def _require_form(images: Tensor, dtype: torch.dtype) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise ConfigError(f"images are {images.dtype} {tuple(images.shape)}, not torch.uint8 (n, height, width, 3)")
    if dtype not in _FLOATS:
        raise ConfigError(f"dtype is {dtype}: give torch.float32 or torch.bfloat16")


def _require_fit(memory: Tensor, images: Tensor, *, channels_last: bool, dtype: torch.dtype) -> None:
    num, height, width, _ = images.shape
    shape = (num, height, width, 3) if channels_last else (num, 3, height, width)
    if (memory.shape, memory.dtype, memory.device) != (shape, dtype, images.device) or not memory.is_contiguous():
        raise ConfigError(f"out is no {dtype} {(num, 3, height, width)} with channels_last={channels_last}")
