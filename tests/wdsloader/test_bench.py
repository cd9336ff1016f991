from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.helpers.damaged import write_with_bad_pictures
from tests.helpers.shards import write_samples
from wdsloader import (
    AugmentConfig,
    DatasetError,
    Delivery,
    LoaderConfig,
    SampleView,
    StageTimes,
    measure_delivery,
    measure_stages,
    open_dataset,
    verdict_of,
)

CONFIG = LoaderConfig(batch_size=4, image_size=16, augment=AugmentConfig(), num_workers=0)


def slow(sample: SampleView, _: np.random.Generator) -> npt.NDArray[np.uint8] | None:
    for _again in range(20):
        np.sort(np.random.Generator(np.random.Philox(1)).random(3000))
    return sample.image


def stages(*, read: float = 1.0, decode: float = 1.0, transform: float = 0.0) -> StageTimes:
    """Seconds for a thousand samples."""
    return StageTimes(samples=1000, read_bytes=1000, read_s=read, decode_s=decode, transform_s=transform)


def delivery(*, seconds: float, num_workers: int = 2) -> Delivery:
    return Delivery(num_workers=num_workers, samples=1000, seconds=seconds, first_s=0.1)


def test_the_stages_are_timed_apart(tmp_path: Path) -> None:
    dataset = open_dataset([str(write_samples(tmp_path / "s.tar", 9, size=(200, 160)))])
    plain = measure_stages(dataset, CONFIG, seconds=0.2)
    assert plain.samples > 9
    assert plain.read_s > 0
    assert plain.decode_s > 0
    assert plain.transform_s == 0
    hooked = measure_stages(dataset, replace(CONFIG, transform=slow), seconds=0.2)
    assert hooked.transform_s > hooked.decode_s


def test_bad_samples_are_passed_over(tmp_path: Path) -> None:
    dataset = open_dataset([str(write_with_bad_pictures(tmp_path / "s.tar", 9, bad={4}))])
    assert measure_stages(dataset, CONFIG, seconds=0.1).samples > 0


def test_delivery_is_timed_behind_the_first_batch_also_over_many_epochs(tmp_path: Path) -> None:
    dataset = open_dataset([str(write_samples(tmp_path / "s.tar", 5))])
    measured = measure_delivery(dataset, CONFIG, seconds=0.2)
    assert measured.samples > 5
    assert 0.1 < measured.seconds < 5
    assert measured.images_per_s == pytest.approx(measured.samples / measured.seconds)


def test_rows_that_only_fill_a_batch_count_for_nothing(tmp_path: Path) -> None:
    dataset = open_dataset([str(write_samples(tmp_path / "s.tar", 3))])
    padded = replace(CONFIG, batch_size=64, tail="pad")
    measured = measure_delivery(dataset, padded, seconds=0.05)
    # Every batch is an epoch of three samples; 64 such batches take longer than that.
    assert measured.samples % 64 > 0
    assert measured.samples % 3 == 0


def test_shards_without_counts_cannot_be_timed_by_stage(tmp_path: Path) -> None:
    dataset = open_dataset(["http://host/s-0.tar"], cache_dir=tmp_path)
    with pytest.raises(DatasetError, match="wds index"):
        measure_stages(dataset, CONFIG, seconds=0.1)


@pytest.mark.parametrize(
    ("stage", "seconds", "workers", "remote", "bottleneck", "advice"),
    [
        (stages(read=8), 4.6, 2, True, "read", "--cache-dir"),
        (stages(read=8), 4.6, 2, False, "read", "more workers: 2 of 4 cores"),
        (stages(decode=8), 4.6, 2, False, "decode", "--workers 4"),
        (stages(decode=8), 2.3, 4, False, "decode", "smaller pictures"),
        (stages(transform=8), 5.1, 2, False, "transform", "cheaper transform"),
        (stages(), 4.0, 2, False, "transport", "smaller --image-size"),
        (stages(), 4.0, 16, False, "transport", "fewer workers: 16 share 4 cores"),
    ],
)
def test_the_verdict_names_the_slowest_stage_and_what_to_change(
    stage: StageTimes, seconds: float, workers: int, remote: bool, bottleneck: str, advice: str
) -> None:
    verdict = verdict_of(stage, delivery(seconds=seconds, num_workers=workers), remote=remote, cores=4)
    assert verdict.bottleneck == bottleneck
    assert advice in verdict.advice
    assert 0 < verdict.share <= 1


def test_the_wait_is_what_training_could_take_and_does_not_get() -> None:
    slow_loader = verdict_of(stages(), delivery(seconds=10), remote=False, rate=400, cores=4)
    assert slow_loader.wait_share == pytest.approx(0.75)
    enough = verdict_of(stages(), delivery(seconds=1), remote=False, rate=400, cores=4)
    assert enough.wait_share == 0
    assert enough.advice.startswith("nothing: 1000 images/s")
