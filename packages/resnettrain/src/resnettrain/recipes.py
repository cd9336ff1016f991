"""Named sets of settings. Each says where it comes from and which figures are published or measured for it.

Nothing is measured here yet on ImageNet: no recipe below claims an accuracy. Imports nothing heavy.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from resnettrain.config import (
    CheckpointConfig,
    DataConfig,
    LogConfig,
    LossConfig,
    ModelConfig,
    OptimConfig,
    RuntimeConfig,
    ScheduleConfig,
    TrainConfig,
)
from resnettrain.errors import ConfigError

__all__ = ["DEFAULT_RECIPE", "RECIPES", "Recipe", "recipe"]

DEFAULT_RECIPE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A named configuration and what is known about it.

    `published` are figures of others, `measured` our own; None means that there is none.
    """

    name: str
    summary: str
    source: str
    published: str | None
    measured: str | None
    notes: tuple[str, ...]
    build: Callable[[], TrainConfig]


def _seed() -> TrainConfig:
    from wdsloader import SourceConfig

    source = SourceConfig()
    return TrainConfig(
        recipe="seed",
        data=DataConfig(
            urls=source.urls,
            pipeline="source",
            batch_size=source.batch_size,
            num_workers=source.num_workers,
            cache_dir=source.cache_dir,
        ),
        model=ModelConfig(name="resnet50", num_classes=1000, image_size=224),
        optim=OptimConfig(lr=0.01, momentum=0.9, weight_decay=5e-4, nesterov=False, no_decay_1d=False),
        schedule=ScheduleConfig(kind="constant", epochs=1, warmup_epochs=0.0, stop_rule="exceed"),
        loss=LossConfig(label_smoothing=0.0),
        runtime=RuntimeConfig(precision="fp32", channels_last=False),
        checkpoint=CheckpointConfig(every_epochs=1),
        log=LogConfig(every_s=5.0, window_steps=100, min_steps=5, at_epoch_end=False),
    )


def _default() -> TrainConfig:
    return TrainConfig(recipe="default")


RECIPES: dict[str, Recipe] = {
    "default": Recipe(
        name="default",
        summary="ours: exact epochs, warm-up and cosine, no decay on 1-d parameters, label smoothing, bf16 on CUDA",
        source="house settings; peak lr = 0.1 x batch / 256 after Goyal et al. 2017 (arXiv 1706.02677)",
        published=None,
        measured=None,
        notes=(
            "--max-steps counts samples and ends the run as soon as they are reached: 64 is one batch of 64.",
            "Warm-up is an eighth of the epochs, at most five; the cosine ends at 0 with the last epoch.",
            "Training leaves out the last (samples mod batch) of each epoch's order; validation leaves out nothing.",
        ),
        build=_default,
    ),
    "seed": Recipe(
        name="seed",
        summary="the source's own training loop: SGD lr 0.01, momentum 0.9, decay 5e-4 on everything, one epoch",
        source="the guide this project starts from, after webdataset's train-resnet50-wds notebook",
        published=None,
        measured=None,
        notes=(
            "--max-steps counts samples; the run ends once they are exceeded, as there: 64 is two batches of 64.",
            "Shards are drawn with replacement: an epoch is 2,003 batches and repeats and misses samples.",
            "The stream has no position, so a run of this recipe cannot be resumed; its checkpoint can be evaluated.",
            "The lr stays at 0.01; the source's batchsize = 32 is never used there, its pipeline says 64.",
        ),
        build=_seed,
    ),
}


def recipe(name: str) -> TrainConfig:
    """Return the settings of a recipe.

    Raises: ConfigError: no recipe of that name; the nearest one is named.
    """
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(sorted(RECIPES))}."
        raise ConfigError(f"recipe: there is no '{name}'. {hint}")
    return RECIPES[name].build()
