"""Which source ``wds make-shards`` packs: one function a kind, and the options that belong to it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from wds.pack_options import DEFAULT_SHARD_SAMPLES

if TYPE_CHECKING:
    from shardkit import ShardSize, Source

__all__ = ["FAKE_QUALITY", "SourceOptions", "chosen_kind", "opened", "refuse_others", "was_given"]

FAKE_QUALITY = 95


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options that say what to pack, as they were given."""

    from_folder: Path | None
    from_table: Path | None
    from_ilsvrc: Path | None
    from_shards: list[str] | None
    split: Literal["train", "val"]
    seed: int
    val_share: float | None
    shuffle: bool
    image_column: str | None
    label_column: str | None
    key_column: str | None
    root: Path | None
    ground_truth: Path | None
    synsets: Path | None
    classes: int
    size: str
    sizes: Literal["varied", "fixed"]
    labels: Literal["signal", "shuffled"]
    quality: int | None


def _fake(options: SourceOptions, num_samples: int) -> Source:
    from shardkit import FakeImageNet, FakeSource

    match = re.fullmatch(r"(\d+)x(\d+)", options.size)
    if match is None:
        raise typer.BadParameter(f"{options.size!r} is no size. Write it like 500x375", param_hint="--size")
    return FakeSource(
        FakeImageNet(
            num_samples=num_samples,
            num_classes=options.classes,
            split=options.split,
            seed=options.seed,
            size=(int(match[1]), int(match[2])),
            sizes=options.sizes,
            quality=options.quality or FAKE_QUALITY,
            labels=options.labels,
        )
    )


def _folder(options: SourceOptions, _: int) -> Source:
    from shardkit import open_folder

    return open_folder(
        options.from_folder or Path(),
        split=options.split,
        seed=options.seed,
        val_share=options.val_share,
        shuffle=options.shuffle,
    )


def _table(options: SourceOptions, _: int) -> Source:
    from shardkit import Columns, open_table

    return open_table(
        options.from_table or Path(),
        columns=Columns(options.image_column, options.label_column, options.key_column),
        root=options.root,
        split=options.split,
        seed=options.seed,
        val_share=options.val_share,
        shuffle=options.shuffle,
    )


def _ilsvrc(options: SourceOptions, _: int) -> Source:
    from shardkit import open_ilsvrc_train, open_ilsvrc_val

    archive = options.from_ilsvrc or Path()
    if options.ground_truth is None:
        if options.synsets is not None:
            raise typer.BadParameter(
                "goes with --ground-truth: the train archive has its classes", param_hint="--synsets"
            )
        return open_ilsvrc_train(archive, seed=options.seed, shuffle=options.shuffle)
    return open_ilsvrc_val(
        archive,
        ground_truth=options.ground_truth,
        synsets=options.synsets,
        seed=options.seed,
        shuffle=options.shuffle,
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of source: its option (None: where no other is given), how it is opened, and the options it knows.

    ``open``: None for shards, which ``wds reshard`` opens and packs.
    """

    option: str | None
    name: str
    open: Callable[[SourceOptions, int], Source] | None
    options: tuple[str, ...]
    default_shard_samples: int = DEFAULT_SHARD_SAMPLES


_KINDS = (
    Kind(
        None, "fake pictures", _fake,
        ("split", "classes", "size", "sizes", "labels", "quality", "crop_ready"), default_shard_samples=100,
    ),
    Kind(
        "from_folder", "an image folder: --from-folder", _folder,
        ("split", "val_share", "shuffle", "on_error", "quality", "max_size", "crop_ready"),
    ),
    Kind(
        "from_table", "a table: --from-table", _table,
        ("split", "val_share", "shuffle", "on_error", "quality", "max_size", "crop_ready", "image_column",
         "label_column", "key_column", "root"),
    ),
    Kind(
        "from_ilsvrc", "an original archive: --from-ilsvrc", _ilsvrc,
        ("shuffle", "on_error", "quality", "max_size", "crop_ready", "ground_truth", "synsets"),
    ),
    Kind(
        "from_shards", "shards: --from-shards", None,
        ("split", "shuffle", "on_error", "quality", "max_size", "crop_ready"),
    ),
)  # fmt: skip


def chosen_kind(options: SourceOptions) -> Kind:
    """Return the kind of source that was asked for. Raises: typer.BadParameter: several were."""
    given = [kind for kind in _KINDS if kind.option is not None and getattr(options, kind.option) is not None]
    if len(given) > 1:
        names = " and ".join(_flag(kind.option or "") for kind in given)
        raise typer.BadParameter(f"pack one source at a time, not {names}", param_hint=_flag(given[1].option or ""))
    return given[0] if given else _KINDS[0]


def refuse_others(ctx: typer.Context, kind: Kind) -> None:
    """Refuse options that would change nothing here. Raises: typer.BadParameter: naming the first that was given."""
    for name in dict.fromkeys(option for other in _KINDS for option in other.options):
        if name not in kind.options and was_given(ctx, name):
            owners = ", or ".join(other.name for other in _KINDS if name in other.options)
            raise typer.BadParameter(f"is an option of {owners}", param_hint=_flag(name))


def was_given(ctx: typer.Context, name: str) -> bool:
    """Tell whether an option stands on the command line, default or not."""
    given = ctx.get_parameter_source(name)
    return given is not None and given.name == "COMMANDLINE"


def opened(kind: Kind, options: SourceOptions, *, count: int | None, size: ShardSize) -> tuple[Source, int | None]:
    """Return the source, and the number of shards to make of it; None: as many as the size gives."""
    if kind.open is None:
        raise typer.BadParameter(f"{kind.name} is packed by wds reshard")
    if kind.option is not None:
        return kind.open(options, 0), count
    # Fake pictures are made to measure: so many full shards.
    return kind.open(options, (count or 4) * (size.samples or kind.default_shard_samples)), None


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
