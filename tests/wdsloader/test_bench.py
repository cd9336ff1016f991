from __future__ import annotations

import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.damaged import write_with_bad_pictures
from tests.helpers.http_server import serve
from tests.helpers.shards import write_samples
from wdsloader import (
    AugmentConfig,
    Delivery,
    LoaderConfig,
    SampleView,
    StageTimes,
    Verdict,
    bench,
    compared_workers,
    load_average,
    measure_delivery,
    measure_stages,
    open_dataset,
    verdict_of,
)

CONFIG = LoaderConfig(batch_size=4, image_size=16, augment=AugmentConfig(), num_workers=0)


def slow(sample: SampleView, _: np.random.Generator) -> npt.NDArray[np.uint8] | None:
    """Take 20 steps of a clock that makes a step each time it is looked at."""
    for _again in range(20):
        time.perf_counter()
    return sample.image


def stages(*, read: float = 1.0, decode: float = 1.0, transform: float = 0.0, cpu: float = 1.0) -> StageTimes:
    """Seconds for a thousand samples. Args: cpu: share of a core that decoding had."""
    return StageTimes(
        samples=1000, read_bytes=1000, read_s=read, decode_s=decode, decode_cpu_s=decode * cpu, transform_s=transform
    )


def delivery(*, seconds: float, num_workers: int = 2) -> Delivery:
    return Delivery(num_workers=num_workers, samples=1000, seconds=seconds, first_s=0.1)


def test_the_stages_are_timed_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_dataset([str(write_samples(tmp_path / "s.tar", 9, size=(200, 160)))])
    plain = measure_stages(dataset, CONFIG, seconds=0.5)
    assert plain.samples > 9
    assert plain.read_s > 0
    assert plain.decode_s > 0
    assert 0 < plain.decode_cpu_s < 1.1 * plain.decode_s
    assert plain.transform_s == 0
    ticks = count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) * 0.001)
    hooked = measure_stages(dataset, replace(CONFIG, transform=slow), seconds=0.5)
    assert hooked.samples > 9
    assert hooked.decode_s == pytest.approx(hooked.samples * 0.001)
    assert hooked.transform_s == pytest.approx(hooked.samples * 0.020)


def test_bad_samples_are_passed_over(tmp_path: Path) -> None:
    dataset = open_dataset([str(write_with_bad_pictures(tmp_path / "s.tar", 9, bad={4}))])
    assert measure_stages(dataset, CONFIG, seconds=0.1).samples > 0


def test_delivery_is_timed_behind_the_first_batch_also_over_many_epochs(tmp_path: Path) -> None:
    dataset = open_dataset([str(write_samples(tmp_path / "s.tar", 5))])
    measured = measure_delivery(dataset, CONFIG, seconds=0.5)
    assert measured.samples > 5
    assert measured.seconds >= 0.5
    assert measured.images_per_s == pytest.approx(measured.samples / measured.seconds)


def test_rows_that_only_fill_a_batch_count_for_nothing(tmp_path: Path) -> None:
    dataset = open_dataset([str(write_samples(tmp_path / "s.tar", 3))])
    padded = replace(CONFIG, batch_size=64, tail="pad")
    # So short that the second batch is the last; each is an epoch of three samples.
    assert measure_delivery(dataset, padded, seconds=1e-9).samples == 3


def test_shards_without_counts_are_timed_as_they_are_streamed(tmp_path: Path) -> None:
    write_samples(tmp_path / "far/s-0.tar", 7)
    with serve(tmp_path / "far") as server, open_dataset([server.url + "/s-0.tar"], cache_dir=tmp_path) as dataset:
        measured = measure_stages(dataset, replace(CONFIG, shuffle=True), seconds=1.0)
    assert measured.samples > 7
    assert measured.read_s > 0


@pytest.mark.parametrize("remote", [True, False])
def test_a_set_without_a_good_sample_is_not_timed_for_ever(tmp_path: Path, remote: bool) -> None:
    write_with_bad_pictures(tmp_path / "far/s-0.tar", 3, bad={0, 1, 2})
    with serve(tmp_path / "far") as server:
        place = server.url + "/s-0.tar" if remote else str(tmp_path / "far/s-0.tar")
        with open_dataset([place], cache_dir=tmp_path / "cache") as dataset:
            assert measure_stages(dataset, replace(CONFIG, batch_size=1), seconds=0.05).samples == 0


def verdict(
    stage: StageTimes, *, seconds: float, workers: int, other_s: float, remote: bool = False, rate: float | None = None
) -> Verdict:
    """On four cores. Args: other_s: seconds for a thousand samples with as many workers as are compared."""
    other = delivery(seconds=other_s, num_workers=compared_workers(workers, cores=4))
    measured = delivery(seconds=seconds, num_workers=workers)
    return verdict_of(stage, measured, other=other, remote=remote, rate=rate, cores=4)


@pytest.mark.parametrize(
    ("stage", "seconds", "workers", "other_s", "remote", "bottleneck", "num_workers", "advice"),
    [
        (stages(read=8), 4.6, 2, 9.0, True, "read", 4, "more workers (--workers 4): 2 share 4 cores; or keep the "),
        (stages(read=8), 2.3, 4, 9.0, True, "read", None, "keep the shards in a local cache (--cache-dir)"),
        (stages(read=8), 2.3, 4, 9.0, False, "read", None, "put the shards on a faster disk"),
        (stages(decode=8), 4.6, 2, 9.0, False, "decode", 4, "more workers (--workers 4)"),
        (stages(decode=8), 2.3, 4, 9.0, False, "decode", None, "pack with --crop-ready or smaller pictures"),
        (stages(decode=8), 9.1, 0, 2.5, False, "decode", 4, "--workers 4: 400 images/s were measured with it, not 110"),
        (stages(decode=8), 9.1, 0, 8.9, False, "decode", None, "pack with --crop-ready or smaller pictures"),
        (stages(transform=8), 2.6, 4, 9.0, False, "transform", None, "use a cheaper transform"),
        (stages(decode=5), 5.0, 4, 6.1, False, "transport", None, "take a smaller --image-size or batch"),
        (stages(), 4.0, 2, 2.1, False, "transport", 0, "--workers 0: 476 images/s were measured with it, not 250"),
        (stages(decode=8), 2.6, 16, 9.0, False, "decode", 4, "fewer workers (--workers 4): 16 share 4 cores"),
    ],
)  # fmt: skip
def test_the_verdict_names_one_stage_and_what_to_change(
    stage: StageTimes,
    seconds: float,
    workers: int,
    other_s: float,
    remote: bool,
    bottleneck: str,
    num_workers: int | None,
    advice: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench, "HAS_KERNEL", True)
    found = verdict(stage, seconds=seconds, workers=workers, other_s=other_s, remote=remote)
    assert (found.bottleneck, found.num_workers) == (bottleneck, num_workers)
    assert found.advice.startswith(advice)
    assert 0 < found.share <= 1


def test_without_the_kernel_the_advice_on_decoding_is_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "HAS_KERNEL", False)
    found = verdict(stages(decode=8), seconds=2.3, workers=4, other_s=9.0)
    assert found.advice.startswith("install the kernel")


@given(
    costs=st.tuples(*[st.floats(0.01, 10)] * 3),
    overhead=st.floats(0, 10),
    crowding=st.floats(0, 1),
    start=st.integers(0, 40),
    cores=st.integers(1, 32),
)
def test_whoever_follows_the_advice_on_workers_is_never_sent_back(
    costs: tuple[float, float, float], overhead: float, crowding: float, start: int, cores: int
) -> None:
    """On any machine: what a worker's way costs, and how much of each further core the others take away."""
    stage = stages(read=costs[0], decode=costs[1], transform=costs[2])

    def delivered(workers: int) -> Delivery:
        at_work = min(max(workers, 1), cores)
        seconds = sum(costs) / (1 + (at_work - 1) * (1 - crowding)) + overhead * (workers > 0)
        return Delivery(num_workers=workers, samples=1000, seconds=seconds, first_s=0.1)

    tried: list[int] = []
    wanted: int | None = start
    while wanted is not None:
        assert wanted not in tried
        tried.append(wanted)
        other = delivered(compared_workers(wanted, cores=cores))
        wanted = verdict_of(stage, delivered(wanted), other=other, remote=False, cores=cores).num_workers


def test_the_wait_is_what_training_could_take_and_does_not_get() -> None:
    assert verdict(stages(), seconds=10, workers=2, other_s=10, rate=400).wait_share == pytest.approx(0.75)
    enough = verdict(stages(), seconds=1, workers=2, other_s=0.1, rate=400)
    assert (enough.wait_share, enough.num_workers) == (0, None)
    assert enough.advice.startswith("nothing: 1000 images/s")


@pytest.mark.parametrize(
    ("cpu", "load", "words"),
    [
        (0.6, 0.0, "decoding had a core for 60% of its time"),
        (1.0, 1000.0, "a load of 1000.0 before it was measured"),
        (0.5, 1000.0, "a load of 1000.0 before it was measured, decoding had a core for 50% of its time"),
    ],
)
def test_where_others_were_at_work_it_says_so_and_blames_no_transport(cpu: float, load: float, words: str) -> None:
    lost = delivery(seconds=5.0, num_workers=4), delivery(seconds=6.0, num_workers=0)
    alone = verdict_of(stages(decode=5), lost[0], other=lost[1], remote=False, cores=4, load=0.0)
    assert (alone.bottleneck, alone.disturbed) == ("transport", None)
    among = verdict_of(stages(decode=5, cpu=cpu), lost[0], other=lost[1], remote=False, cores=4, load=load)
    assert (among.bottleneck, among.disturbed) == ("decode", words)


@pytest.mark.parametrize(("other_s", "workers"), [(2.1, 0), (3.9, None), (9.0, None)])
def test_no_workers_are_advised_exactly_where_they_were_measured_faster(other_s: float, workers: int | None) -> None:
    for load in (0.0, 1000.0):
        measured = delivery(seconds=4.0, num_workers=4), delivery(seconds=other_s, num_workers=0)
        found = verdict_of(stages(), measured[0], other=measured[1], remote=False, cores=4, load=load)
        assert found.num_workers == workers
        assert ("--workers 0" in found.advice) == (workers == 0)


def test_a_machine_tells_its_load() -> None:
    load = load_average()
    assert load is None or load >= 0
