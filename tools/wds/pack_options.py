"""The options of ``wds make-shards``, each with its help; those of all packing commands are here too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

__all__ = [
    "DEFAULT_SHARD_SAMPLES",
    "Classes",
    "Count",
    "CropReady",
    "DryRun",
    "FromFolder",
    "FromIlsvrc",
    "FromShards",
    "FromTable",
    "GroundTruth",
    "ImageColumn",
    "KeyColumn",
    "LabelColumn",
    "Labels",
    "MaxSize",
    "OnError",
    "OnExists",
    "Out",
    "PlanOnly",
    "Prefix",
    "Quality",
    "Root",
    "Seed",
    "ShardSizeText",
    "Shuffle",
    "Size",
    "Sizes",
    "Split",
    "Synsets",
    "ValShare",
    "quality_option",
    "shard_size_option",
]

# ImageNet's train set becomes 000000 to 001281 so, as people know it: at 110 MB a shard opening one costs nothing,
# and there are enough of them for many readers.
DEFAULT_SHARD_SAMPLES = 1000

_FAKE, _SOURCES, _TABLE, _ILSVRC, _PICTURES = (
    "Fake pictures",
    "Your pictures",
    "Table",
    "Original ImageNet archives",
    "Re-encoding",
)


def shard_size_option(default: str) -> Any:
    """Return the option --shard-size. Args: default: in words, for the help."""
    help_text = "Samples a shard (10000), or at most so many bytes (1GiB)."
    return typer.Option("--shard-size", metavar="N|SIZE", show_default=default, help=help_text)


def quality_option(default: str) -> Any:
    """Return the option --quality. Args: default: in words, for the help."""
    help_text = "JPEG quality: re-encode every picture."
    return typer.Option(min=1, max=100, show_default=default, help=help_text, rich_help_panel=_PICTURES)


Count = Annotated[int | None, typer.Option(min=1, show_default="4 of fake pictures", help="Number of shards.")]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the shards.")]
Prefix = Annotated[str | None, typer.Option(show_default="imagenet-SPLIT", help="Shard names begin so.")]
ShardSizeText = Annotated[str | None, shard_size_option(f"100 of fake pictures, else {DEFAULT_SHARD_SAMPLES}")]
Split = Annotated[Literal["train", "val"], typer.Option(help="Which set to make.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Same seed, same bytes.")]
OnExists = Annotated[
    Literal["fail", "resume", "overwrite"],
    typer.Option(help="Where shards of this prefix are there: resume goes on, overwrite removes them."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the layout and write nothing.")]
PlanOnly = Annotated[bool, typer.Option("--plan-only", help="Write the plan for wds run-plan, and no shard.")]

FromFolder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Pack DIR, one subfolder a class, bytes as they are.", rich_help_panel=_SOURCES),
]
FromTable = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Pack what a CSV, TSV, JSONL or Parquet names.",
        rich_help_panel=_SOURCES,
    ),
]
FromIlsvrc = Annotated[
    Path | None,
    typer.Option(
        metavar="TAR",
        exists=True,
        dir_okay=False,
        help="Pack ILSVRC2012_img_train.tar or .._val.tar.",
        rich_help_panel=_SOURCES,
    ),
]
FromShards = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN...",
        show_default=False,
        help="Pack the samples of shards, as wds reshard does; it has filters too.",
        rich_help_panel=_SOURCES,
    ),
]
ValShare = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="This share of every class is val, the rest train.", rich_help_panel=_SOURCES),
]
Shuffle = Annotated[
    bool, typer.Option("--shuffle/--no-shuffle", help="Pack in seeded order, or as it comes.", rich_help_panel=_SOURCES)
]
OnError = Annotated[
    Literal["stop", "skip"],
    typer.Option(help="What to do with a source that cannot be used.", rich_help_panel=_SOURCES),
]

ImageColumn = Annotated[
    str | None,
    typer.Option(show_default="path, file, url ..", help="Column of path or http(s) URL.", rich_help_panel=_TABLE),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(show_default="label, class ..", help="Column of class number or name.", rich_help_panel=_TABLE),
]
KeyColumn = Annotated[
    str | None, typer.Option(show_default="made from the name", help="Column of keys.", rich_help_panel=_TABLE)
]
Root = Annotated[
    Path | None,
    typer.Option(metavar="DIR", show_default="the table's", help="Paths begin here.", rich_help_panel=_TABLE),
]

GroundTruth = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Classes of the val archive, one a picture.",
        rich_help_panel=_ILSVRC,
    ),
]
Synsets = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Lines 'id wnid', where those are ids.",
        rich_help_panel=_ILSVRC,
    ),
]

MaxSize = Annotated[
    int | None,
    typer.Option(min=1, metavar="PX", help="Scale pictures down to this longest side.", rich_help_panel=_PICTURES),
]
Quality = Annotated[int | None, quality_option("bytes are kept; fake pictures 95")]
CropReady = Annotated[
    bool,
    typer.Option(
        "--crop-ready",
        help="Add restart markers, so that readers unpack just the crop; alone, it changes no pixel.",
        rich_help_panel=_PICTURES,
    ),
]

Classes = Annotated[int, typer.Option(min=1, help="Number of classes.", rich_help_panel=_FAKE)]
Size = Annotated[str, typer.Option(metavar="WxH", help="Typical size in pixels.", rich_help_panel=_FAKE)]
Sizes = Annotated[
    Literal["varied", "fixed"], typer.Option(help="Spread like ImageNet's, or all the same.", rich_help_panel=_FAKE)
]
Labels = Annotated[
    Literal["signal", "shuffled"],
    typer.Option(help="Labels that can be learnt, or the control set that cannot.", rich_help_panel=_FAKE),
]
