"""The command that says where the time of loading goes: ``wds bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wds import loader_options as opt
from wds.console import AsJson, human_bytes, print_json, print_line
from wds.patterns import expand_existing, without_stdin
from wds.text import counted

if TYPE_CHECKING:
    from wdsloader import Delivery, StageTimes, Verdict

__all__ = ["bench"]

Seconds = Annotated[float, typer.Option("--seconds", min=0.1, help="To measure each half: the stages, and delivery.")]
Workers = Annotated[int, typer.Option("--workers", min=0, help="Loader processes.")]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.1, help="Images/s that training could take: would it wait?"),
]


def bench(
    patterns: opt.Patterns,
    workers: Workers = 2,
    batch_size: opt.BatchSize = 64,
    image_size: opt.ImageSize = 224,
    seconds: Seconds = 3.0,
    rate: Rate = None,
    cache_dir: opt.CacheDir = None,
    on_error: opt.OnError = "stop",
    as_json: AsJson = False,
) -> None:
    """Measure reading, decoding, transforming and transport on your shards, and name what holds loading up."""
    named = without_stdin(patterns)
    expand_existing(named, on_error=on_error)
    from wdsloader import measure_delivery, measure_stages, open_dataset, verdict_of

    config = opt.training_config(batch_size=batch_size, image_size=image_size, workers=workers, on_error=on_error)
    with open_dataset(named, cache_dir=cache_dir, on_error=config.on_error) as dataset:
        stages = measure_stages(dataset, config, seconds=seconds)
        delivery = measure_delivery(dataset, config, seconds=seconds)
        verdict = verdict_of(stages, delivery, remote=dataset.remote, rate=rate)
    if as_json:
        print_json(_as_document(stages, delivery, verdict=verdict))
    else:
        _print_result(stages, delivery, verdict=verdict)


def _print_result(stages: StageTimes, delivery: Delivery, *, verdict: Verdict) -> None:
    count = max(stages.samples, 1)
    read = f"{human_bytes(stages.read_bytes / max(stages.read_s, 1e-9))}/s"
    print_line(f"one process, {counted(stages.samples, 'sample')}")
    print_line(f"  read       {1000 * stages.read_s / count:8.2f} ms a sample  {read}")
    print_line(f"  decode     {1000 * stages.decode_s / count:8.2f} ms a sample")
    print_line(f"  transform  {1000 * stages.transform_s / count:8.2f} ms a sample")
    per_sample = 1000 * delivery.seconds / max(delivery.samples, 1)
    print_line(f"delivery, {counted(delivery.num_workers, 'worker')}, {counted(delivery.samples, 'sample')}")
    print_line(f"  batches    {per_sample:8.2f} ms a sample  {delivery.images_per_s:.1f} images/s")
    print_line(f"  first one  {delivery.first_s:8.2f} s")
    if verdict.wait_share is not None:
        print_line(f"  waiting    {verdict.wait_share:8.0%}  of the time of training at the rate given")
    print_line(f"bottleneck: {verdict.bottleneck}, {verdict.share:.0%} of the time. Change: {verdict.advice}")


def _as_document(stages: StageTimes, delivery: Delivery, *, verdict: Verdict) -> dict[str, object]:
    return {
        "stages": {
            "samples": stages.samples,
            "read_bytes": stages.read_bytes,
            "read_s": stages.read_s,
            "decode_s": stages.decode_s,
            "transform_s": stages.transform_s,
        },
        "delivery": {
            "num_workers": delivery.num_workers,
            "samples": delivery.samples,
            "seconds": delivery.seconds,
            "first_s": delivery.first_s,
            "images_per_s": delivery.images_per_s,
        },
        "bottleneck": verdict.bottleneck,
        "share": verdict.share,
        "advice": verdict.advice,
        "wait_share": verdict.wait_share,
    }
