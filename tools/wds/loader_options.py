"""The options that ``wds peek`` and ``wds bench`` share, and the loader that they ask for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wdsloader import LoaderConfig

__all__ = ["BatchSize", "CacheDir", "ImageSize", "OnError", "Patterns", "Seed", "Shuffle", "training_config"]

Patterns = Annotated[list[str], typer.Argument(metavar="PATTERN...", help="Shards, as for `wds train`.")]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Samples in a batch.")]
Shuffle = Annotated[bool, typer.Option("--shuffle/--no-shuffle", help="As trained on, or as listed.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the order.")]
ImageSize = Annotated[int, typer.Option("--image-size", min=8, help="Side of the square picture in pixels.")]
CacheDir = Annotated[Path | None, typer.Option("--cache-dir", help="Keep fetched shards here.")]
OnError = Annotated[
    str, typer.Option("--on-error", metavar="stop|skip", help="What a sample that cannot be delivered does.")
]


def training_config(
    *, batch_size: int, image_size: int = 224, seed: int = 0, shuffle: bool = True, workers: int = 0, on_error: str
) -> LoaderConfig:
    """Return the settings of a loader as training has them. Raises: ConfigError: a value that no loader has."""
    from wdsloader import AugmentConfig, ConfigError, LoaderConfig

    if on_error not in ("stop", "skip"):
        raise ConfigError(f"--on-error {on_error}: choose stop or skip")
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
