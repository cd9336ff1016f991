from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from resnettrain import AugmentConfig
from resnettrain.mixing import Mix, draw_erasing, draw_mix, erase, mix

SIZE = 24


def pictures(count: int = 6) -> Tensor:
    return torch.rand(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


LABELS = torch.arange(6)


def test_without_a_setting_nothing_is_mixed() -> None:
    assert draw_mix(AugmentConfig(), seed=0, samples=0, size=SIZE) is None
    images, targets = mix(pictures(), LABELS, drawn=None)
    assert torch.equal(images, pictures())
    assert targets.others is None


def test_mixup_is_torchvisions_for_the_same_share() -> None:
    drawn = Mix(0.3)
    images, targets = mix(pictures(), LABELS, drawn=drawn)
    theirs = v2.MixUp(num_classes=6)
    params = {"lam": 0.3, "labels": LABELS, "batch_size": 6}
    torch.testing.assert_close(images, theirs.transform(pictures(), params))
    assert targets.others is not None
    soft = targets.share * torch.eye(6)[targets.labels] + (1 - targets.share) * torch.eye(6)[targets.others]
    torch.testing.assert_close(soft, theirs.transform(LABELS, params))


def test_cutmix_is_torchvisions_for_the_same_box() -> None:
    top, bottom, left, right = 3, 11, 0, 7
    share = 1 - (bottom - top) * (right - left) / SIZE**2
    images, targets = mix(pictures(), LABELS, drawn=Mix(share, (top, bottom, left, right)))
    params = {"box": (left, top, right, bottom), "lam_adjusted": share, "labels": LABELS, "batch_size": 6}
    assert torch.equal(images, v2.CutMix(num_classes=6).transform(pictures(), params))
    assert targets.share == share


def test_a_share_of_cutmix_is_the_share_of_pixels_that_stay() -> None:
    for samples in range(300):
        drawn = draw_mix(AugmentConfig(cutmix=1.0), seed=0, samples=samples, size=SIZE)
        assert drawn is not None
        images, targets = mix(pictures(), LABELS, drawn=drawn)
        assert (images == pictures()).float().mean().item() == pytest.approx(targets.share, abs=1e-6)


def test_of_both_each_is_drawn_half_of_the_time_and_the_same_batch_gets_the_same() -> None:
    config = AugmentConfig(mixup=0.2, cutmix=1.0)
    drawn = [draw_mix(config, seed=7, samples=samples, size=SIZE) for samples in range(0, 40000, 100)]
    boxes = sum(each is not None and each.box is not None for each in drawn)
    assert 160 < boxes < 240
    assert drawn[3] == draw_mix(config, seed=7, samples=300, size=SIZE)
    assert drawn[3] != draw_mix(config, seed=8, samples=300, size=SIZE)


def test_the_given_pictures_stay_as_they_are() -> None:
    given = pictures()
    mix(given, LABELS, drawn=Mix(0.3))
    mix(given, LABELS, drawn=Mix(0.5, (0, 12, 0, 24)))
    erase(given, torch.tensor([[0, 12, 0, 24]] * 6))
    assert torch.equal(given, pictures())


def test_exactly_the_boxes_are_erased() -> None:
    boxes = torch.tensor([[0, 0, 0, 0], [2, 5, 3, 9], [0, 24, 0, 24], [0, 0, 0, 0], [23, 24, 0, 1], [0, 0, 0, 0]])
    expected = pictures()
    for image, (top, bottom, left, right) in zip(expected, boxes.tolist(), strict=True):
        image[:, top:bottom, left:right] = 0.0
    assert torch.equal(erase(pictures(), boxes), expected)


def test_as_many_rows_are_erased_as_the_probability_says_and_boxes_are_torchvisions() -> None:
    boxes = draw_erasing(0.25, num_rows=8000, size=SIZE, key=(0, "erasing"))
    erased = boxes[boxes[:, 1] > boxes[:, 0]]
    assert len(erased) == pytest.approx(2000, abs=200)
    heights, widths = erased[:, 1] - erased[:, 0], erased[:, 3] - erased[:, 2]
    areas, ratios = heights * widths / SIZE**2, heights / widths
    assert np.min(boxes) >= 0
    assert np.max(boxes) <= SIZE
    # Of rounding to whole pixels, half a pixel on each side.
    assert np.min(areas) > 0.01
    assert np.max(areas) < 0.36
    assert np.min(ratios) > 0.2
    assert np.max(ratios) < 5
    assert np.median(areas) == pytest.approx(0.175, abs=0.02)


def test_ranks_erase_the_rows_that_one_process_would() -> None:
    whole = draw_erasing(0.5, num_rows=8, size=SIZE, key=(3, "erasing"))
    parts = [draw_erasing(0.5, num_rows=4, size=SIZE, key=(3, "erasing"), rank=r, world_size=2) for r in (0, 1)]
    assert np.array_equal(whole[0::2], parts[0])
    assert np.array_equal(whole[1::2], parts[1])
