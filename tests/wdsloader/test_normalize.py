"""Bytes to floats: torch's bits with the kernel and without, in both layouts, and into memory that is there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from wdsloader import ConfigError, normalize, normalize_images
from wdsloader.decode import HAS_KERNEL

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# 35 values a picture: shorter and longer than what is done at a time, and every value in every channel.
SIZES = [(1, 1, 1), (2, 5, 7), (3, 16, 16)]


def pictures(num: int, height: int, width: int) -> Tensor:
    return (torch.arange(num * height * width * 3) * 83 % 256).to(torch.uint8).reshape(num, height, width, 3)


def in_three_passes(images: Tensor) -> Tensor:
    shift, scale = torch.tensor(MEAN).mul_(255.0), torch.tensor(STD).mul_(255.0).reciprocal_()
    return images.to(torch.float32).sub_(shift).mul_(scale).permute(0, 3, 1, 2)


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", SIZES)
def test_the_bits_are_those_of_torch_in_three_passes(
    size: tuple[int, int, int], dtype: torch.dtype, channels_last: bool, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(normalize, "HAS_KERNEL", kernel and HAS_KERNEL)
    images = pictures(*size)
    result = normalize_images(images, mean=MEAN, std=STD, dtype=dtype, channels_last=channels_last)
    assert torch.equal(result, in_three_passes(images).to(dtype))
    assert (result.permute(0, 2, 3, 1) if channels_last else result).is_contiguous()


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_earlier_result_is_written_over(dtype: torch.dtype, channels_last: bool) -> None:
    how: dict[str, Any] = {"mean": MEAN, "std": STD, "dtype": dtype, "channels_last": channels_last}
    earlier = normalize_images(torch.zeros((2, 5, 7, 3), dtype=torch.uint8), **how)
    result = normalize_images(pictures(2, 5, 7), out=earlier, **how)
    assert result.data_ptr() == earlier.data_ptr()
    assert torch.equal(earlier, normalize_images(pictures(2, 5, 7), **how))


def test_images_that_are_not_contiguous_give_the_same() -> None:
    images = pictures(2, 6, 8)
    part = normalize_images(images[:, 1:5, 2:7], mean=MEAN, std=STD)
    assert torch.equal(part, normalize_images(images, mean=MEAN, std=STD)[:, :, 1:5, 2:7])


@pytest.mark.parametrize(
    ("images", "options", "reason"),
    [
        (torch.zeros((2, 5, 7, 3)), {}, "images are torch.float32"),
        (torch.zeros((2, 3, 5, 7), dtype=torch.uint8), {}, "images are torch.uint8 .2, 3, 5, 7."),
        (pictures(2, 5, 7), {"dtype": torch.float16}, "dtype is torch.float16"),
        (pictures(2, 5, 7), {"out": torch.zeros((2, 3, 5, 7))}, "out is no"),
        (pictures(2, 5, 7), {"out": torch.zeros((2, 3, 5, 8)), "channels_last": False}, "out is no"),
    ],
)
def test_other_forms_are_refused(images: Tensor, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        normalize_images(images, mean=MEAN, std=STD, **options)
