"""Out of memory, in words: which batch size would fit, worked out from what the step had when it failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from resnettrain.config import DataConfig
from resnettrain.errors import OutOfMemoryError

__all__ = ["fitting_batch", "memory_in_words"]

# Part of the memory is lost to fragments, to cuDNN's work spaces and to whoever else uses the device.
_USABLE = 0.9
_MULTIPLE = 8
# Weights, gradients, momentum, and the buckets of gradients on their way between ranks.
_COPIES = 4
# How others than torch's allocator say it, in a plain RuntimeError.
_MEMORY_WORDS = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "Cuda failure 2 'out of memory'")


def fitting_batch(batch_size: int, *, total_bytes: int, resting_bytes: int, wanted_bytes: int) -> int | None:
    """Return the largest batch of a rank that would fit, a multiple of 8 where it is above that; None: not even one.

    Args: resting_bytes: held between steps (weights, optimizer).  wanted_bytes: held and asked for when it failed. A
    step that fails early has asked for a part of what it needs only, so the true size may be smaller.
    """
    of_sample = max(1.0, (wanted_bytes - resting_bytes) / batch_size)
    fits = int((total_bytes * _USABLE - resting_bytes) / of_sample)
    fits = min(fits, batch_size - 1)
    if fits < 1:
        return None
    return fits if fits < _MULTIPLE else fits - fits % _MULTIPLE


@contextmanager
def memory_in_words(data: DataConfig, *, model: nn.Module) -> Iterator[None]:
    """Turn torch's error about the device's memory into one that says which batch size would fit.

    Raises: OutOfMemoryError.
    """
    try:
        yield
    except RuntimeError as error:
        # cuBLAS, NCCL and the driver ask for memory of their own, beside torch's allocator.
        if not isinstance(error, torch.OutOfMemoryError) and not any(word in str(error) for word in _MEMORY_WORDS):
            raise
        raise OutOfMemoryError(_in_words(data.batch_size, model=model, cause=str(error).partition("\n")[0])) from error


def _in_words(batch_size: int, *, model: nn.Module, cause: str) -> str:
    found = f"data.batch_size: a step of {batch_size} samples a rank does not fit into the device's memory ({cause})."
    device = next(model.parameters()).device
    if device.type != "cuda":
        return f"{found} Halve it."
    total_bytes = torch.cuda.get_device_properties(device).total_memory
    weights_bytes = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    fits = fitting_batch(
        batch_size,
        total_bytes=total_bytes,
        resting_bytes=_COPIES * weights_bytes,
        # It failed: whatever the peak says, more than all was wanted.
        wanted_bytes=max(total_bytes, torch.cuda.max_memory_allocated(device)),
    )
    if fits is None:
        return f"{found} Not one sample fits beside the weights: use smaller pictures or another model."
    return f"{found} {fits} would fit: --batch-size {fits}, or runtime.micro_batches to keep the batch."
