"""The commands for a cache of remote shards: ``wds cache ls``, ``verify`` and ``clear``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wds.console import AsJson, Progress, human_bytes, print_json, print_line, print_note
from wds.text import counted

if TYPE_CHECKING:
    from wdsloader import CacheEntry, ShardCache

__all__ = ["cache_app"]

cache_app = typer.Typer(no_args_is_help=True, help="Look at a folder of cached shards, check it, empty it.")

Folder = Annotated[
    Path, typer.Argument(metavar="CACHE_DIR", help="The folder that --cache-dir named.", show_default=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")]


@cache_app.command("ls")
def list_files(folder: Folder, as_json: AsJson = False) -> None:
    """List the cached files: size, last use, where each came from. What is not the cache's own is left out."""
    entries = _opened(folder).entries()
    if as_json:
        print_json({"files": [_document(entry) for entry in entries], "bytes": sum(e.num_bytes for e in entries)})
        return
    for entry in entries:
        print_line(f"{human_bytes(entry.num_bytes):>10}  {_when(entry.used_s)}  {entry.origin.url}")
    print_note(f"{counted(len(entries), 'file')}, {human_bytes(sum(entry.num_bytes for entry in entries))} in {folder}")


@cache_app.command("verify")
def verify(
    folder: Folder,
    remove: Annotated[bool, typer.Option("--remove", help="Remove damaged files: they are fetched again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read every cached file and compare it with the checksum it had when it was fetched."""
    cache = _opened(folder)
    entries = cache.entries()
    progress = Progress("verified", total=len(entries), quiet=as_json)
    damaged: list[dict[str, object]] = []
    for entry in entries:
        problem = cache.damage(entry)
        progress.advance()
        if problem is not None:
            removed = remove and cache.remove(entry)
            damaged.append({**_document(entry), "problem": problem, "removed": removed})
    progress.close()
    if as_json:
        print_json({"verified": len(entries), "damaged": damaged})
    else:
        _print_damaged(damaged, num_verified=len(entries), remove=remove)
    if any(not document["removed"] for document in damaged):
        raise typer.Exit(1)


@cache_app.command("clear")
def clear(folder: Folder, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Remove every cached file that nobody is reading, and what killed processes left. Other files stay."""
    cache = _opened(folder)
    entries = cache.entries()
    removed = entries if dry_run else cache.clear()
    num_bytes, in_use = sum(entry.num_bytes for entry in removed), len(entries) - len(removed)
    if as_json:
        print_json({"dry_run": dry_run, "removed": len(removed), "bytes": num_bytes, "in_use": in_use})
    else:
        verb = "would remove" if dry_run else "removed"
        kept = f"; {in_use} in use" if in_use else ""
        print_line(f"{verb} {counted(len(removed), 'file')}, {human_bytes(num_bytes)}{kept}")


def _opened(folder: Path) -> ShardCache:
    from wdsloader import CacheConfig, ShardCache

    if not folder.is_dir():
        raise typer.BadParameter(f"{folder}: no such folder")
    return ShardCache(CacheConfig(folder=folder))


def _document(entry: CacheEntry) -> dict[str, object]:
    origin = entry.origin
    return {
        "file": str(entry.path),
        "url": origin.url,
        "bytes": entry.num_bytes,
        "xxh3_128": origin.checksum,
        "last_use": _when(entry.used_s),
    }


def _print_damaged(damaged: list[dict[str, object]], *, num_verified: int, remove: bool) -> None:
    for document in damaged:
        kept = " (kept: it is being read, or the folder cannot be written)" if remove else ""
        done = " (removed)" if document["removed"] else kept
        print_line(f"{document['file']}: {document['problem']}{done}  {document['url']}")
    print_line(f"{counted(num_verified, 'file')} verified, {len(damaged)} damaged")


def _when(unix_s: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(unix_s, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
