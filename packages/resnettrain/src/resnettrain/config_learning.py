"""The settings of learning itself: model, optimizer, schedule, picture size, augmentation, loss, average.

Parts of `config.py`, by whose name they are imported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from resnettrain.config_checks import at_least, positive, within
from resnettrain.errors import ConfigError

__all__ = [
    "AugmentConfig",
    "EmaConfig",
    "LossConfig",
    "ModelConfig",
    "OptimConfig",
    "ResolutionConfig",
    "ScheduleConfig",
]

_AUTO_WARMUP_EPOCHS = 5.0
# An eighth of the run: 5 epochs of 40, the share that Goyal et al. 2017 (5 of 90) and FFCV (2 of 16) bracket.
_AUTO_WARMUP_SHARE = 1 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A torchvision classification model by name, or "tiny". `num_classes` None: from the manifest, else 1000.

    `zero_init_residual` starts every residual branch at nothing (ResNets alone). `antialias` blurs before convolutions
    that skip pixels; weights fit with and without. `init` names weights to start from.
    """

    name: str = "resnet50"
    num_classes: int | None = None
    image_size: int = 224
    zero_init_residual: bool = False
    antialias: bool = False
    init: Path | None = None

    def __post_init__(self) -> None:
        at_least("model.image_size", self.image_size, low=8)
        if self.num_classes is not None:
            at_least("model.num_classes", self.num_classes, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimConfig:
    """SGD or LAMB. `lr` None follows the rule peak = `lr_per_256` x global batch / 256; a number is the peak itself.

    `momentum` and `nesterov` are SGD's, `betas` and `eps` LAMB's. `clip_norm` is the largest norm of all gradients
    together; they are scaled down to it.
    """

    kind: Literal["sgd", "lamb"] = "sgd"
    lr: float | None = None
    lr_per_256: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    nesterov: bool = True
    no_decay_1d: bool = True
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        if self.lr is not None:
            positive("optim.lr", self.lr)
        positive("optim.lr_per_256", self.lr_per_256)
        within("optim.momentum", self.momentum, low=0.0, high=1.0)
        within("optim.weight_decay", self.weight_decay, low=0.0, high=math.inf)
        positive("optim.eps", self.eps)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"optim.betas: {list(self.betas)} must be in 0..1, below 1.")
        if self.clip_norm is not None:
            positive("optim.clip_norm", self.clip_norm)
        if self.kind == "sgd" and self.nesterov and self.momentum == 0:
            raise ConfigError("optim.nesterov: needs optim.momentum above 0. Set optim.nesterov=false.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig:
    """How long and how fast. Lengths are counted in samples; the caps end a run early and leave the curve as it is.

    `kind`: after the warm-up a cosine or a line to 0, steps down by `step_factor` every `step_epochs`, or constant.
    `warmup_start` is the share of the peak that the warm-up begins with. `max_samples` is the source's `max_steps`.
    `stop_rule` "reach" ends at samples >= max_samples, "exceed" at samples > max_samples as the source does.
    `warmup_epochs` None: an eighth of the epochs, at most five. `epoch_samples` is only for shards whose number of
    samples nobody knows.
    """

    kind: Literal["cosine", "linear", "step", "constant"] = "cosine"
    epochs: int = 16
    warmup_epochs: float | None = None
    warmup_start: float = 0.1
    step_epochs: int = 30
    step_factor: float = 0.1
    max_samples: int | None = None
    stop_rule: Literal["reach", "exceed"] = "reach"
    max_updates: int | None = None
    max_hours: float | None = None
    epoch_samples: int | None = None

    def __post_init__(self) -> None:
        at_least("schedule.epochs", self.epochs, low=1)
        at_least("schedule.step_epochs", self.step_epochs, low=1)
        within("schedule.step_factor", self.step_factor, low=0.0, high=1.0)
        # From 0 the first update would be none at all.
        if not 0 < self.warmup_start <= 1:
            raise ConfigError(f"schedule.warmup_start: {self.warmup_start} must be above 0 and at most 1.")
        for name in ("max_samples", "max_updates", "epoch_samples"):
            value: int | None = getattr(self, name)
            if value is not None:
                at_least(f"schedule.{name}", value, low=1)
        if self.max_hours is not None:
            positive("schedule.max_hours", self.max_hours)
        if self.warmup_epochs is not None and not 0 <= self.warmup_epochs < self.epochs:
            raise ConfigError(
                f"schedule.warmup_epochs: {self.warmup_epochs} must be in 0..{self.epochs}, below schedule.epochs."
            )

    @property
    def warmup(self) -> float:
        """Return the length of the warm-up in epochs, the automatic one worked out."""
        if self.warmup_epochs is not None:
            return self.warmup_epochs
        return min(_AUTO_WARMUP_EPOCHS, self.epochs * _AUTO_WARMUP_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionConfig:
    """Training pictures that grow from `start_size` pixels to `model.image_size`, in steps of `multiple`.

    They are small until epoch `ramp_start` and whole from epoch `ramp_end`, counted from 0. `start_size` None: they are
    whole all the time.
    """

    start_size: int | None = None
    ramp_start: int = 0
    ramp_end: int = 0
    multiple: int = 32

    def __post_init__(self) -> None:
        if self.start_size is not None:
            at_least("resolution.start_size", self.start_size, low=8)
        at_least("resolution.ramp_start", self.ramp_start, low=0)
        at_least("resolution.ramp_end", self.ramp_end, low=self.ramp_start)
        at_least("resolution.multiple", self.multiple, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentConfig:
    """What chance does to a training picture.

    In the loader: the crop (area share, aspect ratio) and the horizontal flip, by chance or, `alternating_flip`, every
    second epoch. On the device, in this order: `policy`
    "trivial" (TrivialAugment, wide) or "rand" (RandAugment: `rand_ops` operations at `rand_magnitude`, a share of the
    strongest); `mixup` and `cutmix` with that alpha, one of the two for a batch where both are above 0; a rectangle
    erased with probability `erasing`.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    alternating_flip: bool = False
    policy: Literal["none", "trivial", "rand"] = "none"
    rand_ops: int = 2
    rand_magnitude: float = 0.3
    mixup: float = 0.0
    cutmix: float = 0.0
    erasing: float = 0.0

    def __post_init__(self) -> None:
        low, high = self.scale
        if not 0 < low <= high <= 1:
            raise ConfigError(f"augment.scale: [{low}, {high}] must be 0 < low <= high <= 1.")
        low, high = self.ratio
        if not 0 < low <= high < math.inf:
            raise ConfigError(f"augment.ratio: [{low}, {high}] must be 0 < low <= high.")
        if self.alternating_flip and not self.flip:
            raise ConfigError("augment.alternating_flip: needs augment.flip=true.")
        at_least("augment.rand_ops", self.rand_ops, low=1)
        for name in ("rand_magnitude", "mixup", "cutmix", "erasing"):
            within(f"augment.{name}", getattr(self, name), low=0.0, high=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """Cross-entropy, or binary cross-entropy of every class for itself ("bce", the mean over the classes).

    Label smoothing is for training alone; validation reports the plain cross-entropy. `bce_threshold` makes every class
    whose share in a mixed picture is above it a whole one; None keeps the shares.
    """

    kind: Literal["cross_entropy", "bce"] = "cross_entropy"
    label_smoothing: float = 0.1
    bce_threshold: float | None = None

    def __post_init__(self) -> None:
        within("loss.label_smoothing", self.label_smoothing, low=0.0, high=1.0)
        if self.bce_threshold is not None:
            within("loss.bce_threshold", self.bce_threshold, low=0.0, high=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmaConfig:
    """An exponential moving average of the weights. `decay` is that of one update; None: there is no average.

    It is brought up to date `every` so many updates, with the decay of so many. `warmup` begins with a short memory:
    the decay after n updates is at most (1 + n) / (10 + n).
    """

    decay: float | None = None
    every: int = 1
    warmup: bool = True

    def __post_init__(self) -> None:
        if self.decay is not None and not 0 <= self.decay < 1:
            raise ConfigError(f"ema.decay: {self.decay} must be in 0..1, below 1.")
        at_least("ema.every", self.every, low=1)
