"""Where the time of loading goes: read, decode, transform, transport; and what to change. Measures on the user's data.

The stages are timed one by one in this process, sample after sample as a worker takes them; the delivery is timed over
whole batches with the workers asked for. What delivery costs beyond the stages is the transport. The verdict measures
nothing: it follows from the figures, and from whether the kernel is here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from wdsloader.config import LoaderConfig
from wdsloader.dataset import Dataset
from wdsloader.decode import HAS_KERNEL
from wdsloader.errors import SampleError
from wdsloader.machine import usable_cores
from wdsloader.mixing import MixedDataset
from wdsloader.pipeline import LaneRows, WorkerTask
from wdsloader.reading import PolicyReader
from wdsloader.rows import Identity, decode_sample
from wdsloader.session import order_of, plan_of, schedule_of
from wdsloader.shards import StoredSample
from wdsloader.streaming import StreamTask, stored_in, stream_samples

__all__ = [
    "Delivery",
    "StageTimes",
    "Verdict",
    "compared_workers",
    "load_average",
    "measure_delivery",
    "measure_stages",
    "verdict_of",
]

_STAGES = ("read", "decode", "transform")
# Beyond what the stages explain, this much more is the transport's doing and not chance.
_TRANSPORT_SHARE = 0.4
# Decoding waits for nothing: with a lower share of a core, or with more processes for each core of the machine before
# anything is measured, others are at work.
_WHOLE_CORE, _QUIET_LOAD = 0.9, 0.25
# So much faster is no chance either: two measurements of 3 s on a shared machine differ by less.
_BETTER = 1.15


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Seconds of one process for ``samples`` samples; ``read_bytes``: of their members.

    ``decode_cpu_s``: seconds of ``decode_s`` in which a core was at work on it.
    """

    samples: int
    read_bytes: int
    read_s: float
    decode_s: float
    decode_cpu_s: float
    transform_s: float

    @property
    def cpu_share(self) -> float:
        """The share of a core that decoding had, from 0 to 1."""
        return min(1.0, self.decode_cpu_s / self.decode_s) if self.decode_s else 1.0

    @property
    def sample_s(self) -> float:
        """Seconds a sample takes one process, all stages together."""
        return (self.read_s + self.decode_s + self.transform_s) / max(self.samples, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How fast batches came to one who takes them at once. ``first_s``: seconds from the start to the first batch."""

    num_workers: int
    samples: int
    seconds: float
    first_s: float

    @property
    def images_per_s(self) -> float:
        """Samples a second, after the first batch."""
        return self.samples / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The stage that holds the others up, its share of the time, and what to change.

    ``num_workers``: how many to try instead, None where it does not lie with them. ``wait_share``: of the time of one
    that trains at the rate asked about; None where no rate was given. ``disturbed``: by what other work showed on the
    machine, so that the figures are not to be trusted; None: by nothing.
    """

    bottleneck: str
    share: float
    advice: str
    num_workers: int | None
    wait_share: float | None
    disturbed: str | None = None


def measure_stages(dataset: Dataset | MixedDataset, config: LoaderConfig, *, seconds: float) -> StageTimes:
    """Time the stages for about so many seconds, in the order of an epoch; samples that fail are passed over.

    Raises: FetchError, TransformError.
    """
    plain = replace(config, transform=None, keep=None, on_error="skip", num_epochs=None)
    spent = {"read": 0.0, "decode": 0.0, "transform": 0.0}
    samples = read_bytes = 0
    decode_cpu_s = 0.0
    out = np.zeros((config.image_size, config.image_size, 3), np.uint8)
    clock, end = time.perf_counter, time.perf_counter() + seconds
    for stored, identity in _taken(dataset, plain, spent=spent, end=end):
        begin, begin_cpu = clock(), time.thread_time()
        try:
            decode_sample(stored, identity, config=plain, out=out)
            decoded, cpu_s = clock(), time.thread_time() - begin_cpu
            if config.transform is not None or config.keep is not None:
                decode_sample(stored, identity, config=config, out=out)
        except SampleError:
            continue
        spent["decode"] += decoded - begin
        decode_cpu_s += cpu_s
        # The hooks run with the decoder: what they add is the difference.
        spent["transform"] += max(0.0, clock() - decoded - (decoded - begin)) if _has_hooks(config) else 0.0
        samples += 1
        read_bytes += sum(map(len, stored.content.members.values()))
    return StageTimes(
        samples=samples,
        read_bytes=read_bytes,
        read_s=spent["read"],
        decode_s=spent["decode"],
        decode_cpu_s=decode_cpu_s,
        transform_s=spent["transform"],
    )


def measure_delivery(dataset: Dataset | MixedDataset, config: LoaderConfig, *, seconds: float) -> Delivery:
    """Time whole batches with the workers of the config for about so many seconds behind the first batch."""
    from wdsloader.torch_adapter import TorchLoader

    arrivals: list[tuple[float, int]] = []
    begin = time.perf_counter()
    with TorchLoader(dataset, replace(config, num_epochs=None)) as loader:
        known = -1
        while len(arrivals) > known:  # an epoch without a batch would go on for ever
            known = len(arrivals)
            for batch in loader:
                arrivals.append((time.perf_counter(), sum(key is not None for key in batch.keys)))
                if arrivals[-1][0] - arrivals[0][0] >= seconds:
                    known = len(arrivals)
                    break
    first, last = (arrivals[0][0], arrivals[-1][0]) if arrivals else (begin, begin)
    return Delivery(
        num_workers=loader.num_workers,
        samples=sum(num_rows for _, num_rows in arrivals[1:]),
        seconds=last - first,
        first_s=first - begin,
    )


def compared_workers(num_workers: int, *, cores: int | None = None) -> int:
    """Return the number of workers to measure beside those asked for: none, and where none is asked for, one a core."""
    return 0 if num_workers else cores or usable_cores()


def verdict_of(
    stages: StageTimes,
    delivery: Delivery,
    *,
    other: Delivery,
    remote: bool,
    rate: float | None = None,
    cores: int | None = None,
    load: float | None = None,
) -> Verdict:
    """Return which stage holds the others up, and what to change.

    Whoever follows the advice on workers, and measures again, is not sent back: below a worker a core it may be more of
    them, above it is fewer, and between a worker a core and none what was measured decides. Where others were at work,
    time that no stage explains is theirs and not the transport's.

    Args: other: with as many workers as ``compared_workers`` says. rate: samples a second that whoever trains could
        take. cores: that this process may use; None: as the system says. load: as ``load_average`` was before.
    """
    cores, workers = cores or usable_cores(), delivery.num_workers
    shares = _shares(stages, delivery, at_work=max(1, min(workers, cores)))
    better = other.images_per_s > _BETTER * delivery.images_per_s
    slowest = max(_STAGES, key=lambda stage: shares[stage])
    disturbed = _disturbance(stages, load=load)
    unexplained = better or shares["transport"] > max(_TRANSPORT_SHARE, shares[slowest])
    moved = workers > 0 and unexplained and disturbed is None
    bottleneck = "transport" if moved else slowest
    wait_share = None if rate is None else max(0.0, 1 - delivery.images_per_s / rate)
    if wait_share == 0.0:
        wanted, advice = None, f"nothing: {delivery.images_per_s:.0f} images/s are more than the {rate:.0f} asked about"
    else:
        wanted = other.num_workers if better else _wanted_workers(bottleneck, workers=workers, cores=cores)
        advice = _advice(bottleneck, remote=remote)
        if better:
            measured = f"{other.images_per_s:.0f} images/s were measured with it, not {delivery.images_per_s:.0f}"
            advice = f"--workers {wanted}: {measured}"
        elif wanted is not None:
            what = "more workers" if wanted > workers else "fewer workers"
            advice = f"{what} (--workers {wanted}): {workers} share {cores} cores; or {advice}"
    return Verdict(
        bottleneck=bottleneck,
        share=shares[bottleneck],
        advice=advice,
        num_workers=wanted,
        wait_share=wait_share,
        disturbed=disturbed,
    )


def load_average() -> float | None:
    """Return how many processes of the machine wanted a core during the last minute; None where nobody tells."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def _disturbance(stages: StageTimes, *, load: float | None) -> str | None:
    """Return in words what shows that others were at work; None: nothing does."""
    signs = []
    # The load is that of the whole machine, whatever this process may use of it.
    if load is not None and load > _QUIET_LOAD * (os.cpu_count() or 1):
        signs.append(f"a load of {load:.1f} before it was measured")
    if stages.cpu_share < _WHOLE_CORE:
        signs.append(f"decoding had a core for {stages.cpu_share:.0%} of its time")
    return ", ".join(signs) or None


def _shares(stages: StageTimes, delivery: Delivery, *, at_work: int) -> dict[str, float]:
    """Return the share of each stage, and of the transport, in the time that a sample takes to be delivered."""
    per_sample = delivery.seconds / max(delivery.samples, 1)
    total = max(per_sample, stages.sample_s / at_work, 1e-12)
    whole = total * at_work * max(stages.samples, 1)
    return {
        "read": stages.read_s / whole,
        "decode": stages.decode_s / whole,
        "transform": stages.transform_s / whole,
        "transport": max(0.0, per_sample - stages.sample_s / at_work) / total,
    }


def _wanted_workers(bottleneck: str, *, workers: int, cores: int) -> int | None:
    """Return how many workers to try where nothing measured says it: up to one a core, where they are what works."""
    if workers > cores:
        return cores
    return cores if 0 < workers < cores and bottleneck != "transport" else None


def _advice(bottleneck: str, *, remote: bool) -> str:
    """Return what to change but the workers."""
    if bottleneck == "read":
        where = "keep the shards in a local cache (--cache-dir), nearer or" if remote else "put the shards"
        return f"{where} on a faster disk, or pack smaller pictures"
    if bottleneck == "decode":
        if not HAS_KERNEL:
            return "install the kernel, which is more than twice as fast (`wds doctor` says how), or use more cores"
        return "pack with --crop-ready or smaller pictures, or use more cores"
    if bottleneck == "transform":
        return "use a cheaper transform, or more cores"
    return "take a smaller --image-size or batch"


def _has_hooks(config: LoaderConfig) -> bool:
    return config.transform is not None or config.keep is not None


def _taken(
    dataset: Dataset | MixedDataset, config: LoaderConfig, *, spent: dict[str, float], end: float
) -> Iterator[tuple[StoredSample, Identity]]:
    """Yield good samples as one worker takes them, epoch after epoch, until ``end`` on the clock.

    What each took to be read is added to ``spent``.
    """
    state = order_of(dataset, config, world_size=1)
    plan = plan_of(state, dataset=dataset, config=config, rank=0, world_size=1)
    with ExitStack() as stack:
        if plan is None:
            samples = _streamed(dataset, config)
        else:
            schedule = schedule_of(dataset, state)
            task = WorkerTask(table=dataset.table, config=config, plan=plan, state=state, schedule=schedule)
            reader = PolicyReader(task.table, config, max_indexes=task.max_indexes)
            stack.callback(reader.close)
            samples = _in_lanes(task, reader)
        while True:
            begin = time.perf_counter()
            found = next(samples)
            spent["read"] += time.perf_counter() - begin
            if found is not None:
                yield found
            if time.perf_counter() > end:
                return


def _in_lanes(task: WorkerTask, reader: PolicyReader) -> Iterator[tuple[StoredSample, Identity] | None]:
    for epoch in count():
        rows = LaneRows(task, reader, epoch=epoch)
        for position in range(task.plan.num_samples):
            taken = rows.take(position)
            if isinstance(taken.found, SampleError):
                yield None
            else:
                yield taken.found, rows.identity(taken, position=position)


def _streamed(dataset: Dataset | MixedDataset, config: LoaderConfig) -> Iterator[tuple[StoredSample, Identity] | None]:
    """Yield samples of the inexact mode; None for a bad one, and at the end of an epoch, which may have had none."""
    for epoch in count():
        task = StreamTask(table=dataset.table, config=config, epoch=epoch)
        for found in stream_samples(task):
            try:
                yield stored_in(found, task)
            except SampleError:
                yield None
        yield None
