from __future__ import annotations

import pytest
import torch
from torchvision import transforms

from resnettrain.gpu_augment import IMAGENET_MEAN, IMAGENET_STD, normalize
from tests.helpers.syncs import waiting_is_an_error


@pytest.mark.parametrize("channels_last", [False, True])
def test_normalize_equals_to_tensor_and_normalize_of_torchvision(channels_last: bool) -> None:
    images = torch.randint(0, 256, (2, 5, 7, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    reference = transforms.Compose([transforms.ToTensor(), transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)])
    expected = torch.stack([reference(image.numpy()) for image in images])
    torch.testing.assert_close(normalize(images, channels_last=channels_last), expected, atol=1e-6, rtol=1e-6)


def test_memory_format_is_the_one_asked_for() -> None:
    images = torch.zeros((2, 5, 7, 3), dtype=torch.uint8)
    assert normalize(images, channels_last=False).is_contiguous()
    assert normalize(images, channels_last=True).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.cuda
def test_normalize_does_not_wait_for_the_device() -> None:
    images = torch.zeros((2, 5, 7, 3), dtype=torch.uint8, device="cuda")
    normalize(images, channels_last=True)
    with waiting_is_an_error():
        normalize(images, channels_last=True)
