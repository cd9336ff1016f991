"""The options of ``wds make-shards`` and ``wds reshard``, each with its help.

Those of reshard alone are below; ``Reshard...`` are those that make-shards has too, with another meaning or default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

__all__ = [
    "DEFAULT_SHARD_SAMPLES",
    "Classes",
    "Count",
    "CropReady",
    "DropKeys",
    "DropUnmapped",
    "DryRun",
    "FromFolder",
    "FromIlsvrc",
    "FromShards",
    "FromTable",
    "GroundTruth",
    "ImageColumn",
    "KeyColumn",
    "Keys",
    "LabelColumn",
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
    "ReshardCount",
    "ReshardLabels",
    "ReshardOnError",
    "ReshardPrefix",
    "ReshardQuality",
    "ReshardSeed",
    "ReshardShardSize",
    "ReshardShuffle",
    "ReshardSplit",
    "Root",
    "Seed",
    "ShardSizeText",
    "Share",
    "Shuffle",
    "Size",
    "Sizes",
    "Split",
    "Synsets",
    "ValShare",
]

# ImageNet's train set becomes 000000 to 001281 so, as people know it: at 110 MB a shard opening one costs nothing,
# and there are enough of them for many readers.
DEFAULT_SHARD_SAMPLES = 1000

_FAKE, _SOURCES, _TABLE, _ILSVRC, _PICTURES, _WHICH = (
    "Fake pictures",
    "Your pictures",
    "Table",
    "Original ImageNet archives",
    "Re-encoding",
    "Which samples",
)


def _shard_size(default: str) -> Any:
    """Return the option --shard-size. Args: default: in words, for the help."""
    help_text = "Samples a shard (10000), or at most so many bytes (1GiB)."
    return typer.Option("--shard-size", metavar="N|SIZE", show_default=default, help=help_text)


def _quality(default: str) -> Any:
    """Return the option --quality. Args: default: in words, for the help."""
    help_text = "JPEG quality: re-encode every picture."
    return typer.Option(min=1, max=100, show_default=default, help=help_text, rich_help_panel=_PICTURES)


def _file(help_text: str, *, panel: str, metavar: str = "FILE") -> Any:
    """Return an option that names a file that is there."""
    return typer.Option(metavar=metavar, exists=True, dir_okay=False, help=help_text, rich_help_panel=panel)


Count = Annotated[int | None, typer.Option(min=1, show_default="4 of fake pictures", help="Number of shards.")]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the shards.")]
Prefix = Annotated[str | None, typer.Option(show_default="imagenet-SPLIT", help="Shard names begin so.")]
ShardSizeText = Annotated[str | None, _shard_size(f"100 of fake pictures, else {DEFAULT_SHARD_SAMPLES}")]
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
FromTable = Annotated[Path | None, _file("Pack what a CSV, TSV, JSONL or Parquet names.", panel=_SOURCES)]
FromIlsvrc = Annotated[
    Path | None, _file("Pack ILSVRC2012_img_train.tar or .._val.tar.", panel=_SOURCES, metavar="TAR")
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

GroundTruth = Annotated[Path | None, _file("Classes of the val archive, one a picture.", panel=_ILSVRC)]
Synsets = Annotated[Path | None, _file("Lines 'id wnid', where those are ids.", panel=_ILSVRC)]

MaxSize = Annotated[
    int | None,
    typer.Option(min=1, metavar="PX", help="Scale pictures down to this longest side.", rich_help_panel=_PICTURES),
]
Quality = Annotated[int | None, _quality("bytes are kept; fake pictures 95")]
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

ReshardPrefix = Annotated[str, typer.Option(help="Shard names begin so.")]
ReshardShardSize = Annotated[str | None, _shard_size(str(DEFAULT_SHARD_SAMPLES))]
ReshardCount = Annotated[int | None, typer.Option(min=1, help="Number of shards, as even as can be.")]
ReshardShuffle = Annotated[
    bool, typer.Option("--shuffle", help="One seeded order over all samples, else as they come.")
]
ReshardSeed = Annotated[
    int, typer.Option(min=0, max=2**32 - 1, help="Same seed, same bytes; of --shuffle and --share.")
]
ReshardSplit = Annotated[
    Literal["train", "val"] | None, typer.Option(show_default="as the manifests say", help="Which set it is.")
]
ReshardOnError = Annotated[Literal["stop", "skip"], typer.Option(help="What to do with a sample that cannot be used.")]
Rekey = Annotated[bool, typer.Option("--rekey", help="New keys NUMBER_KEY, where shards share keys.")]

ReshardLabels = Annotated[
    str | None, typer.Option(metavar="0,3,7-9", help="Samples of these labels alone.", rich_help_panel=_WHICH)
]
Keys = Annotated[Path | None, _file("Samples of these keys alone, one a line.", panel=_WHICH)]
DropKeys = Annotated[Path | None, _file("All but the samples of these keys.", panel=_WHICH)]
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
Relabel = Annotated[Path | None, _file("New labels: CSV or JSON of old,new[,name].", panel=_WHICH)]
DropUnmapped = Annotated[
    bool, typer.Option("--drop-unmapped", help="Leave out labels that --relabel lacks.", rich_help_panel=_WHICH)
]

ReshardQuality = Annotated[int | None, _quality("bytes are kept")]
