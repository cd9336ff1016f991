"""Where the time of loading goes: read, decode, transform, transport; and what to change. Measures on the user's data.

The stages are timed one by one in this process, sample after sample as a worker takes them; the delivery is timed over
whole batches with the workers asked for. What delivery costs beyond the stages is the transport. The verdict is pure.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from wdsloader.config import LoaderConfig
from wdsloader.dataset import Dataset
from wdsloader.errors import DatasetError, SampleError
from wdsloader.mixing import MixedDataset
from wdsloader.pipeline import Identity, LaneRows, WorkerTask, decode_sample
from wdsloader.reading import PolicyReader
from wdsloader.session import order_of, plan_of, schedule_of
from wdsloader.windows import Taken

__all__ = ["Delivery", "StageTimes", "Verdict", "measure_delivery", "measure_stages", "verdict_of"]

# Beyond what the stages explain, this much more is the transport's doing and not chance.
_TRANSPORT_SHARE = 0.4
_MANY_WORKERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Seconds of one process for ``samples`` samples; ``read_bytes``: of their members."""

    samples: int
    read_bytes: int
    read_s: float
    decode_s: float
    transform_s: float

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

    ``wait_share``: of the time of one that trains at the rate asked about; None where no rate was given.
    """

    bottleneck: str
    share: float
    advice: str
    wait_share: float | None


def measure_stages(dataset: Dataset | MixedDataset, config: LoaderConfig, *, seconds: float) -> StageTimes:
    """Time the stages for about so many seconds, in the order of an epoch; samples that fail are passed over.

    Raises: DatasetError: sample counts are not known. FetchError, TransformError.
    """
    plain = replace(config, transform=None, keep=None, on_error="skip", num_epochs=None)
    spent = {"read": 0.0, "decode": 0.0, "transform": 0.0}
    samples = read_bytes = 0
    out = np.zeros((config.image_size, config.image_size, 3), np.uint8)
    clock, end = time.perf_counter, time.perf_counter() + seconds
    for taken, identity in _taken(dataset, plain, spent=spent):
        if isinstance(taken.found, SampleError):
            continue
        begin = clock()
        try:
            decode_sample(taken.found, identity, config=plain, out=out)
            decoded = clock()
            if config.transform is not None or config.keep is not None:
                decode_sample(taken.found, identity, config=config, out=out)
        except SampleError:
            continue
        spent["decode"] += decoded - begin
        # The hooks run with the decoder: what they add is the difference.
        spent["transform"] += max(0.0, clock() - decoded - (decoded - begin)) if _has_hooks(config) else 0.0
        samples += 1
        read_bytes += sum(map(len, taken.found.content.members.values()))
        if clock() > end:
            break
    return StageTimes(
        samples=samples,
        read_bytes=read_bytes,
        read_s=spent["read"],
        decode_s=spent["decode"],
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
        samples=sum(count for _, count in arrivals[1:]),
        seconds=last - first,
        first_s=first - begin,
    )


def verdict_of(
    stages: StageTimes, delivery: Delivery, *, remote: bool, rate: float | None = None, cores: int | None = None
) -> Verdict:
    """Return which stage holds the others up, and what to change.

    Args: rate: samples a second that whoever trains could take. cores: of this machine; None: as the system says.
    """
    cores = cores or os.cpu_count() or 1
    at_work = max(1, min(delivery.num_workers, cores))
    per_sample = delivery.seconds / max(delivery.samples, 1)
    transport_s = per_sample - stages.sample_s / at_work
    total = max(per_sample, stages.sample_s / at_work, 1e-12)
    count = max(stages.samples, 1)
    shares = {
        "read": stages.read_s / count / at_work / total,
        "decode": stages.decode_s / count / at_work / total,
        "transform": stages.transform_s / count / at_work / total,
        "transport": max(0.0, transport_s) / total,
    }
    if shares["transport"] < _TRANSPORT_SHARE:
        shares.pop("transport")
    bottleneck = max(shares, key=lambda stage: shares[stage])
    wait_share = None if rate is None else max(0.0, 1 - delivery.images_per_s / rate)
    if wait_share == 0.0:
        advice = f"nothing: {delivery.images_per_s:.0f} images/s are more than the {rate:.0f} asked about"
    else:
        advice = _advice(bottleneck, remote=remote, workers=delivery.num_workers, cores=cores)
    return Verdict(bottleneck=bottleneck, share=shares[bottleneck], advice=advice, wait_share=wait_share)


def _advice(bottleneck: str, *, remote: bool, workers: int, cores: int) -> str:
    more = f"more workers: {workers} of {cores} cores are in use (--workers {cores})" if workers < cores else ""
    if bottleneck == "read":
        slow = "keep the shards in a local cache (--cache-dir), nearer or on a faster disk"
        return slow if remote else more or "put the shards on a faster disk, or pack smaller pictures"
    if bottleneck == "decode":
        return more or "smaller pictures in the shards, or more cores: all of them decode already"
    if bottleneck == "transform":
        return f"a cheaper transform{', or ' + more if more else ''}"
    if workers > _MANY_WORKERS and workers > cores:
        return f"fewer workers: {workers} share {cores} cores (--workers {cores})"
    return "a smaller --image-size or batch; with cheap samples, --workers 0 saves the way between processes"


def _has_hooks(config: LoaderConfig) -> bool:
    return config.transform is not None or config.keep is not None


def _taken(
    dataset: Dataset | MixedDataset, config: LoaderConfig, *, spent: dict[str, float]
) -> Iterator[tuple[Taken, Identity]]:
    """Yield samples as one worker takes them, epoch after epoch; what each took to be read is added to ``spent``."""
    state = order_of(dataset, config, world_size=1)
    plan = plan_of(state, dataset=dataset, config=config, rank=0, world_size=1)
    if plan is None:
        raise DatasetError("no manifest has the sample counts that timing the stages needs; run `wds index`")
    task = WorkerTask(table=dataset.table, config=config, plan=plan, state=state, schedule=schedule_of(dataset, state))
    reader = PolicyReader(task.table, config, max_indexes=task.max_indexes)
    try:
        for epoch in range(2**31):
            rows = LaneRows(task, reader, epoch=epoch)
            for position in range(plan.num_samples):
                begin = time.perf_counter()
                taken = rows.take(position)
                spent["read"] += time.perf_counter() - begin
                yield taken, rows.identity(taken, position=position)
    finally:
        reader.close()
