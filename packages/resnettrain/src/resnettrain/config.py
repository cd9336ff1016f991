"""The settings of one run as nested frozen dataclasses, each checked where it is made.

Owns names, types, defaults and ranges; what learning itself is made of is `config_learning.py`. Reading and writing
them is `settings.py`, the named sets of them `recipes.py`. Imports nothing heavy: the command's help reads this file.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from resnettrain.config_checks import at_least, positive, within
from resnettrain.config_learning import (
    AugmentConfig,
    EmaConfig,
    LossConfig,
    ModelConfig,
    OptimConfig,
    ResolutionConfig,
    ScheduleConfig,
)
from resnettrain.errors import ConfigError

if TYPE_CHECKING:
    from wdsloader import CacheConfig

__all__ = [
    "AugmentConfig",
    "CheckpointConfig",
    "DataConfig",
    "DistributedConfig",
    "EmaConfig",
    "EvalConfig",
    "LogConfig",
    "LossConfig",
    "ModelConfig",
    "OptimConfig",
    "ResolutionConfig",
    "RuntimeConfig",
    "ScheduleConfig",
    "TrainConfig",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """Where samples come from.

    `pipeline` "lanes" is wdsloader's exact order, "source" the source's own webdataset code, "synthetic" one made-up
    batch and no data: compute alone. `one_batch`: the first batch over and over, to be learnt by heart;
    what chance does to pictures and label smoothing are off then, unless they are set.
    `batch_size` is per rank.
    `on_error` "skip" passes over samples that cannot be delivered, until more than `max_skipped` of an epoch were: a
    number of samples, or a share of the epoch. `decode` "gpu" leaves ordinary JPEGs to the CUDA device, for machines
    with few cores for each GPU. `num_workers` None is the pipeline's own default: a worker a core, or 4.
    `cache_limit` is a size (`200GiB`) or a share of the disk (`30%`);
    `cache_ignore_query` names fields of a URL's query that do not tell one shard from another (`X-Amz-*`).
    `global_batch_size`, that of all ranks together, is what the learning rate and a resume go by; given, it says what
    `batch_size` is.
    """

    urls: tuple[str, ...] = ()
    val_urls: tuple[str, ...] = ()
    cache_dir: Path | None = None
    cache_limit: str | None = None
    cache_ignore_query: tuple[str, ...] = ()
    allow_commands: bool = False
    pipeline: Literal["lanes", "source", "synthetic"] = "lanes"
    one_batch: bool = False
    batch_size: int = 64
    global_batch_size: int | None = None
    num_workers: int | None = None
    lanes: int | None = None
    exact: bool = False
    on_error: Literal["stop", "skip"] = "stop"
    max_skipped: int | float = 0.01
    decode: Literal["cpu", "gpu"] = "cpu"

    def __post_init__(self) -> None:
        at_least("data.batch_size", self.batch_size, low=1)
        if self.global_batch_size is not None:
            at_least("data.global_batch_size", self.global_batch_size, low=1)
        if self.num_workers is not None:
            at_least("data.num_workers", self.num_workers, low=0)
        if self.lanes is not None:
            at_least("data.lanes", self.lanes, low=1)
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
class EvalConfig:
    """How a model is evaluated. `image_size` None: as it is trained. `flip`: also with the mean over the mirrored.

    `weights`: those of the moving average where there is one ("auto"), the model's own, or both, one after the other.
    `classes`: also what was taken for what, class by class. `cache` keeps the decoded pictures on the device after the
    first evaluation ("on"), on CUDA where they take less than a third of the free memory ("auto"), or never.
    """

    image_size: int | None = None
    flip: bool = False
    weights: Literal["auto", "model", "both"] = "auto"
    classes: bool = False
    cache: Literal["auto", "on", "off"] = "auto"

    def __post_init__(self) -> None:
        if self.image_size is not None:
            at_least("eval.image_size", self.image_size, low=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """Where and how it is computed. None: channels_last on CUDA, deterministic on the CPU, torch's own threads.

    `micro_batches` cuts the batch of a rank into so many, whose gradients are added up before the update: less memory,
    the same batch. `compile` is a mode of torch.compile, for training alone. `gc_every`: Python's cycle collector runs
    after so many updates, instead of when it likes; 0 leaves it alone. `profile`: so many updates are traced.
    """

    device: str = "auto"
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"
    channels_last: bool | None = None
    threads: int | None = None
    deterministic: bool | None = None
    micro_batches: int = 1
    compile: Literal["off", "default", "reduce-overhead", "max-autotune"] = "off"
    gc_every: int = 1000
    profile: int | None = None

    def __post_init__(self) -> None:
        # Others lack float64 or the fused optimizer, which the figures and the guard over the loss rest on.
        if not re.fullmatch(r"auto|(cpu|cuda)(:\d+)?", self.device):
            raise ConfigError(
                f"runtime.device: '{self.device}' is no device for training; use auto, cpu, cuda or cuda:0."
            )
        if self.threads is not None:
            at_least("runtime.threads", self.threads, low=1)
        at_least("runtime.micro_batches", self.micro_batches, low=1)
        at_least("runtime.gc_every", self.gc_every, low=0)
        if self.profile is not None:
            at_least("runtime.profile", self.profile, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedConfig:
    """How the ranks of a run go together.

    `sync_norm` normalizes over the batches of all ranks (CUDA alone). `agree_every`: so many updates lie between two
    questions whether to stop, the answer to which is read at the next.
    """

    sync_norm: bool = False
    agree_every: int = 4

    def __post_init__(self) -> None:
        at_least("distributed.agree_every", self.agree_every, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """When a checkpoint is written, and how many of the newest are kept; the best one is kept beside them.

    One is always written at the end, and one after a validation that is the best so far. So many minutes after the last
    one (`every_minutes`; 0: never) another is written between two steps, so that a kill costs no more work than that.
    `background` writes them in a thread, while the training goes on.
    """

    every_epochs: int = 1
    every_updates: int | None = None
    every_minutes: float = 15.0
    keep: int = 3
    background: bool = True

    def __post_init__(self) -> None:
        at_least("checkpoint.every_epochs", self.every_epochs, low=1)
        at_least("checkpoint.keep", self.keep, low=1)
        within("checkpoint.every_minutes", self.every_minutes, low=0.0, high=math.inf)
        if self.every_updates is not None:
            at_least("checkpoint.every_updates", self.every_updates, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """When a report is made: every `every_s` seconds, once more than `min_steps` losses are there.

    A report is the mean of the last `window_steps` steps. `at_epoch_end` adds one at the end of each epoch.
    `tensorboard`: they are written as events too. `peak_tflops`: what one device computes at most, in 1e12 operations a
    second, for the share of it that the run makes use of (MFU); None: that of devices known here.
    """

    every_s: float = 5.0
    window_steps: int = 100
    min_steps: int = 0
    at_epoch_end: bool = True
    tensorboard: bool = False
    peak_tflops: float | None = None

    def __post_init__(self) -> None:
        within("log.every_s", self.every_s, low=0.0, high=math.inf)
        if self.peak_tflops is not None:
            positive("log.peak_tflops", self.peak_tflops)
        at_least("log.window_steps", self.window_steps, low=1)
        at_least("log.min_steps", self.min_steps, low=0)


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
    resolution: ResolutionConfig = field(default_factory=ResolutionConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    ema: EmaConfig = field(default_factory=EmaConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    distributed: DistributedConfig = field(default_factory=DistributedConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed: {self.seed} must be in 0..{2**32 - 1}.")
        parts = self.runtime.micro_batches
        if self.data.batch_size % parts:
            raise ConfigError(f"runtime.micro_batches: {parts} do not divide data.batch_size {self.data.batch_size}.")
        start = self.resolution.start_size
        if start is not None and start > self.model.image_size:
            raise ConfigError(
                f"resolution.start_size: {start} must be at most model.image_size {self.model.image_size}; set both."
            )

    @property
    def peak_lr(self) -> float:
        """Return the highest learning rate of the run: `optim.lr`, or the rule of `optim.lr_per_256`."""
        if self.optim.lr is not None:
            return self.optim.lr
        return self.optim.lr_per_256 * (self.data.global_batch_size or self.data.batch_size) / 256
