"""The options of ``wds reshard``, each with its help; what it shares with ``make-shards`` is the same here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from wds.pack_options import (
    DEFAULT_SHARD_SAMPLES,
    CropReady,
    DryRun,
    MaxSize,
    OnExists,
    PlanOnly,
    quality_option,
    shard_size_option,
)

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
    "Seed",
    "ShardSizeText",
    "Share",
    "Shuffle",
    "Split",
]

_WHICH = "Which samples"

Out = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the shards.")]
Prefix = Annotated[str, typer.Option(help="Shard names begin so.")]
ShardSizeText = Annotated[str | None, shard_size_option(str(DEFAULT_SHARD_SAMPLES))]
Count = Annotated[int | None, typer.Option(min=1, help="Number of shards, as even as can be.")]
Shuffle = Annotated[bool, typer.Option("--shuffle", help="One seeded order over all samples, else as they come.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Same seed, same bytes; of --shuffle and --share.")]
Split = Annotated[
    Literal["train", "val"] | None, typer.Option(show_default="as the manifests say", help="Which set it is.")
]
OnError = Annotated[Literal["stop", "skip"], typer.Option(help="What to do with a sample that cannot be used.")]
Rekey = Annotated[bool, typer.Option("--rekey", help="New keys NUMBER_KEY, where shards share keys.")]

Labels = Annotated[
    str | None, typer.Option(metavar="0,3,7-9", help="Samples of these labels alone.", rich_help_panel=_WHICH)
]
Keys = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Samples of these keys alone, one a line.",
        rich_help_panel=_WHICH,
    ),
]
DropKeys = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="All but the samples of these keys.",
        rich_help_panel=_WHICH,
    ),
]
MinBytes = Annotated[int | None, typer.Option(min=0, help="Pictures of so many bytes or more.", rich_help_panel=_WHICH)]
MaxBytes = Annotated[int | None, typer.Option(min=0, help="Pictures of so many bytes or less.", rich_help_panel=_WHICH)]
MinSide = Annotated[
    int | None, typer.Option(min=1, metavar="PX", help="Shorter side at least so long.", rich_help_panel=_WHICH)
]
MaxSide = Annotated[
    int | None, typer.Option(min=1, metavar="PX", help="Longer side at most so long.", rich_help_panel=_WHICH)
]
Share = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="This share of every class, by --seed.", rich_help_panel=_WHICH),
]
Relabel = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="New labels: CSV or JSON of old,new[,name].",
        rich_help_panel=_WHICH,
    ),
]
DropUnmapped = Annotated[
    bool, typer.Option("--drop-unmapped", help="Leave out labels that --relabel lacks.", rich_help_panel=_WHICH)
]

Quality = Annotated[int | None, quality_option("bytes are kept")]
