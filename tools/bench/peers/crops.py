"""The crops that the loaders on torch make, as their documentation shows and tuned: shared by several of them.

As documented: Pillow decodes, the result is float32 and normalized. Tuned: torchvision decodes, all stays uint8 and
the antialiased resize is torchvision's native one. DataLoader's workers run torch with one thread each.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.peers.task import MEAN, STD, Task

__all__ = ["CropBytes", "CropPicture", "as_tensor", "crop_of", "read_tensor"]


def crop_of(task: Task) -> Callable[[bytes], Any]:
    """Return what makes an image of the task's kind from the bytes of a JPEG."""
    return CropBytes(task.image_size) if task.dtype == "uint8" else CropPicture(task.image_size)


class CropPicture:
    """JPEG bytes or a Pillow picture -> float32 (3, size, size), normalized."""

    def __init__(self, image_size: int) -> None:
        from torchvision import transforms

        steps = [transforms.RandomResizedCrop(image_size), transforms.RandomHorizontalFlip()]
        steps += [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        self.transform = transforms.Compose(steps)

    def __call__(self, jpeg: bytes) -> Any:
        from PIL import Image

        return self.transform(Image.open(io.BytesIO(jpeg)).convert("RGB"))


class CropBytes:
    """JPEG bytes -> uint8 (3, size, size)."""

    def __init__(self, image_size: int) -> None:
        from torchvision.transforms import v2

        self.transform = v2.Compose([v2.RandomResizedCrop(image_size, antialias=True), v2.RandomHorizontalFlip()])

    def __call__(self, jpeg: bytes) -> Any:
        return self.transform(as_tensor(jpeg))


def as_tensor(jpeg: bytes) -> Any:
    """Decode with torchvision: uint8 (3, height, width), RGB."""
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    return decode_jpeg(torch.frombuffer(bytearray(jpeg), dtype=torch.uint8), mode=ImageReadMode.RGB)


def read_tensor(path: str) -> Any:
    """Read and decode one file: a loader for torchvision's ImageFolder."""
    return as_tensor(Path(path).read_bytes())
