"""The options of ``wds make-shards``, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "Classes",
    "Count",
    "FromFolder",
    "Labels",
    "OnError",
    "OnExists",
    "Out",
    "Prefix",
    "Quality",
    "SamplesPerShard",
    "Seed",
    "Shuffle",
    "Size",
    "Sizes",
    "Split",
    "ValShare",
]

_FAKE, _FOLDER = "Fake pictures", "Image folder"

Count = Annotated[int | None, typer.Option(min=1, show_default="4 of fake pictures", help="Number of shards.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the shards.")]
Prefix = Annotated[str | None, typer.Option(show_default="imagenet-SPLIT", help="Shard names begin so.")]
SamplesPerShard = Annotated[
    int | None, typer.Option(min=1, show_default="100 of fake pictures, 1000 of a folder", help="Samples a shard.")
]
Split = Annotated[Literal["train", "val"], typer.Option(help="Which set to make.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Same seed, same bytes.")]
OnExists = Annotated[
    Literal["fail", "overwrite"],
    typer.Option(help="Where shards of this prefix are there: overwrite removes them, then packs."),
]

FromFolder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Pack DIR, one subfolder a class, bytes as they are.", rich_help_panel=_FOLDER),
]
ValShare = Annotated[
    float | None, typer.Option(help="This share of every class is val, the rest train.", rich_help_panel=_FOLDER)
]
Shuffle = Annotated[
    bool, typer.Option("--shuffle/--no-shuffle", help="Pack in seeded order, or by name.", rich_help_panel=_FOLDER)
]
OnError = Annotated[
    Literal["stop", "skip"], typer.Option(help="What to do with a file that is no picture.", rich_help_panel=_FOLDER)
]

Classes = Annotated[int, typer.Option(min=1, help="Number of classes.", rich_help_panel=_FAKE)]
Size = Annotated[str, typer.Option(metavar="WxH", help="Typical size in pixels.", rich_help_panel=_FAKE)]
Sizes = Annotated[
    Literal["varied", "fixed"], typer.Option(help="Spread like ImageNet's, or all the same.", rich_help_panel=_FAKE)
]
Quality = Annotated[int, typer.Option(min=1, max=100, help="JPEG quality.", rich_help_panel=_FAKE)]
Labels = Annotated[
    Literal["signal", "shuffled"],
    typer.Option(help="Labels that can be learnt, or the control set that cannot.", rich_help_panel=_FAKE),
]
