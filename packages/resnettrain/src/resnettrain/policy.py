"""TrivialAugment and RandAugment of uint8 batches on the device: every operation once, for all rows that drew it.

Sources: Müller and Hutter 2021 (TrivialAugment), Cubuk et al. 2019 (RandAugment); operations, strengths and rounding of
torchvision.transforms.v2 (`TrivialAugmentWide`, `RandAugment`, nearest neighbour, filled with black), which the tests
compare with picture by picture. Rows are chosen on the host, so that no step waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from resnettrain.chance import row_uniforms
from resnettrain.config import AugmentConfig
from shardkit import Key

__all__ = ["OPERATIONS", "Drawn", "apply_policy", "draw_policy", "on_device"]

# The strengths of TrivialAugment are the ends of 31 equal steps from 0.
_BINS = 31
_SHEAR_X, _SHEAR_Y, _SHIFT_X, _SHIFT_Y, _ROTATE = range(1, 6)
_POSTERIZE, _SOLARIZE = 10, 11
# The strongest of each, as torchvision's two policies have it; a share of the side for RandAugment's shifts.
_STRONGEST = {
    "trivial": (0.0, 0.99, 0.99, 32.0, 32.0, 135.0, 0.99, 0.99, 0.99, 0.99, 6.0, 255.0, 0.0, 0.0),
    "rand": (0.0, 0.3, 0.3, 150 / 331, 150 / 331, 30.0, 0.9, 0.9, 0.9, 0.9, 4.0, 255.0, 0.0, 0.0),
}
_GREY = (0.2989, 0.587, 0.114)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One operation for every row: its place in `OPERATIONS`, int64 (N,), and its strength with sign, float32 (N,)."""

    operations: npt.NDArray[np.int64]
    strengths: npt.NDArray[np.float32]


def draw_policy(
    config: AugmentConfig, *, num_rows: int, size: int, key: Key, rank: int = 0, world_size: int = 1
) -> list[Drawn]:
    """Return what the policy of the settings does to every row, in the order of doing it. Args: size: in pixels."""
    rounds = config.rand_ops if config.policy == "rand" else 1
    drawn = row_uniforms(num_rows, 3 * rounds, key=key, rank=rank, world_size=world_size)
    strongest = np.array(_STRONGEST[config.policy])
    if config.policy == "rand":
        strongest[[_SHIFT_X, _SHIFT_Y]] *= size
    made = []
    for i in range(rounds):
        choice, strength, sign = drawn[:, 3 * i], drawn[:, 3 * i + 1], drawn[:, 3 * i + 2]
        operations = (choice * len(OPERATIONS)).astype(np.int64)
        share = np.floor(strength * _BINS) / (_BINS - 1) if config.policy == "trivial" else config.rand_magnitude
        signs = np.where((sign < 0.5) & (operations < _POSTERIZE), -1.0, 1.0)
        made.append(Drawn(operations, (strongest[operations] * share * signs).astype(np.float32)))
    return made


def apply_policy(images_NHWC: Tensor, drawn: list[Drawn]) -> Tensor:
    """Return the images as drawn; the given ones are left as they are. Args: images_NHWC: uint8."""
    for each in drawn:
        images_NHWC = _apply(images_NHWC, each)
    return images_NHWC


def _apply(images_NHWC: Tensor, drawn: Drawn) -> Tensor:
    changed_NHWC, device = images_NHWC.clone(), images_NHWC.device
    for number, operation in enumerate(OPERATIONS):
        rows = np.flatnonzero(drawn.operations == number)
        if operation is None or not len(rows):
            continue
        rows_n = on_device(torch.from_numpy(rows), device)
        strengths_n = on_device(torch.from_numpy(drawn.strengths[rows]), device)
        images_nCHW = images_NHWC.index_select(0, rows_n).permute(0, 3, 1, 2)
        changed_nCHW = operation(images_nCHW, strengths_n.view(-1, 1, 1, 1))
        changed_NHWC.index_copy_(0, rows_n, changed_nCHW.permute(0, 2, 3, 1))
    return changed_NHWC


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a small host tensor on the device, without a wait."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def _moved(images: Tensor, matrices_n23: Tensor) -> Tensor:
    """Return the images with each pixel taken from where its matrix, about the centre of the image, says.

    Args: matrices_n23: from the middle of a pixel of the result to a point of the image, in pixels.
    """
    height, width = images.shape[2:]
    y = torch.arange(height, device=images.device, dtype=torch.float32).view(1, -1, 1) + 0.5 - height / 2
    x = torch.arange(width, device=images.device, dtype=torch.float32).view(1, 1, -1) + 0.5 - width / 2
    a, b, c, d, e, f = matrices_n23.view(-1, 6, 1, 1).unbind(dim=1)
    # A point belongs to the pixel whose middle is nearest, an even one of two: what grid_sample does.
    columns = (a * x + b * y + c + width / 2 - 0.5).round().long()
    rows = (d * x + e * y + f + height / 2 - 0.5).round().long()
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    places = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
    taken = images.flatten(2).gather(2, places.flatten(1).unsqueeze(1).expand(-1, images.shape[1], -1))
    return taken.view_as(images.contiguous()).masked_fill(~inside.unsqueeze(1), 0)


def _matrix(strengths: Tensor, entries: Callable[[Tensor], tuple[Tensor | float, ...]]) -> Tensor:
    flat = strengths.view(-1)
    # A number is filled in on the device: as a tensor of the host it would be copied, and the host wait for that.
    return torch.stack([e if isinstance(e, Tensor) else torch.full_like(flat, e) for e in entries(flat)], dim=1)


def _shear_x(images: Tensor, strengths: Tensor) -> Tensor:
    # About the top left corner, as torchvision does it: the shift is what that is about the centre.
    half = images.shape[2] / 2
    return _moved(images, _matrix(strengths, lambda s: (1.0, s, s * half, 0.0, 1.0, 0.0)))


def _shear_y(images: Tensor, strengths: Tensor) -> Tensor:
    half = images.shape[3] / 2
    return _moved(images, _matrix(strengths, lambda s: (1.0, 0.0, 0.0, s, 1.0, s * half)))


def _shift_x(images: Tensor, strengths: Tensor) -> Tensor:
    return _moved(images, _matrix(strengths, lambda s: (1.0, 0.0, -s.trunc(), 0.0, 1.0, 0.0)))


def _shift_y(images: Tensor, strengths: Tensor) -> Tensor:
    return _moved(images, _matrix(strengths, lambda s: (1.0, 0.0, 0.0, 0.0, 1.0, -s.trunc())))


def _rotate(images: Tensor, strengths: Tensor) -> Tensor:
    def turned(degrees: Tensor) -> tuple[Tensor | float, ...]:
        cosine, sine = torch.cos(degrees * (math.pi / 180)), torch.sin(degrees * (math.pi / 180))
        return cosine, -sine, 0.0, sine, cosine, 0.0

    return _moved(images, _matrix(strengths, turned))


def _blend(images: Tensor, strengths: Tensor, *, others: Tensor | float) -> Tensor:
    """Return images x (1 + strength) - others x strength, cut to 0..255 and rounded down."""
    ratios = 1.0 + strengths
    return images.mul(ratios).add_((1.0 - ratios) * others).clamp_(0, 255).to(torch.uint8)


def _brightness(images: Tensor, strengths: Tensor) -> Tensor:
    return _blend(images, strengths, others=0.0)


def _grey(images: Tensor) -> Tensor:
    red, green, blue = images.to(torch.float32).unbind(dim=1)
    return (red * _GREY[0]).add_(green, alpha=_GREY[1]).add_(blue, alpha=_GREY[2]).floor_().unsqueeze(1)


def _color(images: Tensor, strengths: Tensor) -> Tensor:
    return _blend(images, strengths, others=_grey(images))


def _contrast(images: Tensor, strengths: Tensor) -> Tensor:
    return _blend(images, strengths, others=_grey(images).mean(dim=(1, 2, 3), keepdim=True))


def _sharpness(images: Tensor, strengths: Tensor) -> Tensor:
    channels = images.shape[1]
    kernel = torch.ones(3, 3, device=images.device)
    kernel.diagonal()[1:2].fill_(5.0)
    whole = images.to(torch.float32)
    blurred = functional.conv2d(whole, (kernel / 13.0).expand(channels, 1, 3, 3), groups=channels).round_()
    # The outermost pixels have no neighbours on one side, and stay.
    inner = whole[..., 1:-1, 1:-1]
    inner.sub_((blurred - inner) * strengths)
    return whole.clamp_(0, 255).to(torch.uint8)


def _posterize(images: Tensor, strengths: Tensor) -> Tensor:
    # The strength is the number of bits that are lost.
    return images & (255 << strengths.round().to(torch.int32)).to(torch.uint8)


def _solarize(images: Tensor, strengths: Tensor) -> Tensor:
    return torch.where(images >= 255.0 - strengths, 255 - images, images)


def _autocontrast(images: Tensor, _: Tensor) -> Tensor:
    low, high = (edge.to(torch.float32) for edge in (images.amin((2, 3), True), images.amax((2, 3), True)))
    flat = low == high
    scale = torch.where(flat, 1.0, (high - low) * (1.0 / 255.0))
    return images.sub(torch.where(flat, 0.0, low)).div_(scale).clamp_(0, 255).to(torch.uint8)


def _equalize(images: Tensor, _: Tensor) -> Tensor:
    values = images.flatten(2).flatten(0, 1).long()
    counts = torch.zeros(len(values), 256, dtype=torch.long, device=images.device)
    counts.scatter_add_(1, values, torch.ones_like(values))
    sums = counts.cumsum(dim=1)
    of_brightest = counts.gather(1, values.amax(dim=1, keepdim=True))
    step = (values.shape[1] - of_brightest) // 255
    table = ((sums - counts + step // 2) // step.clamp(min=1)).clamp_(max=255)
    changed = torch.where(step == 0, values, table.gather(1, values))
    return changed.view_as(images.contiguous()).to(torch.uint8)


# In torchvision's order; None leaves a picture as it is. Those before `_posterize` have a sign.
OPERATIONS: tuple[Callable[[Tensor, Tensor], Tensor] | None, ...] = (
    None, _shear_x, _shear_y, _shift_x, _shift_y, _rotate, _brightness, _color, _contrast, _sharpness, _posterize,
    _solarize, _autocontrast, _equalize,
)  # fmt: skip
