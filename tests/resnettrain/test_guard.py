from __future__ import annotations

import pytest
import torch

from resnettrain import NonFiniteLossError
from resnettrain.guard import FiniteGuard


def step(guard: FiniteGuard, optimizer: torch.optim.Optimizer, *, loss: torch.Tensor, samples: int) -> None:
    optimizer.zero_grad()
    loss.backward()
    flag = guard.watch(loss, epoch=2, samples=samples, keys=("a", None, f"b{samples}"))
    optimizer.found_inf = flag  # type: ignore[attr-defined]
    optimizer.step()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_update_of_a_bad_batch_and_all_after_it_are_not_made(bad: float) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, fused=True)
    guard = FiniteGuard(device=torch.device("cpu"))
    step(guard, optimizer, loss=weight.sum(), samples=0)
    before = weight.detach().clone()
    momentum = optimizer.state[weight]["momentum_buffer"].clone()
    assert not torch.equal(before, torch.ones(3))
    step(guard, optimizer, loss=(weight * bad).sum(), samples=16)
    step(guard, optimizer, loss=weight.sum(), samples=32)
    assert torch.equal(weight, before)
    assert torch.equal(optimizer.state[weight]["momentum_buffer"], momentum)


def test_the_error_names_epoch_position_and_keys_of_the_first_bad_batch() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, fused=True)
    guard = FiniteGuard(device=torch.device("cpu"))
    step(guard, optimizer, loss=weight.sum(), samples=0)
    guard.check()
    step(guard, optimizer, loss=(weight * float("nan")).sum(), samples=16)
    step(guard, optimizer, loss=(weight * float("nan")).sum(), samples=32)
    with pytest.raises(NonFiniteLossError, match=r"epoch 3, sample 16 of the run: the loss is nan.* a, b16"):
        guard.check()
