from __future__ import annotations

from collections.abc import Callable

import pytest

from resnettrain import (
    AugmentConfig,
    ConfigError,
    DataConfig,
    EmaConfig,
    ModelConfig,
    OptimConfig,
    ResolutionConfig,
    RuntimeConfig,
    ScheduleConfig,
    TrainConfig,
)


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: DataConfig(batch_size=0), "data.batch_size"),
        (lambda: ModelConfig(image_size=0), "model.image_size"),
        (lambda: OptimConfig(lr=float("nan")), "optim.lr"),
        (lambda: OptimConfig(lr=0.0), "optim.lr"),
        (lambda: OptimConfig(momentum=0.0), "optim.nesterov"),
        (lambda: ScheduleConfig(epochs=0), "schedule.epochs"),
        (lambda: ScheduleConfig(epochs=2, warmup_epochs=2.0), "schedule.warmup_epochs"),
        (lambda: ScheduleConfig(max_samples=0), "schedule.max_samples"),
        (lambda: ScheduleConfig(warmup_start=0.0), "schedule.warmup_start"),
        (lambda: AugmentConfig(scale=(0.5, 0.1)), "augment.scale"),
        (lambda: AugmentConfig(mixup=1.5), "augment.mixup"),
        (lambda: OptimConfig(clip_norm=0.0), "optim.clip_norm"),
        (lambda: OptimConfig(betas=(0.9, 1.0)), "optim.betas"),
        (lambda: EmaConfig(decay=1.0), "ema.decay"),
        (lambda: ResolutionConfig(start_size=160, ramp_start=3, ramp_end=2), "resolution.ramp_end"),
        (lambda: TrainConfig(resolution=ResolutionConfig(start_size=256)), "resolution.start_size"),
        (lambda: TrainConfig(runtime=RuntimeConfig(micro_batches=3)), "runtime.micro_batches"),
        (lambda: TrainConfig(seed=2**32), "seed"),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_key(make: Callable[[], object], key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: "):
        make()


@pytest.mark.parametrize(("epochs", "warmup"), [(1, 0.125), (16, 2.0), (40, 5.0), (90, 5.0)])
def test_automatic_warmup_is_an_eighth_of_the_epochs_and_at_most_five(epochs: int, warmup: float) -> None:
    assert ScheduleConfig(epochs=epochs).warmup == warmup


def test_peak_lr_follows_the_rule_unless_it_is_given() -> None:
    assert TrainConfig(data=DataConfig(batch_size=512)).peak_lr == pytest.approx(0.2)
    assert TrainConfig(data=DataConfig(batch_size=512), optim=OptimConfig(lr=0.3)).peak_lr == 0.3
