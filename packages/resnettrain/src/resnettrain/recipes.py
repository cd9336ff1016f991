"""Named sets of settings. Each says where it comes from and which figures are published or measured for it.

Nothing is measured here yet on ImageNet: no recipe below claims an accuracy of ours. Imports nothing heavy.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from resnettrain.config import (
    AugmentConfig,
    CheckpointConfig,
    DataConfig,
    EmaConfig,
    EvalConfig,
    LogConfig,
    LossConfig,
    ModelConfig,
    OptimConfig,
    ResolutionConfig,
    RuntimeConfig,
    ScheduleConfig,
    TrainConfig,
)
from resnettrain.errors import ConfigError

__all__ = ["DEFAULT_RECIPE", "RECIPES", "Published", "Recipe", "recipe"]

DEFAULT_RECIPE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A figure of others on ImageNet-1k: top-1 in per cent, how it was evaluated, what it cost. None: not published."""

    top1: float
    protocol: str
    cost: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A named configuration and what is known about it.

    `published` is what others report for the settings it follows, `measured` what we have measured with it; None means
    that there is none.
    """

    name: str
    summary: str
    source: str
    published: Published | None
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


def _ffcv(name: str, *, epochs: int, ramp: tuple[int, int]) -> TrainConfig:
    return TrainConfig(
        recipe=name,
        data=DataConfig(batch_size=512),
        model=ModelConfig(name="resnet50", image_size=192, antialias=True),
        # 1.7 at the source's global batch of 4096.
        optim=OptimConfig(lr_per_256=0.10625, nesterov=False, weight_decay=1e-4),
        schedule=ScheduleConfig(kind="linear", epochs=epochs, warmup_epochs=2.0, warmup_start=1e-4),
        resolution=ResolutionConfig(start_size=160, ramp_start=ramp[0], ramp_end=ramp[1]),
        eval=EvalConfig(image_size=256, flip=True),
    )


def _ffcv16() -> TrainConfig:
    return _ffcv("ffcv16", epochs=16, ramp=(11, 13))


def _ffcv32() -> TrainConfig:
    return _ffcv("ffcv32", epochs=32, ramp=(23, 27))


def _ffcv88() -> TrainConfig:
    return _ffcv("ffcv88", epochs=88, ramp=(65, 76))


def _torchvision_v1() -> TrainConfig:
    return TrainConfig(
        recipe="torchvision_v1",
        data=DataConfig(batch_size=32),
        model=ModelConfig(name="resnet50", image_size=224),
        optim=OptimConfig(lr_per_256=0.1, nesterov=False, weight_decay=1e-4, no_decay_1d=False),
        schedule=ScheduleConfig(kind="step", epochs=90, warmup_epochs=0.0, step_epochs=30, step_factor=0.1),
        loss=LossConfig(label_smoothing=0.0),
    )


def _torchvision_v2() -> TrainConfig:
    return TrainConfig(
        recipe="torchvision_v2",
        data=DataConfig(batch_size=128),
        model=ModelConfig(name="resnet50", image_size=176),
        # 0.5 at the source's global batch of 1024.
        optim=OptimConfig(lr_per_256=0.125, nesterov=False, weight_decay=2e-5),
        schedule=ScheduleConfig(kind="cosine", epochs=600, warmup_epochs=5.0, warmup_start=0.01),
        augment=AugmentConfig(policy="trivial", mixup=0.2, cutmix=1.0, erasing=0.1),
        loss=LossConfig(label_smoothing=0.1),
        # There 1 - decay is 2e-5 x 1024 x 32 / 600 for 32 updates; this is the 32nd root of it.
        ema=EmaConfig(decay=0.99996585, every=32, warmup=False),
        eval=EvalConfig(image_size=224),
    )


def _rsb_a3() -> TrainConfig:
    return TrainConfig(
        recipe="rsb_a3",
        data=DataConfig(batch_size=512),
        model=ModelConfig(name="resnet50", image_size=160, zero_init_residual=True),
        # 8e-3 at the source's global batch of 2048. timm's LAMB bounds the norm of the gradients by 1 on its own.
        optim=OptimConfig(kind="lamb", lr_per_256=0.001, weight_decay=0.02, clip_norm=1.0),
        schedule=ScheduleConfig(kind="cosine", epochs=100, warmup_epochs=5.0, warmup_start=0.0125),
        augment=AugmentConfig(policy="rand", rand_ops=2, rand_magnitude=0.6, mixup=0.1, cutmix=1.0),
        loss=LossConfig(kind="bce", label_smoothing=0.0, bce_threshold=0.2),
        eval=EvalConfig(image_size=224),
    )


def _fine_tune() -> TrainConfig:
    return TrainConfig(
        recipe="fine-tune",
        optim=OptimConfig(lr_per_256=0.01, weight_decay=1e-4),
        schedule=ScheduleConfig(kind="cosine", epochs=10, warmup_epochs=0.5),
        augment=AugmentConfig(scale=(0.25, 1.0)),
    )


_FFCV_SOURCE = "libffcv/ffcv-imagenet, rn50_configs and train_imagenet.py; accuracy and time from its README"
_FFCV_NOTES = (
    "Pictures grow from 160 to 192 pixels; evaluated at 256, with the flip reported apart: compare that one.",
    "The rate follows the batch: 1.7 at 8 ranks x 512, as there. One rank: --batch-size 4096, runtime.micro_batches.",
    "There fp16, here what the device has. There the 8 norm tensors of the shortcuts are decayed, here none is.",
)


def _ffcv_recipe(epochs: int, *, build: Callable[[], TrainConfig], top1: float, minutes: float) -> Recipe:
    return Recipe(
        name=f"ffcv{epochs}",
        summary=f"ffcv-imagenet's ResNet-50 of {epochs} epochs: growing pictures, BlurPool, linear schedule",
        source=_FFCV_SOURCE,
        published=Published(
            top1=top1,
            protocol=f"{epochs} epochs, trained at 160 to 192 px, evaluated at 256 px with flip TTA",
            cost=f"{minutes} min on 8 A100",
        ),
        measured=None,
        notes=_FFCV_NOTES,
        build=build,
    )


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
    "ffcv16": _ffcv_recipe(16, build=_ffcv16, top1=73.76, minutes=14.9),
    "ffcv32": _ffcv_recipe(32, build=_ffcv32, top1=76.59, minutes=28.7),
    "ffcv88": _ffcv_recipe(88, build=_ffcv88, top1=78.43, minutes=77.2),
    "torchvision_v1": Recipe(
        name="torchvision_v1",
        summary="torchvision's first weights: 90 epochs, a tenth of the rate every 30, no smoothing",
        source="pytorch/vision references/classification; ResNet50_Weights.IMAGENET1K_V1",
        published=Published(top1=76.13, protocol="90 epochs at 224 px, evaluated at 224 px of 256, no TTA", cost=None),
        measured=None,
        notes=(
            "There 8 ranks x 32 at lr 0.1; the rate follows the batch.",
            "Weight decay is on everything, norms and biases too, as there. There fp32; here what the device has.",
        ),
        build=_torchvision_v1,
    ),
    "torchvision_v2": Recipe(
        name="torchvision_v2",
        summary="torchvision's second weights: 600 epochs, TrivialAugment, mixup, cutmix, erasing, average of weights",
        source="pytorch/vision references/classification, issue 3995; ResNet50_Weights.IMAGENET1K_V2",
        published=Published(
            top1=80.858,
            protocol="600 epochs at 176 px, evaluated at 224 px of 232, no TTA, averaged weights",
            cost=None,
        ),
        measured=None,
        notes=(
            "Left out: repeated augmentation (each picture four times in an epoch of a quarter of them).",
            "Evaluated here at 224 px of 256. There 8 ranks x 128 at lr 0.5; the rate follows the batch.",
            "TrivialAugment, erasing and mixing are done on the device, on the batch after crop and flip, as there.",
            "There the bias of the head is decayed, here no bias and no norm is.",
            "The decay of the average is for 600 epochs at a global batch of 1024: with others, set ema.decay anew.",
            "The norms' own averages are copied into the average; there they are averaged once more.",
        ),
        build=_torchvision_v2,
    ),
    "rsb_a3": Recipe(
        name="rsb_a3",
        summary="ResNet strikes back, procedure A3: 100 epochs at 160 pixels, LAMB, binary cross-entropy",
        source="Wightman, Touvron and Jégou 2021 (arXiv 2110.00476); accuracy from timm's results-imagenet.csv",
        published=Published(top1=78.05, protocol="100 epochs at 160 px, evaluated at 224 px, no TTA", cost=None),
        measured=None,
        notes=(
            "There a global batch of 2048 at lr 0.008, from 1e-4 and down to 1e-6, here to 0.",
            "RandAugment is torchvision's at 0.6 of its strongest; there timm's own (rand-m6-mstd0.5-inc1).",
            "A class is right where its share in a mixed picture is above 0.2.",
            "Evaluated here at 224 px of 256, there of 236.",
        ),
        build=_rsb_a3,
    ),
    "fine-tune": Recipe(
        name="fine-tune",
        summary="ours: go on from trained weights on other classes, 10 epochs at a tenth of the rate, milder crops",
        source="house settings",
        published=None,
        measured=None,
        notes=(
            "model.init names the weights to start from; the head is new where its shape is another.",
            "All weights are trained, none are frozen.",
        ),
        build=_fine_tune,
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
