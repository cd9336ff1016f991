"""Boxes of pictures -> squares of one size, on their device: antialiased and rounded as the crop kernel does it.

torch's own resizing takes no box in fractions of pixels, as evaluation has them, and rounds once at the end. Here the
filters of all pictures are made at once, and each picture is two products of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from wdsloader.augment import Crop

__all__ = ["resized_crops"]


def resized_crops(pictures: Sequence[Tensor], crops: Sequence[Crop], *, size: int) -> Tensor:
    """Return the crops, uint8 (n, size, size, 3), on the device of the pictures.

    Args: pictures: n of uint8 (3, height, width), each with its crop inside.
    Source: Pillow's Resample.c, bilinear; sums in float32 there, so that a value may differ by 1.
    """
    device = pictures[0].device
    spans_x = [(crop.x, crop.width, crop.flip) for crop in crops]
    spans_y = [(crop.y, crop.height, False) for crop in crops]
    across, down = (_filters(spans, size=size, device=device) for spans in (spans_x, spans_y))
    sums = torch.empty((len(crops), 3, size, size), dtype=torch.float32, device=device)
    for number, (picture, crop) in enumerate(zip(pictures, crops, strict=True)):
        left, right = _whole_pixels(crop.x, crop.width)
        top, bottom = _whole_pixels(crop.y, crop.height)
        box = picture[:, top:bottom, left:right].to(torch.float32)
        # Whole numbers below 256 again: also TF32 holds them.
        wide = _round(box @ across[number, :, : right - left].T)
        torch.matmul(down[number, :, : bottom - top], wide, out=sums[number])
    return _round(sums).clamp_(0, 255).to(torch.uint8).permute(0, 2, 3, 1)


def _filters(spans: Sequence[tuple[float, float, bool]], *, size: int, device: torch.device) -> Tensor:
    """Return the share of each pixel in each output, float32 (n, size, the most pixels of a span); behind its end 0.

    Args: spans: where it begins and how long it is, in pixels, and whether the outputs are counted from its end.
    """
    whole = [_whole_pixels(start, length) for start, length, _ in spans]
    counts = torch.tensor([end - begin for begin, end in whole], device=device)
    numbers = torch.tensor(
        [
            (start - begin, length / size, float(flip))
            for (start, length, flip), (begin, _) in zip(spans, whole, strict=True)
        ],
        device=device,
    )
    first, scale, flip = (column[:, None] for column in numbers.unbind(1))
    outputs = torch.arange(size, device=device, dtype=torch.float32)[None]
    outputs = torch.where(flip > 0, size - 1 - outputs, outputs)
    centres = first + (outputs + 0.5) * scale
    pixels = torch.arange(max(end - begin for begin, end in whole), device=device)
    distances = (pixels + 0.5 - centres[:, :, None]).abs_()
    shares = distances.div_(scale.clamp(min=1)[:, :, None]).neg_().add_(1).clamp_(min=0)
    shares.mul_(pixels < counts[:, None, None])
    return shares.div_(shares.sum(2, keepdim=True))


def _whole_pixels(start: float, length: float) -> tuple[int, int]:
    """Return the pixels that a span touches: the first, and the one behind the last."""
    return math.floor(start), math.ceil(start + length)


def _round(values: Tensor) -> Tensor:
    """Round to whole numbers in place, halves up, as Pillow does."""
    return values.add_(0.5).floor_()
