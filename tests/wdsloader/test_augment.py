from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wdsloader.augment import Crop, centre_crop, draw
from wdsloader.config import AugmentConfig


def draws(config: AugmentConfig, *, size: tuple[int, int], count: int = 2000) -> list[Crop]:
    width, height = size
    return [draw(config, seed=1, epoch=0, sample=number, width=width, height=height) for number in range(count)]


def test_a_draw_depends_on_seed_epoch_and_sample_alone() -> None:
    def one(seed: int, epoch: int, sample: int) -> Crop:
        return draw(AugmentConfig(), seed=seed, epoch=epoch, sample=sample, width=500, height=375)

    assert one(1, 2, 3) == one(1, 2, 3)
    assert len({one(seed, epoch, sample) for seed in (0, 1) for epoch in (0, 1) for sample in (0, 1)}) == 8


def test_draws_are_those_of_the_golden_list() -> None:
    assert draws(AugmentConfig(), size=(500, 375), count=3) == GOLDEN


def test_boxes_lie_inside_the_picture_and_keep_scale_and_ratio() -> None:
    config = AugmentConfig(scale=(0.2, 0.6), ratio=(0.5, 2.0))
    for crop in draws(config, size=(640, 480)):
        assert 0 <= crop.x <= 640 - crop.width
        assert 0 <= crop.y <= 480 - crop.height
        assert 0.19 < crop.width * crop.height / (640 * 480) < 0.61
        assert 0.49 < crop.width / crop.height < 2.02


def test_shares_of_the_area_are_uniform_and_half_of_the_crops_are_mirrored() -> None:
    crops = draws(AugmentConfig(scale=(0.1, 0.5)), size=(600, 600))
    shares = np.array([crop.width * crop.height / 360_000 for crop in crops])
    assert abs(shares.mean() - 0.3) < 0.01
    assert abs(np.mean([crop.flip for crop in crops]) - 0.5) < 0.05


def test_no_crop_is_mirrored_where_flipping_is_off() -> None:
    assert not any(crop.flip for crop in draws(AugmentConfig(flip=False), size=(50, 50), count=50))


def test_where_flips_alternate_each_sample_is_mirrored_every_second_epoch_and_half_of_them_in_the_first() -> None:
    config = AugmentConfig(alternating_flip=True)
    crops = [
        [draw(config, seed=1, epoch=epoch, sample=sample, width=50, height=50) for epoch in range(4)]
        for sample in range(200)
    ]
    flips = np.array([[crop.flip for crop in epochs] for epochs in crops])
    assert (flips[:, 1:] != flips[:, :-1]).all()
    assert abs(flips[:, 0].mean() - 0.5) < 0.1
    plain = [draw(AugmentConfig(), seed=1, epoch=0, sample=sample, width=50, height=50) for sample in range(200)]
    assert [replace(epochs[0], flip=False) for epochs in crops] == [replace(crop, flip=False) for crop in plain]


@pytest.mark.parametrize(
    ("size", "box"), [((1000, 10), (493, 0, 13, 10)), ((10, 1000), (0, 493, 10, 13)), ((1, 1), (0, 0, 1, 1))]
)
def test_a_picture_that_no_drawn_box_fits_gives_its_largest_central_box(
    size: tuple[int, int], box: tuple[int, int, int, int]
) -> None:
    config = AugmentConfig(scale=(1.0, 1.0), flip=False)
    assert {(c.x, c.y, c.width, c.height) for c in draws(config, size=size, count=5)} == {box}


def test_the_evaluation_crop_is_the_centre_of_the_short_side() -> None:
    assert centre_crop(width=512, height=256) == Crop(144, 16, 224, 224)
    assert centre_crop(width=300, height=400) == Crop(18.75, 68.75, 262.5, 262.5)


GOLDEN = [
    Crop(165, 94, 319, 259, flip=True),
    Crop(96, 0, 383, 374, flip=True),
    Crop(53, 2, 320, 358, flip=False),
]
