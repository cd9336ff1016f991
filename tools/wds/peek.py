"""The command that shows what training will see first: ``wds peek``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wds import loader_options as opt
from wds.console import AsJson, print_json, print_line, print_note
from wds.text import counted, masked

if TYPE_CHECKING:
    from wdsloader import Dataset, EpochAccount, LoaderConfig, SampleView

__all__ = ["peek"]

Sheet = Annotated[
    Path | None, typer.Option("--sheet", metavar="FILE.png", help="Write the batches as one picture, augmented.")
]
Batches = Annotated[int, typer.Option("--batches", min=1, help="Batches to show.")]
Rows = Annotated[int, typer.Option("--rows", min=1, help="Samples of each batch to list; --json and --sheet have all.")]


def peek(
    patterns: opt.Patterns,
    batches: Batches = 2,
    rows: Rows = 8,
    batch_size: opt.BatchSize = opt.BATCH_SIZE,
    shuffle: opt.Shuffle = True,
    seed: opt.Seed = 0,
    image_size: opt.ImageSize = opt.IMAGE_SIZE,
    sheet: Sheet = None,
    cache_dir: opt.CacheDir = None,
    cache_limit: opt.CacheLimit = None,
    allow_commands: opt.AllowCommands = False,
    on_error: opt.OnError = "stop",
    as_json: AsJson = False,
) -> None:
    """Show the keys and labels of the first batches, as `wds train` has them with the same options and defaults."""
    with opt.opened(
        patterns, cache_dir=cache_dir, cache_limit=cache_limit, allow_commands=allow_commands, on_error=on_error
    ) as dataset:
        from wdsloader import SampleStream

        config = opt.training_config(
            batch_size=batch_size, image_size=image_size, seed=seed, shuffle=shuffle, on_error=on_error
        )
        stream = SampleStream(dataset, config)
        samples = list(islice(stream, batches * batch_size))
        account = stream.account
        classes = dataset.classes or ()
        if sheet is not None:
            _write_sheet(sheet, dataset, config=config, batches=batches, title=masked(" ".join(patterns)))
    if as_json:
        print_json({"batch_size": batch_size, "samples": [_figures(sample, classes) for sample in samples]})
    else:
        _print_table(samples, classes, batch_size=batch_size, rows=rows)
        print_note(f"as a training on one rank has them: --batch-size {batch_size} --seed {seed}")
    _say_skipped(account)


def _write_sheet(path: Path, dataset: Dataset, *, config: LoaderConfig, batches: int, title: str) -> None:
    """Write the first batches as training would have them, cropped and flipped."""
    from shardkit import write_atomically
    from wdsloader import TorchLoader, batch_sheet

    with TorchLoader(dataset, config) as loader:
        shown = list(islice(loader, batches))
        account = loader.account
    title = f"{title}: {counted(len(shown), 'batch/batches')} of {config.batch_size}, seed {config.seed}"
    content = batch_sheet(shown, title=title, classes=dataset.classes or ())
    write_atomically(path, content, replace=False)
    print_note(f"wrote {path}")
    _say_skipped(account)


def _say_skipped(account: EpochAccount | None) -> None:
    if account is not None and (account.replaced or account.lost_shards):
        print_note(str(account))


def _print_table(samples: Sequence[SampleView], classes: Sequence[str], *, batch_size: int, rows: int) -> None:
    """Print so many samples of each batch, and how many more it has."""
    batches = [samples[start : start + batch_size] for start in range(0, len(samples), batch_size)]
    shown = [sample for batch in batches for sample in batch[:rows]]
    width = max((len(sample.key) for sample in shown), default=3)
    label_width = max((len(_label(sample, classes)) for sample in shown), default=5)
    for number, batch in enumerate(batches):
        print_line(f"batch {number}")
        for sample in batch[:rows]:
            members = " ".join(f"{name}:{len(content)}" for name, content in sorted(sample.members.items()))
            print_line(
                f"  {sample.key:{width}}  {_label(sample, classes):{label_width}}  {masked(sample.shard)}  {members}"
            )
        if len(batch) > rows:
            print_line(f"  .. and {len(batch) - rows} more")


def _label(sample: SampleView, classes: Sequence[str]) -> str:
    if sample.label < 0:
        return "no label"
    return f"{sample.label} {classes[sample.label]}" if sample.label < len(classes) else str(sample.label)


def _figures(sample: SampleView, classes: Sequence[str]) -> dict[str, object]:
    return {
        "key": sample.key,
        "label": None if sample.label < 0 else sample.label,
        "class": classes[sample.label] if 0 <= sample.label < len(classes) else None,
        "shard": masked(sample.shard),
        "number": sample.number,
        "members": {name: len(content) for name, content in sample.members.items()},
    }
