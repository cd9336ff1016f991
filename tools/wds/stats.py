"""The command that measures what a dataset is like: ``wds stats``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wds.checks import DEFAULT_MAX_PIXELS, AllowCommands, Classes, MaxPixels, Patterns, visible_name
from wds.console import JOBS, AsJson, Jobs, Progress, print_error, print_json, print_line, print_warning
from wds.patterns import local_shards, shards_to_read
from wds.text import counted, masked

if TYPE_CHECKING:
    from shardkit import Distribution, Statistics

__all__ = ["stats"]

Sampled = Annotated[
    int | None,
    typer.Option("--sample", min=1, metavar="N", show_default="all", help="Decode only N pictures, drawn at random."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Same seed, same pictures; of --sample.")]

# So many groups, classes and pictures are named; --json has all.
_NAMED = 5
_TABLE_SUFFIX = ".parquet"


def stats(
    patterns: Patterns,
    sample: Sampled = None,
    seed: Seed = 0,
    classes: Classes = None,
    max_pixels: MaxPixels = DEFAULT_MAX_PIXELS,
    allow_commands: AllowCommands = False,
    jobs: Jobs = JOBS,
    as_json: AsJson = False,
) -> None:
    """Measure colours, class balance, sizes and duplicates. `-` reads one shard from standard input, and a table that
    `wds index --table` wrote is read instead of shards.

    Exit 1: a shard cannot be read or a picture not be decoded; the numbers are those of the others.
    """
    from shardkit import StatisticsOptions, measure_shards, measure_table, num_classes_of

    if len(patterns) == 1 and patterns[0].endswith(_TABLE_SUFFIX):
        if sample is not None:
            raise typer.BadParameter("a table holds no pictures to draw from; name the shards", param_hint="--sample")
        tables = local_shards(patterns)
        if len(tables) > 1:
            raise typer.BadParameter(f"{patterns[0]}: {len(tables)} tables. Name one")
        found = measure_table(Path(tables[0]), num_classes=classes)
    else:
        locations, manifests = shards_to_read(patterns, allow_commands=allow_commands, all_there=True)
        if sample is not None and locations == ["-"]:
            raise typer.BadParameter(
                "standard input can be read once, and drawing takes two looks", param_hint="--sample"
            )
        num_classes = classes or num_classes_of(locations, manifests=manifests.values())
        options = StatisticsOptions(
            sample=sample, seed=seed, num_classes=num_classes, max_pixels=max_pixels, jobs=jobs,
            allow_commands=allow_commands,
        )  # fmt: skip
        progress = Progress("shards", total=len(locations), quiet=as_json)
        try:
            found = measure_shards(locations, options, on_shard=lambda _: progress.advance())
        finally:
            progress.close()
    if as_json:
        print_json(_as_document(found))
    else:
        _print(found)
    _print_problems(found)
    if found.failed or found.unusable:
        raise typer.Exit(1)


def _print(found: Statistics) -> None:
    part = f", estimated from {found.looked_at}" if found.estimated else ""
    print_line(f"samples         {found.samples:,}, {counted(found.pictures, 'picture', spec=',')}{part}")
    if found.channels is not None:
        print_line(f"mean            {_channels(found.channels.mean)}   red, green, blue; black 0, white 1")
        print_line(f"std             {_channels(found.channels.std)}")
    _print_classes(found)
    print_line(f"width           {_percentiles(found.widths)} pixels")
    print_line(f"height          {_percentiles(found.heights)} pixels")
    print_line(f"bytes           {_percentiles(found.picture_bytes)} a picture")
    if found.bits_per_pixel is not None:
        print_line(f"bits per pixel  {found.bits_per_pixel:.2f}")
    if found.duplicates is not None:
        again = sum(len(group) - 1 for group in found.duplicates)
        print_line(
            f"duplicates      {counted(again, 'picture', spec=',')}, in "
            f"{counted(len(found.duplicates), 'group', spec=',')} of equal bytes"
        )
        for group in found.duplicates[:_NAMED]:
            named = ", ".join(f"{masked(shard)}: {visible_name(key)}" for shard, key in group[:_NAMED])
            print_line(f"                {named}{', ..' if len(group) > _NAMED else ''}")


def _print_classes(found: Statistics) -> None:
    if found.labels:
        smallest, largest = min(found.labels.values()), max(found.labels.values())
        sizes = f"of {smallest:,} to {largest:,} samples (1 to {found.imbalance:.2f})"
        print_line(f"classes         {len(found.labels):,}, {sizes}")
    if found.missing_classes:
        named = ", ".join(str(label) for label in found.missing_classes[:_NAMED])
        more = ", .." if len(found.missing_classes) > _NAMED else ""
        print_line(
            f"                {counted(len(found.missing_classes), 'class has/classes have', spec=',')} no "
            f"sample: {named}{more}"
        )
    if found.unlabelled:
        print_line(f"                {counted(found.unlabelled, 'sample has/samples have', spec=',')} no label")


def _print_problems(found: Statistics) -> None:
    for warning in found.warnings:
        print_warning(warning)
    for reason in found.failed.values():
        print_error(reason)
    for picture in found.unusable[:_NAMED]:
        print_error(f"{picture.shard}: '{visible_name(picture.key)}': {picture.reason}")
    if len(found.unusable) > _NAMED:
        print_error(f"{counted(len(found.unusable), 'picture')} cannot be decoded; --json names all of them")


def _channels(values: tuple[float, float, float]) -> str:
    return "  ".join(f"{value:.6f}" for value in values)


def _percentiles(values: Distribution | None) -> str:
    if values is None:
        return "none"
    at = values.percentiles
    return f"{at[0]:,} to {at[100]:,}, 5 % {at[5]:,}, median {at[50]:,}, 95 % {at[95]:,}, mean {values.mean:,.1f}"


def _as_document(found: Statistics) -> dict[str, object]:
    document = dataclasses.asdict(found)
    document["failed"] = {masked(shard): masked(reason) for shard, reason in found.failed.items()}
    document["warnings"] = [masked(warning) for warning in found.warnings]
    document["unusable"] = [
        {"shard": masked(p.shard), "key": visible_name(p.key), "reason": p.reason} for p in found.unusable
    ]
    if found.duplicates is not None:
        document["duplicates"] = [
            [{"shard": masked(shard), "key": visible_name(key)} for shard, key in group] for group in found.duplicates
        ]
    return document
