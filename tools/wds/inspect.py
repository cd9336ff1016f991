"""The command that shows what shards hold: ``wds inspect``."""

from __future__ import annotations

import dataclasses

from wds.checks import (
    DEFAULT_MAX_PIXELS,
    JOBS,
    AllowCommands,
    Classes,
    Decode,
    MaxPixels,
    Patterns,
    Strict,
    as_document,
    check,
    exit_on,
    visible_name,
)
from wds.console import AsJson, Jobs, print_json
from wds.screen import Screen
from wds.shard_view import print_reports

__all__ = ["inspect"]


def inspect(
    patterns: Patterns,
    classes: Classes = None,
    decode: Decode = True,
    max_pixels: MaxPixels = DEFAULT_MAX_PIXELS,
    strict: Strict = False,
    allow_commands: AllowCommands = False,
    jobs: Jobs = JOBS,
    as_json: AsJson = False,
) -> None:
    """Show what shards hold and every problem found. `-` reads one shard from standard input."""
    from shardkit import CheckOptions, class_names, combined

    options = CheckOptions(
        num_classes=classes, decode=decode, max_pixels=max_pixels, jobs=jobs, allow_commands=allow_commands
    )
    reports, across = check(patterns, options, quiet=as_json)
    names = class_names(report.summary.shard for report in reports)
    if as_json:
        together = dataclasses.asdict(combined([report.summary for report in reports]))
        together["first_keys"] = [visible_name(key) for key in together["first_keys"]]
        print_json({**as_document(reports, across), "together": together, "classes": list(names)})
    else:
        print_reports(reports, across, classes=names, screen=Screen.of_stdout())
    exit_on(reports, across, strict=strict)
