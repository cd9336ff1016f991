from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from resnettrain import LossConfig
from resnettrain.loss import Targets, row_losses

LOGITS = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
LABELS, OTHERS = torch.tensor([0, 1, 2, 3, 0]), torch.tensor([1, 1, 3, 0, 2])


def shares(share: float, smoothing: float) -> torch.Tensor:
    mixed = share * functional.one_hot(LABELS, 4) + (1 - share) * functional.one_hot(OTHERS, 4)
    return mixed * (1 - smoothing) + smoothing / 4


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_a_mixed_label_is_that_of_its_shares(smoothing: float) -> None:
    config = LossConfig(label_smoothing=smoothing)
    losses = row_losses(LOGITS, Targets(LABELS, OTHERS, 0.3), config=config)
    torch.testing.assert_close(losses, functional.cross_entropy(LOGITS, shares(0.3, smoothing), reduction="none"))
    whole = functional.cross_entropy(LOGITS, LABELS, reduction="none", label_smoothing=smoothing)
    assert torch.equal(row_losses(LOGITS, Targets(LABELS), config=config), whole)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_binary_cross_entropy_asks_of_every_class_for_itself(smoothing: float) -> None:
    config = LossConfig(kind="bce", label_smoothing=smoothing)
    losses = row_losses(LOGITS, Targets(LABELS, OTHERS, 0.3), config=config)
    wanted = functional.binary_cross_entropy_with_logits(LOGITS, shares(0.3, smoothing), reduction="none").mean(dim=1)
    torch.testing.assert_close(losses, wanted)


@pytest.mark.parametrize(("share", "classes"), [(0.3, 2), (0.1, 1), (0.9, 1), (1.0, 1)])
def test_a_class_above_the_threshold_is_wholly_right(share: float, classes: int) -> None:
    config = LossConfig(kind="bce", label_smoothing=0.0, bce_threshold=0.2)
    right = (shares(share, 0.0) > 0.2).float()
    assert int(right[0].sum()) == classes
    losses = row_losses(LOGITS, Targets(LABELS, OTHERS, share), config=config)
    wanted = functional.binary_cross_entropy_with_logits(LOGITS, right, reduction="none").mean(dim=1)
    torch.testing.assert_close(losses, wanted)
