from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from resnettrain import AugmentConfig
from resnettrain.policy import OPERATIONS, Drawn, apply_policy, draw_policy

# torchvision's names, in the order of ours.
NAMES = list(v2.TrivialAugmentWide._AUGMENTATION_SPACE)  # noqa: SLF001  # its only list of them
SIZE = 37
STRENGTHS = {
    "ShearX": (0.5, -0.99), "ShearY": (0.21, -0.66), "TranslateX": (7.7, -30.0), "TranslateY": (16.2, -3.0),
    "Rotate": (33.0, -135.0), "Brightness": (0.4, -0.99), "Color": (0.7, -0.4), "Contrast": (0.9, -0.5),
    "Sharpness": (0.99, -0.8), "Posterize": (2.0, 6.0), "Solarize": (100.0, 255.0),
}  # fmt: skip
GEOMETRIC = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")


def pictures() -> Tensor:
    """Noise, a ramp, one colour, and a dark picture of few values: uint8 (4, SIZE, SIZE, 3)."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (SIZE, SIZE, 3), dtype=torch.uint8, generator=generator)
    ramp = torch.arange(SIZE * SIZE * 3).view(SIZE, SIZE, 3).mul(255).div(SIZE * SIZE * 3).to(torch.uint8)
    dark = torch.randint(3, 40, (SIZE, SIZE, 3), dtype=torch.uint8, generator=generator)
    return torch.stack([noise, ramp, torch.full_like(noise, 77), dark])


def theirs(image_HWC: Tensor, name: str, strength: float) -> Tensor:
    magnitude = {"Posterize": 8 - strength, "Solarize": 1 - strength / 255}.get(name, strength)
    policy = v2.TrivialAugmentWide()
    changed: Tensor = policy._apply_image_or_video_transform(  # noqa: SLF001  # one operation of a chosen strength
        image_HWC.permute(2, 0, 1),
        name,
        magnitude,
        interpolation=policy.interpolation,
        fill=policy._fill,  # noqa: SLF001
    )
    return changed.permute(1, 2, 0)


def ours(images: Tensor, name: str, strength: float) -> Tensor:
    count = len(images)
    return apply_policy(images, [Drawn(np.full(count, NAMES.index(name)), np.full(count, strength, dtype=np.float32))])


def test_the_operations_are_torchvisions_in_its_order() -> None:
    assert len(OPERATIONS) == len(NAMES)
    assert list(v2.RandAugment._AUGMENTATION_SPACE) == NAMES  # noqa: SLF001
    assert [name for name, operation in zip(NAMES, OPERATIONS, strict=True) if operation is None] == ["Identity"]


@pytest.mark.parametrize("strength_number", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_what_torchvision_makes_of_it(name: str, strength_number: int) -> None:
    strength = STRENGTHS.get(name, (0.0, 0.0))[strength_number]
    given = pictures()
    changed = ours(given, name, strength)
    assert torch.equal(given, pictures())
    for image, own in zip(given, changed, strict=True):
        expected = theirs(image, name, strength)
        if name in GEOMETRIC:
            # A point in the middle between two pixels belongs to either.
            assert (own == expected).float().mean() > 0.985
        else:
            # Sums of the same numbers in another order, rounded down.
            assert (own.int() - expected.int()).abs().max() <= 1
            assert (own == expected).float().mean() > 0.97


@pytest.mark.parametrize("policy", ["trivial", "rand"])
def test_strengths_are_those_that_torchvision_draws_from(policy: str) -> None:
    config = AugmentConfig(policy=policy, rand_magnitude=0.3)  # type: ignore[arg-type]
    space = {"trivial": v2.TrivialAugmentWide, "rand": v2.RandAugment}[policy]._AUGMENTATION_SPACE  # noqa: SLF001
    drawn = draw_policy(config, num_rows=20000, size=SIZE, key=(0, "policy"))
    assert len(drawn) == (1 if policy == "trivial" else 2)
    for number, name in enumerate(NAMES):
        strengths = drawn[0].strengths[drawn[0].operations == number]
        assert len(strengths) == pytest.approx(20000 / 14, rel=0.15)
        magnitudes, signed = space[name][0](31, SIZE, SIZE), space[name][1]
        if magnitudes is None:
            continue
        allowed = magnitudes.double() if policy == "trivial" else magnitudes[9:10].double()
        allowed = {"Posterize": 8 - allowed, "Solarize": 255 * (1 - allowed)}.get(name, allowed)
        found = np.unique(np.abs(strengths.astype(np.float64)))
        if name == "Posterize":
            found = np.unique(np.round(found))
        np.testing.assert_allclose(found, np.unique(np.abs(allowed.numpy())), atol=1e-4)
        assert bool((strengths < 0).any()) == signed
    shares = [float((drawn[0].strengths[drawn[0].operations == number] < 0).mean()) for number in (1, 5, 9)]
    assert all(math.isclose(share, 0.5, abs_tol=0.06) for share in shares)


def test_ranks_draw_for_their_rows_what_one_process_would() -> None:
    config = AugmentConfig(policy="trivial")
    whole = draw_policy(config, num_rows=8, size=SIZE, key=(5, "policy"))[0]
    for rank in (0, 1):
        part = draw_policy(config, num_rows=4, size=SIZE, key=(5, "policy"), rank=rank, world_size=2)[0]
        assert np.array_equal(part.operations, whole.operations[rank::2])
        assert np.array_equal(part.strengths, whole.strengths[rank::2])


def test_two_operations_follow_one_another() -> None:
    rows = len(pictures())
    both = [
        Drawn(np.full(rows, NAMES.index(name)), np.full(rows, 2.0, np.float32)) for name in ("Posterize", "Equalize")
    ]
    assert torch.equal(apply_policy(pictures(), both), ours(ours(pictures(), "Posterize", 2.0), "Equalize", 2.0))
