"""The options that ``wds peek`` and ``wds bench`` share, and the dataset and loader that they ask for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wds.checks import AllowCommands
from wds.patterns import expand_existing, without_stdin

if TYPE_CHECKING:
    from wdsloader import Dataset, LoaderConfig

__all__ = [
    "BATCH_SIZE",
    "IMAGE_SIZE",
    "AllowCommands",
    "BatchSize",
    "CacheDir",
    "CacheLimit",
    "ImageSize",
    "OnError",
    "Patterns",
    "Seed",
    "Shuffle",
    "opened",
    "training_config",
]

# As `wds train` has them (resnettrain's DataConfig and ModelConfig, which are not imported just to show the help).
BATCH_SIZE, IMAGE_SIZE = 64, 224

Patterns = Annotated[list[str], typer.Argument(metavar="PATTERN", help="Shards, as for `wds train`.")]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Samples in a batch.")]
Shuffle = Annotated[bool, typer.Option("--shuffle/--no-shuffle", help="As trained on, or as listed.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the order.")]
ImageSize = Annotated[int, typer.Option("--image-size", min=8, help="Side of the square picture in pixels.")]
CacheDir = Annotated[Path | None, typer.Option("--cache-dir", metavar="DIR", help="Keep fetched shards here.")]
CacheLimit = Annotated[
    str | None,
    typer.Option("--cache-limit", metavar="SIZE", help="Of --cache-dir: a size (200GiB) or a share of the disk (30%)."),
]
OnError = Annotated[
    str, typer.Option("--on-error", metavar="<stop|skip>", help="What a sample that cannot be delivered does.")
]


def opened(
    patterns: list[str], *, cache_dir: Path | None, cache_limit: str | None, allow_commands: bool, on_error: str
) -> Dataset:
    """Return the dataset that the patterns name.

    Raises: ConfigError: a limit without a cache, a value that is none. Else as ``expand_existing``, ``open_dataset``.
    """
    from wdsloader import ConfigError, cache_config, open_dataset

    if cache_dir is None and cache_limit is not None:
        raise ConfigError("--cache-limit: there is no cache to limit. Give --cache-dir too")
    if on_error not in ("stop", "skip"):
        raise ConfigError(f"--on-error {on_error}: choose stop or skip")
    named = without_stdin(patterns)
    expand_existing(named, on_error=on_error)
    return open_dataset(
        named,
        cache=None if cache_dir is None else cache_config(cache_dir, limit=cache_limit),
        allow_commands=allow_commands,
        on_error="skip" if on_error == "skip" else "stop",
    )


def training_config(
    *, batch_size: int, image_size: int, seed: int = 0, shuffle: bool = True, workers: int | None = 0, on_error: str
) -> LoaderConfig:
    """Return the settings of a loader as training has them. Raises: ConfigError: a value that no loader has."""
    from wdsloader import AugmentConfig, LoaderConfig

    return LoaderConfig(
        batch_size=batch_size,
        image_size=image_size,
        seed=seed,
        shuffle=shuffle,
        tail="pad",
        num_workers=workers,
        augment=AugmentConfig() if shuffle else None,
        on_error="skip" if on_error == "skip" else "stop",
        # To look at a set, or to time it, however much of it is bad.
        max_skipped=1.0,
        labels="optional",
    )
