"""The command that looks for a learning rate: ``wds lr-find``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from wds import train_options as opt
from wds.console import AsJson, StatusLine, print_json, print_line, print_note
from wds.patterns import expand_existing, without_stdin

if TYPE_CHECKING:
    from resnettrain import LrPoint, LrRange

__all__ = ["lr_find"]

# Rows of the table on the screen; --json has them all.
_ROWS = 20

NumUpdates = Annotated[int, typer.Option("--updates", metavar="N", min=2, help="Updates from the one to the other.")]
Lowest = Annotated[float, typer.Option("--lr-low", help="Learning rate of the first update.")]
Highest = Annotated[float, typer.Option("--lr-high", help="Learning rate of the last update.")]
BatchSize = Annotated[int | None, typer.Option("--batch-size", help="Samples of an update: those of all ranks.")]


def lr_find(
    patterns: opt.MorePatterns = None,
    urls: opt.Urls = None,
    recipe: opt.RecipeName = None,
    model: opt.Model = None,
    image_size: opt.ImageSize = None,
    init: opt.Init = None,
    batch_size: BatchSize = None,
    workers: opt.Workers = None,
    cache_dir: opt.CacheDir = None,
    cache_limit: opt.CacheLimit = None,
    allow_commands: opt.AllowCommands = None,
    seed: opt.Seed = None,
    on_error: opt.OnError = None,
    device: opt.Device = None,
    config: opt.ConfigFile = None,
    overrides: opt.Set = None,
    updates: NumUpdates = 100,
    lr_low: Lowest = 1e-5,
    lr_high: Highest = 10.0,
    as_json: AsJson = False,
) -> None:
    """Suggest a peak learning rate: it rises from update to update until the loss diverges. Nothing is saved."""
    flags = opt.settings_by_flag(locals())
    flags["data.urls"] = without_stdin([*(urls or []), *(patterns or [])]) or None
    from resnettrain import ConfigError, resolve_config

    settings = resolve_config(recipe_name=recipe, file=config, overrides=overrides or (), flags=flags)
    if not settings.data.urls:
        raise ConfigError("no shards are named. Give --urls PATTERN")
    expand_existing(settings.data.urls, on_error=settings.data.on_error)
    from resnettrain import find_lr

    status = StatusLine(quiet=as_json)
    try:
        found = find_lr(
            settings, num_updates=updates, lowest=lr_low, highest=lr_high, on_point=lambda at: status.redraw(_line(at))
        )
    finally:
        status.close()
    _print_range(found, as_json=as_json)


def _print_range(found: LrRange, *, as_json: bool) -> None:
    """Print the points, and what follows from them."""
    if as_json:
        print_json(asdict(found))
        return
    print_line(f"{'learning rate':>13}  {'loss':>9}  {'smoothed':>9}")
    for at in _some(found.points):
        print_line(f"{at.lr:>13.3g}  {at.loss:>9.4g}  {at.smoothed:>9.4g}")
    if found.suggestion is None:
        print_line("no suggestion: the loss did not fall. Give more --updates, or other ends (--lr-low, --lr-high)")
        return
    print_line(f"suggestion: --lr {found.suggestion:.2g}, a tenth of where the loss was lowest")
    if not found.diverged:
        print_note("The loss has not diverged: a higher --lr-high may suggest a higher one.")


def _line(at: LrPoint) -> str:
    return f"learning rate {at.lr:.3g}  loss {at.smoothed:.4f}"


def _some(points: Sequence[LrPoint]) -> Sequence[LrPoint]:
    """Return every n-th point, counted from the last one."""
    step = -(-len(points) // _ROWS)
    return points if step <= 1 else points[::-step][::-1]
