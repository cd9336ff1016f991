from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor, nn

from resnettrain import EmaConfig
from resnettrain.ema import Ema, make_ema


def a_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))


def change(model: nn.Module, value: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
        for buffer in model.buffers():
            buffer.fill_(value)


def first(model: nn.Module) -> float:
    return cast(Tensor, next(model.parameters())).flatten()[0].item()


def test_without_a_decay_there_is_no_average() -> None:
    assert make_ema(a_model(), EmaConfig()) is None


def test_of_a_model_that_stays_the_average_is_the_model() -> None:
    model = a_model()
    ema = Ema(model, decay=0.9, every=1, warmup=False)
    for updates in range(1, 50):
        ema.follow(updates)
    for one, other in zip(ema.module.state_dict().values(), model.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_with_a_decay_of_nothing_the_average_is_the_model_of_now() -> None:
    model = a_model()
    ema = Ema(model, decay=0.0, every=1, warmup=False)
    change(model, 3.0)
    ema.follow(1)
    for one, other in zip(ema.module.state_dict().values(), model.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_weights_are_averaged_and_the_statistics_of_norms_are_copied() -> None:
    model = a_model()
    change(model, 0.0)
    ema = Ema(model, decay=0.75, every=1, warmup=False)
    change(model, 1.0)
    ema.follow(1)
    assert {parameter.unique().item() for parameter in ema.module.parameters()} == {0.25}
    assert {buffer.unique().item() for buffer in ema.module.buffers()} == {1.0}


def test_an_average_of_every_third_update_forgets_as_much_as_one_of_each() -> None:
    model = a_model()
    change(model, 0.0)
    each, third = (Ema(model, decay=0.9, every=every, warmup=False) for every in (1, 3))
    change(model, 1.0)
    for updates in range(1, 7):
        each.follow(updates)
        third.follow(updates)
        if updates % 3 == 0:
            assert first(third.module) == pytest.approx(first(each.module), rel=1e-6)
    assert first(third.module) == pytest.approx(1 - 0.9**6)


def test_the_warmup_begins_with_a_short_memory() -> None:
    ema = Ema(a_model(), decay=0.999, every=1, warmup=True)
    assert [ema.decay_at(updates) for updates in (0, 8, 90)] == pytest.approx([0.1, 0.5, 0.91])
    assert ema.decay_at(10**6) == 0.999


def test_the_average_is_for_evaluation_and_wants_no_gradients() -> None:
    model = a_model().train()
    ema = Ema(model, decay=0.9, every=1, warmup=False)
    assert not ema.module.training
    assert not any(parameter.requires_grad for parameter in ema.module.parameters())
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
