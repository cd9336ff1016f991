"""The command that says where the time of loading goes: ``wds bench``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from wds import loader_options as opt
from wds.console import AsJson, human_bytes, print_json, print_line, print_warning
from wds.text import counted

if TYPE_CHECKING:
    from wdsloader import Delivery, StageTimes, Verdict

__all__ = ["bench"]

Seconds = Annotated[
    float, typer.Option("--seconds", min=0.1, help="To measure each: the stages, delivery with workers, without.")
]
Workers = Annotated[int | None, typer.Option("--workers", min=0, show_default="one a core", help="Loader processes.")]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.1, help="Images/s that training could take: would it wait?"),
]


def bench(
    patterns: opt.Patterns,
    workers: Workers = None,
    batch_size: opt.BatchSize = opt.BATCH_SIZE,
    image_size: opt.ImageSize = opt.IMAGE_SIZE,
    seconds: Seconds = 3.0,
    rate: Rate = None,
    cache_dir: opt.CacheDir = None,
    cache_limit: opt.CacheLimit = None,
    allow_commands: opt.AllowCommands = False,
    on_error: opt.OnError = "stop",
    as_json: AsJson = False,
) -> None:
    """Measure reading, decoding, transforming and transport on your shards, and name what holds loading up."""
    with opt.opened(
        patterns, cache_dir=cache_dir, cache_limit=cache_limit, allow_commands=allow_commands, on_error=on_error
    ) as dataset:
        from wdsloader import compared_workers, load_average, measure_delivery, measure_stages, verdict_of

        config = opt.training_config(batch_size=batch_size, image_size=image_size, workers=workers, on_error=on_error)
        load = load_average()
        stages = measure_stages(dataset, config, seconds=seconds)
        delivery = measure_delivery(dataset, config, seconds=seconds)
        compared = replace(config, num_workers=compared_workers(delivery.num_workers))
        other = measure_delivery(dataset, compared, seconds=seconds)
        verdict = verdict_of(stages, delivery, other=other, remote=dataset.remote, rate=rate, load=load)
    if verdict.disturbed is not None:
        print_warning(
            f"other work ran on this machine ({verdict.disturbed}): the figures are not to be trusted. Measure again "
            "when it is quiet"
        )
    if as_json:
        print_json(_as_document(stages, delivery, other=other, verdict=verdict))
    else:
        _print_result(stages, delivery, other=other, verdict=verdict)


def _print_result(stages: StageTimes, delivery: Delivery, *, other: Delivery, verdict: Verdict) -> None:
    count = max(stages.samples, 1)
    read = f"{human_bytes(stages.read_bytes / max(stages.read_s, 1e-9))}/s"
    print_line(f"one process, {counted(stages.samples, 'sample')}")
    print_line(f"  read       {1000 * stages.read_s / count:8.2f} ms a sample  {read}")
    print_line(f"  decode     {1000 * stages.decode_s / count:8.2f} ms a sample")
    print_line(f"  transform  {1000 * stages.transform_s / count:8.2f} ms a sample")
    for measured in (delivery, other):
        per_sample = 1000 * measured.seconds / max(measured.samples, 1)
        print_line(f"delivery, {counted(measured.num_workers, 'worker')}, {counted(measured.samples, 'sample')}")
        print_line(f"  batches    {per_sample:8.2f} ms a sample  {measured.images_per_s:.1f} images/s")
        print_line(f"  first one  {measured.first_s:8.2f} s")
    if verdict.wait_share is not None:
        print_line(f"  waiting    {verdict.wait_share:8.0%}  of the time of training at the rate given")
    print_line(f"bottleneck: {verdict.bottleneck}, {verdict.share:.0%} of the time. Change: {verdict.advice}")


def _as_document(stages: StageTimes, delivery: Delivery, *, other: Delivery, verdict: Verdict) -> dict[str, object]:
    return {
        "stages": {
            "samples": stages.samples,
            "read_bytes": stages.read_bytes,
            "read_s": stages.read_s,
            "decode_s": stages.decode_s,
            "transform_s": stages.transform_s,
        },
        "delivery": _delivery(delivery),
        "other_delivery": _delivery(other),
        "bottleneck": verdict.bottleneck,
        "share": verdict.share,
        "advice": verdict.advice,
        "decode_cpu_share": stages.cpu_share,
        "disturbed": verdict.disturbed,
        "workers_to_try": verdict.num_workers,
        "wait_share": verdict.wait_share,
    }


def _delivery(measured: Delivery) -> dict[str, object]:
    return {
        "num_workers": measured.num_workers,
        "samples": measured.samples,
        "seconds": measured.seconds,
        "first_s": measured.first_s,
        "images_per_s": measured.images_per_s,
    }
