"""The settings of one run as nested frozen dataclasses, each checked where it is made.

Owns names, types, defaults and ranges; reading and writing them is `settings.py`, the named sets of them `recipes.py`.
Imports nothing heavy: the command's help reads this file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from resnettrain.errors import ConfigError

if TYPE_CHECKING:
    from wdsloader import CacheConfig

__all__ = [
    "AugmentConfig",
    "CheckpointConfig",
    "DataConfig",
    "LogConfig",
    "LossConfig",
    "ModelConfig",
    "OptimConfig",
    "RuntimeConfig",
    "ScheduleConfig",
    "TrainConfig",
]

_AUTO_WARMUP_EPOCHS = 5.0
# An eighth of the run: 5 epochs of 40, the share that Goyal et al. 2017 (5 of 90) and FFCV (2 of 16) bracket.
_AUTO_WARMUP_SHARE = 1 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """Where samples come from.

    `pipeline` "lanes" is wdsloader's exact order, "source" the source's own webdataset code. `batch_size` is per rank.
    `on_error` "skip" passes over samples that cannot be delivered, until more than `max_skipped` of an epoch were: a
    number of samples, or a share of the epoch. `num_workers` None is the pipeline's own default: a worker a core, or 4.
    `cache_limit` is a size (`200GiB`) or a share of the disk (`30%`);
    `cache_ignore_query` names fields of a URL's query that do not tell one shard from another (`X-Amz-*`).
    """

    urls: tuple[str, ...] = ()
    val_urls: tuple[str, ...] = ()
    cache_dir: Path | None = None
    cache_limit: str | None = None
    cache_ignore_query: tuple[str, ...] = ()
    allow_commands: bool = False
    pipeline: Literal["lanes", "source"] = "lanes"
    batch_size: int = 64
    num_workers: int | None = None
    lanes: int | None = None
    exact: bool = False
    on_error: Literal["stop", "skip"] = "stop"
    max_skipped: int | float = 0.01

    def __post_init__(self) -> None:
        _at_least("data.batch_size", self.batch_size, low=1)
        if self.num_workers is not None:
            _at_least("data.num_workers", self.num_workers, low=0)
        if self.lanes is not None:
            _at_least("data.lanes", self.lanes, low=1)
        if self.cache_dir is None and self.cache_limit is not None:
            raise ConfigError("data.cache_limit: there is no cache to limit. Give data.cache_dir (--cache-dir) too.")
        if self.cache_limit is not None or self.cache_ignore_query:
            self.cache()
        if self.max_skipped < 0 or (isinstance(self.max_skipped, float) and self.max_skipped > 1):
            raise ConfigError(f"data.max_skipped: {self.max_skipped} must be a count from 0 up or a share in 0.0..1.0.")

    def cache(self) -> CacheConfig | None:
        """Return where fetched shards are kept; None: in a folder of this run. Raises: wdsloader.ConfigError."""
        if self.cache_dir is None:
            return None
        # The settings alone import nothing heavy.
        from wdsloader import cache_config

        return cache_config(self.cache_dir, limit=self.cache_limit, ignore_query=self.cache_ignore_query)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A torchvision classification model by name, or "tiny". `num_classes` None: from the manifest, else 1000."""

    name: str = "resnet50"
    num_classes: int | None = None
    image_size: int = 224

    def __post_init__(self) -> None:
        _at_least("model.image_size", self.image_size, low=8)
        if self.num_classes is not None:
            _at_least("model.num_classes", self.num_classes, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimConfig:
    """SGD. `lr` None follows the rule peak = `lr_per_256` x global batch / 256; a number is the peak itself."""

    lr: float | None = None
    lr_per_256: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    nesterov: bool = True
    no_decay_1d: bool = True

    def __post_init__(self) -> None:
        if self.lr is not None:
            _positive("optim.lr", self.lr)
        _positive("optim.lr_per_256", self.lr_per_256)
        _within("optim.momentum", self.momentum, low=0.0, high=1.0)
        _within("optim.weight_decay", self.weight_decay, low=0.0, high=math.inf)
        if self.nesterov and self.momentum == 0:
            raise ConfigError("optim.nesterov: needs optim.momentum above 0. Set optim.nesterov=false.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig:
    """How long and how fast. Lengths are counted in samples; the caps end a run early and leave the curve as it is.

    `max_samples` is the source's `max_steps`. `stop_rule` "reach" ends at samples >= max_samples, "exceed" at samples >
    max_samples as the source does. `warmup_epochs` None: an eighth of the epochs, at most five. `epoch_samples` is only
    for shards whose number of samples nobody knows.
    """

    kind: Literal["cosine", "constant"] = "cosine"
    epochs: int = 16
    warmup_epochs: float | None = None
    max_samples: int | None = None
    stop_rule: Literal["reach", "exceed"] = "reach"
    max_updates: int | None = None
    epoch_samples: int | None = None

    def __post_init__(self) -> None:
        _at_least("schedule.epochs", self.epochs, low=1)
        for name in ("max_samples", "max_updates", "epoch_samples"):
            value: int | None = getattr(self, name)
            if value is not None:
                _at_least(f"schedule.{name}", value, low=1)
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
class AugmentConfig:
    """The random crop and flip of training: area share, aspect ratio, horizontal flip."""

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True

    def __post_init__(self) -> None:
        low, high = self.scale
        if not 0 < low <= high <= 1:
            raise ConfigError(f"augment.scale: [{low}, {high}] must be 0 < low <= high <= 1.")
        low, high = self.ratio
        if not 0 < low <= high < math.inf:
            raise ConfigError(f"augment.ratio: [{low}, {high}] must be 0 < low <= high.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """Cross-entropy. Label smoothing is for training alone; validation reports the plain loss."""

    label_smoothing: float = 0.1

    def __post_init__(self) -> None:
        _within("loss.label_smoothing", self.label_smoothing, low=0.0, high=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """Where and how it is computed. None: channels_last on CUDA, deterministic on the CPU, torch's own threads."""

    device: str = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    channels_last: bool | None = None
    threads: int | None = None
    deterministic: bool | None = None

    def __post_init__(self) -> None:
        if self.threads is not None:
            _at_least("runtime.threads", self.threads, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """When a checkpoint is written, and how many of the newest are kept. One is always written at the end."""

    every_epochs: int = 1
    every_updates: int | None = None
    keep: int = 3

    def __post_init__(self) -> None:
        _at_least("checkpoint.every_epochs", self.every_epochs, low=1)
        _at_least("checkpoint.keep", self.keep, low=1)
        if self.every_updates is not None:
            _at_least("checkpoint.every_updates", self.every_updates, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """When a report is made: every `every_s` seconds, once more than `min_steps` losses are there.

    A report is the mean of the last `window_steps` steps. `at_epoch_end` adds one at the end of each epoch.
    """

    every_s: float = 5.0
    window_steps: int = 100
    min_steps: int = 0
    at_epoch_end: bool = True

    def __post_init__(self) -> None:
        _within("log.every_s", self.every_s, low=0.0, high=math.inf)
        _at_least("log.window_steps", self.window_steps, low=1)
        _at_least("log.min_steps", self.min_steps, low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Everything one run is made from. `run_dir` None: `runs/<time>-<recipe>` under the working folder."""

    recipe: str = "default"
    run_dir: Path | None = None
    seed: int = 0
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed: {self.seed} must be in 0..{2**32 - 1}.")

    @property
    def peak_lr(self) -> float:
        """Return the highest learning rate of the run: `optim.lr`, or the rule of `optim.lr_per_256`."""
        if self.optim.lr is not None:
            return self.optim.lr
        return self.optim.lr_per_256 * self.data.batch_size / 256


def _at_least(name: str, value: int, *, low: int) -> None:
    if value < low:
        raise ConfigError(f"{name}: {value} must be at least {low}.")


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name}: {value} must be a number above 0.")


def _within(name: str, value: float, *, low: float, high: float) -> None:
    if not low <= value <= high or math.isinf(value):
        raise ConfigError(f"{name}: {value} must be in {low}..{high}.")
