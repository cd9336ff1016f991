"""The optimizers: torch's fused SGD, and LAMB. Both make no update where a flag on the device is up, without a wait.

The flag is `found_inf`, as torch's GradScaler and our guard set it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from resnettrain.config import OptimConfig
from resnettrain.model import parameter_groups

__all__ = ["Lamb", "apply_settings", "make_optimizer"]


class Lamb(torch.optim.Optimizer):
    """LAMB: Adam's step, its length per tensor made a share of the length of the weights.

    A tensor without weight decay takes Adam's step as it is. Source: You et al. 2019 (arXiv 1904.00962), in the form of
    timm's `Lamb` (bias correction, the moment of gradients averaged, no bound on the ratio).
    """

    # GradScaler asks for this: we heed `grad_scale` and `found_inf`.
    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state, all of it to where the parameters are."""
        super().load_state_dict(state_dict)
        # torch leaves what is called "step" on the device that it was saved from or loaded to.
        for parameter, state in self.state.items():
            state["step"] = state["step"].to(parameter.device)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # no closure
        """Make one update of all parameters that have a gradient."""
        if closure is not None:
            raise TypeError("Lamb.step: takes no closure.")
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self._step_group(group, parameters)

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        states = [self._state_of(parameter) for parameter in parameters]
        firsts, seconds, steps = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        skip, gradients = self._gradients(parameters)
        beta1, beta2 = group["betas"]
        going = 1.0 - skip
        # A list, since a lone tensor would be read as a number, and the host wait for it.
        torch._foreach_add_(steps, [going] * len(steps))
        # Where the update is skipped, the gradients are 0 and the moments are kept whole.
        torch._foreach_mul_(firsts, beta1 + (1 - beta1) * skip)
        torch._foreach_add_(firsts, gradients, alpha=1 - beta1)
        torch._foreach_mul_(seconds, beta2 + (1 - beta2) * skip)
        torch._foreach_addcmul_(seconds, gradients, gradients, value=1 - beta2)

        # At least one step, since a first update that is skipped leaves 0, and 0 / 0 is no number to multiply away.
        made = steps[0].clamp(min=1.0)
        denominators = torch._foreach_sqrt(seconds)
        torch._foreach_div_(denominators, (1 - beta2**made).sqrt())
        torch._foreach_add_(denominators, group["eps"])
        updates = list(torch._foreach_div(firsts, 1 - beta1**made))
        torch._foreach_div_(updates, denominators)
        if group["weight_decay"] != 0:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
            torch._foreach_mul_(updates, _ratios(parameters, updates))
        torch._foreach_mul_(updates, going)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state

    def _gradients(self, parameters: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the flag as 0.0 or 1.0, and the unscaled gradients, 0 where it is up."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        found, scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        if scale is not None:
            gradients = list(torch._foreach_div(gradients, scale))
        if found is None:
            return torch.zeros((), device=parameters[0].device), gradients
        skip = (found != 0).to(torch.float32)
        return skip, [torch.where(skip == 0, gradient, 0.0) for gradient in gradients]


def make_optimizer(model: nn.Module, config: OptimConfig, *, lr: float) -> torch.optim.Optimizer:
    """Return the optimizer of a run over the parameters of a model that want gradients."""
    groups = parameter_groups(model, weight_decay=config.weight_decay, no_decay_1d=config.no_decay_1d)
    if config.kind == "lamb":
        return Lamb(groups, lr=lr, betas=config.betas, eps=config.eps)
    # Fused also on the CPU: it is what skips an update by a flag on the device (guard.py).
    optimizer = torch.optim.SGD(groups, lr=lr, momentum=config.momentum, nesterov=config.nesterov, fused=True)
    if config.momentum > 0:
        # torch makes them of whatever is in memory for a first update to write over; where that one is skipped, as fp16
        # often does it, the second would go wherever they say. From 0 the first update is the same.
        for parameter in (parameter for group in groups for parameter in group["params"]):
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def apply_settings(optimizer: torch.optim.Optimizer, config: OptimConfig) -> None:
    """Let the settings of now win over those that a checkpoint's optimizer was saved with."""
    if config.kind == "lamb":
        said: dict[str, Any] = {"betas": config.betas, "eps": config.eps}
    else:
        said = {"momentum": config.momentum, "nesterov": config.nesterov}
    for number, group in enumerate(optimizer.param_groups):
        group.update(said, weight_decay=config.weight_decay if number == 0 else 0.0)


def _ratios(parameters: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """Return the trust ratio of every tensor, |weights| / |update|; 1 where either is 0."""
    weights, lengths = (torch.stack(torch._foreach_norm(tensors)) for tensors in (parameters, updates))
    usable = (weights > 0) & (lengths > 0)
    return list(torch.where(usable, weights / lengths, 1.0).unbind())
