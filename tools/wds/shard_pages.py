"""The files that ``wds inspect`` writes for people: the contact sheet and the HTML page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wds.console import print_note
from wds.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardkit import CheckOptions, Finding, ShardReport

__all__ = ["Pages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Which pages are wanted, and whether they may replace what is there."""

    sheet: Path | None
    html: Path | None
    num_tiles: int
    replace: bool

    def require_writable(self, patterns: Sequence[str]) -> None:
        """Make sure, before shards are read for hours, that the pages can be written.

        Raises: ReportError: a name of another kind, no folder, or shards that can be read only once. OutputExistsError.
        """
        from shardkit import OutputExistsError, ReportError

        for path, suffix in ((self.sheet, ".png"), (self.html, ".html")):
            if path is None:
                continue
            if path.suffix.lower() != suffix:
                raise ReportError(f"{path}: the file is a {suffix[1:].upper()}; give it a name that ends in {suffix}")
            if not path.parent.is_dir():
                raise ReportError(f"{path.parent}: no such folder. Make it first")
            if path.exists() and not self.replace:
                raise OutputExistsError(f"{path} exists. Choose another name, or give --on-exists overwrite")
        if self.sheet is not None and list(patterns) == ["-"]:
            raise ReportError("a sheet reads samples again, which standard input cannot give. Name the shard")

    def write(
        self,
        reports: Sequence[ShardReport],
        across: Sequence[Finding],
        *,
        title: str,
        classes: Sequence[str],
        options: CheckOptions,
    ) -> None:
        """Read some samples again and write the pages that are wanted."""
        if self.sheet is None and self.html is None:
            return
        from shardkit import TileOptions, contact_sheet, html_report, mask_url, tiles_of, write_atomically

        summaries = [report.summary for report in reports]
        settings = TileOptions(
            num_tiles=self.num_tiles, max_pixels=options.max_pixels, allow_commands=options.allow_commands
        )
        tiles = tiles_of(summaries, settings)
        title = mask_url(title) if len(title) <= 200 else counted(len(reports), "shard")
        if self.sheet is not None:
            total = sum(summary.samples for summary in summaries)
            heading = f"{title}: {len(tiles):,} of {counted(total, 'sample', spec=',')}"
            write_atomically(self.sheet, contact_sheet(tiles, title=heading, classes=classes), replace=self.replace)
            print_note(f"wrote {self.sheet}")
        if self.html is not None:
            page = html_report(reports, across, title=title, tiles=tiles, classes=classes)
            write_atomically(self.html, page, replace=self.replace)
            print_note(f"wrote {self.html}")
