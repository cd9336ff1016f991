from __future__ import annotations

import pytest
import torch
from torch import Tensor

from resnettrain import OptimConfig, build_model
from resnettrain.optimizer import Lamb, apply_settings, make_optimizer

SHAPES = ((4, 3), (5,), (2, 3, 3, 3), (1,))


def parameters(seed: int = 0) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def gradients(seed: int) -> list[Tensor]:
    return [parameter.detach() for parameter in parameters(100 + seed)]


def set_gradients(weights: list[torch.nn.Parameter], seed: int, *, scale: float = 1.0) -> None:
    for weight, gradient in zip(weights, gradients(seed), strict=True):
        weight.grad = gradient * scale


def plain_lamb(weights: list[Tensor], *, steps: int, lr: float, decay: float) -> list[Tensor]:
    """Algorithm 2 of arXiv 1904.00962, with timm's bias correction, tensor by tensor in double precision."""
    (beta1, beta2), eps = (0.9, 0.999), 1e-6
    weights = [weight.double().clone() for weight in weights]
    firsts, seconds = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    for step in range(1, steps + 1):
        doubles = [gradient.double() for gradient in gradients(step)]
        for weight, first, second, gradient in zip(weights, firsts, seconds, doubles, strict=True):
            first.copy_(beta1 * first + (1 - beta1) * gradient)
            second.copy_(beta2 * second + (1 - beta2) * gradient * gradient)
            update = (first / (1 - beta1**step)) / ((second / (1 - beta2**step)).sqrt() + eps)
            ratio = 1.0
            if decay:
                update = update + decay * weight
                ratio = float(weight.norm() / update.norm()) if weight.norm() > 0 and update.norm() > 0 else 1.0
            weight.sub_(lr * ratio * update)
    return weights


@pytest.mark.parametrize("decay", [0.0, 0.02])
def test_lamb_makes_the_updates_of_the_paper(decay: float) -> None:
    weights = parameters()
    expected = plain_lamb([weight.detach() for weight in weights], steps=20, lr=0.1, decay=decay)
    optimizer = Lamb(weights, lr=0.1, weight_decay=decay)
    for step in range(1, 21):
        set_gradients(weights, step)
        optimizer.step()
    for weight, wanted in zip(weights, expected, strict=True):
        torch.testing.assert_close(weight.detach().double(), wanted, rtol=1e-4, atol=1e-5)


def test_lamb_leaves_weights_of_nothing_a_step_of_its_own() -> None:
    weight = torch.nn.Parameter(torch.zeros(3))
    weight.grad = torch.ones(3)
    Lamb([weight], lr=0.1, weight_decay=0.02).step()
    torch.testing.assert_close(weight.detach(), torch.full((3,), -0.1))


@pytest.mark.parametrize("kind", ["sgd", "lamb"])
def test_an_update_whose_flag_is_up_is_as_if_it_had_never_been(kind: str) -> None:
    model = build_model("tiny", num_classes=3, seed=0)
    skipping, other = (make_optimizer(m, OptimConfig(kind=kind), lr=0.1) for m in (model, twin(model)))  # type: ignore[arg-type]
    for number, found in enumerate((1.0, 0.0, 1.0, 0.0)):
        set_all(skipping, number, bad=bool(found))
        skipping.found_inf = torch.tensor(found)  # type: ignore[attr-defined]
        skipping.step()
        if not found:
            set_all(other, number, bad=False)
            other.found_inf = torch.tensor(0.0)  # type: ignore[attr-defined]
            other.step()
    ones, others = (list_of(optimizer) for optimizer in (skipping, other))
    assert all(map(torch.equal, ones, others))
    assert all(tensor.isfinite().all() for tensor in ones)


@pytest.mark.parametrize("kind", ["sgd", "lamb"])
def test_scaled_gradients_are_unscaled_in_the_step(kind: str) -> None:
    model = build_model("tiny", num_classes=3, seed=0)
    scaled, plain = (make_optimizer(m, OptimConfig(kind=kind), lr=0.1) for m in (model, twin(model)))  # type: ignore[arg-type]
    scaled.grad_scale, scaled.found_inf = torch.tensor(1024.0), torch.tensor(0.0)  # type: ignore[attr-defined]
    set_all(scaled, 0, bad=False, scale=1024.0)
    set_all(plain, 0, bad=False)
    scaled.step()
    plain.step()
    assert all(map(torch.equal, list_of(scaled), list_of(plain)))


@pytest.mark.parametrize("kind", ["sgd", "lamb"])
def test_a_saved_state_goes_to_where_the_parameters_are(kind: str) -> None:
    """A checkpoint is read to the host; torch itself leaves the number of steps there."""
    config = OptimConfig(kind=kind)  # type: ignore[arg-type]
    model = build_model("tiny", num_classes=3, seed=0)
    saving = make_optimizer(model, config, lr=0.1)
    set_all(saving, 0, bad=False)
    saving.step()
    loading = make_optimizer(twin(model).to("meta"), config, lr=0.1)
    loading.load_state_dict(saving.state_dict())
    states = [state for states in loading.state.values() for state in states.values() if state is not None]
    assert {state.device.type for state in states} == {"meta"}


def test_settings_of_now_win_over_saved_ones_and_keep_norms_undecayed() -> None:
    model = build_model("tiny", num_classes=3, seed=0)
    saved = make_optimizer(model, OptimConfig(kind="lamb", betas=(0.5, 0.6), weight_decay=0.3), lr=0.1).state_dict()
    optimizer = make_optimizer(model, OptimConfig(kind="lamb"), lr=0.1)
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["betas"] == (0.5, 0.6)
    apply_settings(optimizer, OptimConfig(kind="lamb", weight_decay=0.2))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.2, 0.0]
    assert optimizer.param_groups[0]["betas"] == (0.9, 0.999)


def twin(model: torch.nn.Module) -> torch.nn.Module:
    other = build_model("tiny", num_classes=3, seed=1)
    other.load_state_dict(model.state_dict())
    return other


def set_all(optimizer: torch.optim.Optimizer, seed: int, *, bad: bool, scale: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.randn(parameter.shape, generator=generator) * scale
            if bad:
                parameter.grad[0] = float("inf")


def list_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter.detach() for group in optimizer.param_groups for parameter in group["params"]]
