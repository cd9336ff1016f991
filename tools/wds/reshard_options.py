"""The options of ``wds reshard``, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "Count",
    "CropReady",
    "DropKeys",
    "DropUnmapped",
    "DryRun",
    "Keys",
    "Labels",
    "MaxBytes",
    "MaxSide",
    "MaxSize",
    "MinBytes",
    "MinSide",
    "OnError",
    "OnExists",
    "Out",
    "PlanOnly",
    "Prefix",
    "Quality",
    "Rekey",
    "Relabel",
    "Sample",
    "Seed",
    "ShardSizeText",
    "Shuffle",
    "Split",
]

_WHICH, _HOW = "Which samples", "Pictures"

Out = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the new shards.")]
Prefix = Annotated[str, typer.Option(help="Names of the new shards begin so.")]
ShardSizeText = Annotated[
    str | None,
    typer.Option("--shard-size", show_default="10000", help="Samples (10000) or bytes (1GiB) a shard, at most."),
]
Count = Annotated[int | None, typer.Option(min=1, help="Number of shards, as even as can be.")]
Shuffle = Annotated[bool, typer.Option("--shuffle", help="One seeded order over all samples, else as they come.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of --shuffle and --sample. Same seed, same bytes.")]
Split = Annotated[
    Literal["train", "val"] | None, typer.Option(show_default="as the manifests say", help="Which set it is.")
]
OnExists = Annotated[
    Literal["fail", "resume", "overwrite"],
    typer.Option(help="Where shards of this prefix are there: resume goes on with the same work that was killed."),
]
OnError = Annotated[Literal["stop", "skip"], typer.Option(help="What to do with samples that cannot be read.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the layout and write nothing.")]
PlanOnly = Annotated[bool, typer.Option("--plan-only", help="Write the plan alone, for wds run-plan.")]
Rekey = Annotated[bool, typer.Option("--rekey", help="New keys NUMBER_KEY, where shards share keys.")]

Labels = Annotated[
    str | None, typer.Option(metavar="0,3,7-9", help="Samples of these labels alone.", rich_help_panel=_WHICH)
]
Keys = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Samples of these keys alone, one a line.", rich_help_panel=_WHICH)
]
DropKeys = Annotated[
    Path | None, typer.Option(metavar="FILE", help="All but the samples of these keys.", rich_help_panel=_WHICH)
]
MinBytes = Annotated[int | None, typer.Option(min=0, help="Pictures of so many bytes or more.", rich_help_panel=_WHICH)]
MaxBytes = Annotated[int | None, typer.Option(min=0, help="Pictures of so many bytes or less.", rich_help_panel=_WHICH)]
MinSide = Annotated[
    int | None, typer.Option(min=1, metavar="PX", help="Shorter side at least so long.", rich_help_panel=_WHICH)
]
MaxSide = Annotated[
    int | None, typer.Option(min=1, metavar="PX", help="Longer side at most so long.", rich_help_panel=_WHICH)
]
Sample = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="This share of every class, by --seed.", rich_help_panel=_WHICH),
]
Relabel = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="New labels: CSV or JSON of old,new[,name].", rich_help_panel=_WHICH),
]
DropUnmapped = Annotated[
    bool, typer.Option("--drop-unmapped", help="Leave out labels that --relabel lacks.", rich_help_panel=_WHICH)
]

MaxSize = Annotated[
    int | None, typer.Option(min=1, metavar="PX", help="Scale longer sides down to this.", rich_help_panel=_HOW)
]
Quality = Annotated[
    int | None, typer.Option(min=1, max=100, help="Re-encode every picture as JPEG.", rich_help_panel=_HOW)
]
CropReady = Annotated[
    bool, typer.Option("--crop-ready", help="Add restart markers, for readers of crops.", rich_help_panel=_HOW)
]
