from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from tests.helpers.jpegs import photo
from tests.helpers.pictures import encode
from wdsloader.augment import Crop, centre_crop
from wdsloader.decode import Uint8s, decode_crop
from wdsloader.resize_torch import resized_crops

pytestmark = pytest.mark.usefixtures("one_thread")

DATA = encode(photo(197, 183), "JPEG", subsampling="4:2:0")


BOXES = [
    Crop(0, 0, 197, 183),
    Crop(3, 5, 40, 31),
    Crop(50, 60, 7, 9),
    Crop(11, 4, 30, 170, flip=True),
    Crop(196, 182, 1, 1),
    centre_crop(width=197, height=183),
    Crop(0.25, 10.7, 48.5, 24.1),
]


def by_the_kernel(crop: Crop, size: int) -> Uint8s:
    out = np.zeros((size, size, 3), np.uint8)
    decode_crop(DATA, lambda width, height: crop, out=out)
    return out


@pytest.mark.parametrize("size", [24, 64])
def test_crops_are_those_of_the_kernel_within_rounding(size: int) -> None:
    with Image.open(io.BytesIO(DATA)) as opened:
        picture = torch.from_numpy(np.array(opened)).permute(2, 0, 1)
    ours = resized_crops([picture] * len(BOXES), BOXES, size=size)
    assert (ours.dtype, ours.shape) == (torch.uint8, (len(BOXES), size, size, 3))
    for crop, pixels in zip(BOXES, ours.numpy(), strict=True):
        difference = np.abs(pixels.astype(int) - by_the_kernel(crop, size))
        assert difference.max() <= 1
        assert difference.mean() < 0.05


def test_a_crop_does_not_depend_on_what_is_resized_beside_it() -> None:
    with Image.open(io.BytesIO(DATA)) as opened:
        picture = torch.from_numpy(np.array(opened)).permute(2, 0, 1)
    together = resized_crops([picture] * len(BOXES), BOXES, size=24)
    for number, crop in enumerate(BOXES):
        assert torch.equal(resized_crops([picture], [crop], size=24)[0], together[number])
