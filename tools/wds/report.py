"""The command that makes a page of runs: ``wds report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from wds.console import AsJson, print_json, print_line, print_note
from wds.text import counted

if TYPE_CHECKING:
    from resnettrain import Judgement

__all__ = ["OnExists", "print_verdict", "report", "require_writable"]

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders of wds train.", show_default=False)]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE.html", show_default="RUN/report.html", help="Where the page goes."),
]
Evals = Annotated[
    list[Path] | None,
    typer.Option(
        "--eval",
        metavar="FILE.json",
        help="The file of `wds eval RUN --per-class --json > FILE.json`: classes go in too.",
    ),
]
OnExists = Annotated[
    Literal["fail", "overwrite"], typer.Option("--on-exists", help="Where a file of that name is there already.")
]


def report(
    runs: Runs, html: Html = None, evals: Evals = None, on_exists: OnExists = "fail", as_json: AsJson = False
) -> None:
    """Make one HTML page of runs: verdict, curves, settings, a comparison. It stands alone and loads nothing.

    With --json, the figures and the verdict are printed, and a page is written only where --html names it.
    """
    from resnettrain import read_class_report, read_run, report_document, report_page
    from shardkit import write_atomically

    found = [read_run(run) for run in runs]
    classes = [read_class_report(path) for path in evals or ()]
    page = html or (None if as_json else runs[0] / "report.html")
    if page is not None:
        require_writable(page, suffix=".html", replace=on_exists == "overwrite")
        write_atomically(page, report_page(found, classes=classes), replace=on_exists == "overwrite")
    document = report_document(found)
    if as_json:
        print_json({**document, "html": None if page is None else str(page)})
        return
    for run in document["runs"]:
        print_line(f"{run['run_dir']}: {_in_words(run)}")
        print_verdict(run["verdict"])
    print_note(f"wrote {page}")


def print_verdict(judged: Sequence[Judgement | dict[str, Any]]) -> None:
    """Print findings, a line each, and below each what to do about it."""
    for one in judged:
        text, advice = (one["text"], one["advice"]) if isinstance(one, dict) else (one.text, one.advice)
        print_line(f"- {text}")
        if advice:
            print_line(f"  {advice}")


def _in_words(run: dict[str, Any]) -> str:
    words = [run["outcome"], counted(run["samples"], "sample")]
    for name, key in (("training top-1", "train_top1"), ("validation top-1", "val_top1")):
        words += [f"{name} {run[key]:.4f}"] if run[key] is not None else []
    return ", ".join(words)


def require_writable(path: Path, *, suffix: str, replace: bool) -> None:
    """Refuse a name for a new file before there is anything to write. Raises: ReportError, OutputExistsError."""
    from resnettrain import ReportError
    from shardkit import OutputExistsError

    if path.suffix.lower() != suffix:
        raise ReportError(f"{path}: the file is {suffix[1:].upper()}; give it a name that ends in {suffix}")
    if not path.parent.is_dir():
        raise ReportError(f"{path.parent}: no such folder. Make it first")
    if path.exists() and not replace:
        raise OutputExistsError(f"{path} exists. Choose another name, or give --on-exists overwrite")
