"""One update of the weights: augment, forward, loss, backward, clip, guard, optimizer, average. Nothing waits here.

`model` is always the bare module, the one that is saved, evaluated and averaged; `forward`, what is called for
training, may be a wrapper around it (compiled, distributed), so that no name of a weight carries a wrapper's prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from resnettrain.config import TrainConfig
from resnettrain.ema import Ema, make_ema
from resnettrain.errors import ConfigError
from resnettrain.feed import DeviceBatch
from resnettrain.gpu_augment import DeviceAugment, Normalizer
from resnettrain.guard import FiniteGuard
from resnettrain.loss import row_losses
from resnettrain.metrics import Window, hits
from resnettrain.numerics import Numerics
from resnettrain.optimizer import make_optimizer
from resnettrain.schedule import resolutions
from resnettrain.state import Learner, TrainState

__all__ = ["TrainStep", "make_step"]

# torch.compile makes one program a size; past its own limit it would go on uncompiled and say so in a log line.
_MOST_SIZES = 8
# Rows that count, where none does: the loss is 0 / this.
_LEAST_WEIGHT = 1e-6


def _own(value: Tensor) -> Tensor:
    return value


@dataclass(slots=True, kw_only=True)
class TrainStep:
    """The parts that make an update.

    Set `forward` to a wrapper before the first step. `mean_over_ranks` takes and returns a scalar on the device, and
    makes the host wait for nothing; it is asked for the weight of a batch, so that every sample counts the same where
    ranks have lost different numbers of them.
    """

    config: TrainConfig
    numerics: Numerics
    learner: Learner
    augment: DeviceAugment
    guard: FiniteGuard
    window: Window
    model: nn.Module = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)
    ema: Ema | None = field(init=False)
    scaler: torch.amp.GradScaler | None = field(init=False)
    forward: nn.Module = field(init=False)
    mean_over_ranks: Callable[[Tensor], Tensor] = _own
    _flag: Tensor | None = field(init=False, default=None)
    _parameters: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.model, self.optimizer = self.learner.model, self.learner.optimizer
        self.ema, self.scaler = self.learner.ema, self.learner.scaler
        self.forward = self.model
        self._parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        if self.scaler is not None:
            self.optimizer.register_step_pre_hook(self._raise_flag)

    def train(self) -> None:
        """Put the model into training mode, and what wraps it."""
        self.model.train()
        self.forward.train()

    def run(self, batch: DeviceBatch, *, lr: float, state: TrainState) -> None:
        """Make one update with a batch. Args: state: as it stands before the batch."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        weight = self.mean_over_ranks(batch.weights.sum()).clamp(min=_LEAST_WEIGHT)
        num_parts = self.config.runtime.micro_batches
        figures: list[tuple[Tensor, Tensor]] = []
        for part in range(num_parts):
            with self._unsynced() if part + 1 < num_parts else nullcontext():
                figures.append(self._backward(batch, part=part, weight=weight, samples=state.samples))
        loss, top1 = (
            figures[0] if num_parts == 1 else (torch.stack(column).sum() for column in zip(*figures, strict=True))
        )
        norm = self._clip()
        flag = self.guard.watch(loss, norm=norm, epoch=state.epoch, samples=state.samples, keys=batch.keys)
        self._update(flag)
        if self.ema is not None:
            self.ema.follow(state.updates + 1)
        self.window.add(loss, top1=top1)

    def _backward(self, batch: DeviceBatch, *, part: int, weight: Tensor, samples: int) -> tuple[Tensor, Tensor]:
        """Add the gradients of a micro-batch; return its part of the loss and of the share of right answers."""
        num_parts = self.config.runtime.micro_batches
        # Every num_parts-th row: what one of so many ranks would have of this batch.
        rows = slice(part, None, num_parts)
        images, targets = self.augment(
            batch.images[rows], batch.labels[rows], samples=samples, part=part, num_parts=num_parts
        )
        with self.numerics.autocast():
            logits_NK = self.forward(images).float()
        weights_N = batch.weights[rows]
        loss = (row_losses(logits_NK, targets, config=self.config.loss) * weights_N).sum() / weight
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        right = (hits(logits_NK.detach(), targets.labels) * weights_N).sum() / weight
        return loss.detach(), right

    def _unsynced(self) -> AbstractContextManager[Any]:
        """Return the context in which a distributed model keeps its gradients to itself."""
        no_sync: Callable[[], AbstractContextManager[Any]] = getattr(self.forward, "no_sync", nullcontext)
        return no_sync()

    def _clip(self) -> Tensor | None:
        """Scale the gradients down to the norm that is allowed; return what their norm was, None where nobody asked.

        The scaler itself looks for overflows, which are no failure of the run.
        """
        largest = self.config.optim.clip_norm
        if self.scaler is not None:
            if largest is None:
                return None
            self.scaler.unscale_(self.optimizer)
        with_gradients = [parameter for parameter in self._parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in with_gradients if p.grad is not None], foreach=True)
        if largest is not None:
            torch.nn.utils.clip_grads_with_norm_(with_gradients, largest, norm, foreach=True)
        return norm if self.scaler is None else None

    def _update(self, flag: Tensor) -> None:
        """Let the optimizer step; it makes no update where the flag is up or the scaler found an overflow."""
        if self.scaler is None:
            self.optimizer.found_inf = flag  # type: ignore[attr-defined]  # read by fused steps
            self.optimizer.step()
            return
        self._flag = flag
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def _raise_flag(self, optimizer: Any, _arguments: object, _keywords: object) -> None:
        # Between the scaler, which has set its own flag, and the step, which reads it.
        if self._flag is not None:
            optimizer.found_inf = torch.maximum(optimizer.found_inf, self._flag)


def make_step(
    config: TrainConfig,
    model: nn.Module,
    *,
    numerics: Numerics,
    rank: int = 0,
    world_size: int = 1,
    agree: Callable[[Tensor], object] | None = None,
    mean: Callable[[Tensor], Tensor] | None = None,
) -> TrainStep:
    """Return the step that the settings ask for, over a model that is on its device.

    Args: agree: takes the largest of a scalar over all ranks, in place.  mean: returns the mean over all ranks. Neither
    makes the host wait; None where there is one rank.
    Raises: ConfigError: settings of torch.compile that do not fit the others.
    """
    scaler = numerics.scaler()
    learner = Learner(
        model=model,
        optimizer=make_optimizer(model, config.optim, lr=config.peak_lr),
        ema=make_ema(model, config.ema),
        scaler=scaler,
    )
    step = TrainStep(
        config=config,
        numerics=numerics,
        learner=learner,
        augment=DeviceAugment(
            config=config.augment,
            seed=config.seed,
            normalizer=Normalizer(channels_last=numerics.channels_last),
            rank=rank,
            world_size=world_size,
        ),
        guard=FiniteGuard(device=numerics.device, agree=agree, scale=scaler.get_scale if scaler is not None else None),
        window=Window(config.log.window_steps, mean=mean),
    )
    step.forward = _compiled(model, config)
    # With a batch cut short by lost samples every one still counts the same.
    step.mean_over_ranks = mean if mean is not None and config.data.on_error == "skip" else _own
    return step


def _compiled(model: nn.Module, config: TrainConfig) -> nn.Module:
    """Return what to call for training: the model, or its compiled wrapper, which has one program for each size.

    Raises: ConfigError: more sizes than torch.compile keeps programs for, or gradients that it would overwrite.
    """
    mode = config.runtime.compile
    if mode == "off":
        return model
    sizes = resolutions(config)
    if len(sizes) > _MOST_SIZES:
        raise ConfigError(
            f"runtime.compile: {len(sizes)} sizes of pictures, at most {_MOST_SIZES} are compiled. Raise "
            "resolution.multiple, or set runtime.compile=off."
        )
    if mode != "default" and config.runtime.micro_batches > 1:
        raise ConfigError(
            f"runtime.compile: '{mode}' uses CUDA graphs, which write over gradients that are being added up. Set "
            "runtime.micro_batches=1 or runtime.compile=default."
        )
    return cast(nn.Module, torch.compile(model, dynamic=False, mode=None if mode == "default" else mode))
