"""The command that shows what shards hold: ``wds inspect``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import typer

from wds.checks import (
    DEFAULT_MAX_PIXELS,
    AllowCommands,
    Classes,
    MaxPixels,
    NoDecode,
    Patterns,
    Strict,
    as_document,
    check,
    exit_on,
    visible_name,
)
from wds.console import JOBS, AsJson, Jobs, print_json
from wds.patterns import shards_to_read
from wds.screen import Screen
from wds.shard_pages import Pages
from wds.shard_view import print_reports

__all__ = ["inspect"]

_PAGES = "Pages to look at"
Sheet = Annotated[
    Path | None,
    typer.Option("--sheet", metavar="FILE.png", help="Write a picture of many samples.", rich_help_panel=_PAGES),
]
SheetSize = Annotated[
    int, typer.Option(min=1, max=1024, help="Samples on it, spread evenly over all shards.", rich_help_panel=_PAGES)
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE.html", help="Write one page with all of it.", rich_help_panel=_PAGES),
]
OnExists = Annotated[
    Literal["fail", "overwrite"],
    typer.Option("--on-exists", help="Where a page is there already.", rich_help_panel=_PAGES),
]


def inspect(
    patterns: Patterns,
    classes: Classes = None,
    no_decode: NoDecode = False,
    max_pixels: MaxPixels = DEFAULT_MAX_PIXELS,
    strict: Strict = False,
    allow_commands: AllowCommands = False,
    sheet: Sheet = None,
    sheet_size: SheetSize = 64,
    html: Html = None,
    on_exists: OnExists = "fail",
    jobs: Jobs = JOBS,
    as_json: AsJson = False,
) -> None:
    """Show what shards hold and every problem found. `-` reads one shard from standard input."""
    from shardkit import CheckOptions, class_names, combined

    options = CheckOptions(
        num_classes=classes, decode=not no_decode, max_pixels=max_pixels, jobs=jobs, allow_commands=allow_commands
    )
    pages = Pages(sheet=sheet, html=html, num_tiles=sheet_size, replace=on_exists == "overwrite")
    pages.require_writable(patterns)
    named = shards_to_read(patterns, allow_commands=allow_commands)
    reports, across = check(named, options, quiet=as_json)
    names = class_names(named.shards, manifests=named.manifests.values())
    if as_json:
        together = dataclasses.asdict(combined([report.summary for report in reports]))
        together["first_keys"] = [visible_name(key) for key in together["first_keys"]]
        print_json({**as_document(reports, across), "together": together, "classes": list(names)})
    else:
        print_reports(reports, across, classes=names, screen=Screen.of_stdout())
    pages.write(reports, across, title=" ".join(patterns), classes=names, options=options)
    exit_on(reports, across, strict=strict)
