"""Check shards against the rules and return every finding; never prints, never stops at the first.

Owns the way from paths to findings: which manifest a shard belongs to, what several shards together must not have, and
the work spread over processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shardkit.errors import ManifestError, printable
from shardkit.manifest import MANIFEST_SUFFIX, Manifest, ShardRecord, read_manifest
from shardkit.pictures import MAX_PIXELS
from shardkit.processes import process_pool
from shardkit.rules import Finding, check_scan, finding
from shardkit.scan import Expectation, ShardScan, scan_shard
from shardkit.summary import ShardSummary, summarize

__all__ = ["CheckOptions", "ShardReport", "check_shards", "check_together", "repeated_keys"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """How to check.

    ``num_classes``: labels must be below it (None: as the manifest beside the shards says, if there is one).
    ``decode``: unpack every picture. ``jobs``: processes. ``against_manifest``: hold shards against the manifest beside
    them. ``complete``: a shard that such a manifest lists and its folder lacks is a finding. ``allow_commands``: shards
    may be commands (``pipe:..``), which are run.
    """

    num_classes: int | None = None
    decode: bool = True
    max_pixels: int = MAX_PIXELS
    jobs: int = 1
    against_manifest: bool = True
    complete: bool = False
    allow_commands: bool = False


@dataclass(frozen=True, slots=True)
class ShardReport:
    """One shard: what it holds and what is wrong with it. ``keys``: of all its samples, in order."""

    summary: ShardSummary
    findings: tuple[Finding, ...]
    keys: tuple[str, ...] = field(default=(), repr=False)


def check_shards(paths: Sequence[str], options: CheckOptions) -> Iterator[ShardReport]:
    """Check shards (local paths, or ``-``) and yield a report of each, in the order given.

    A file that cannot be opened is a finding too (WDS000), and so is a manifest that cannot be used (WDS053).
    Raises: WorkerDiedError.
    """
    expectations = _expectations(paths, options)
    tasks = [(path, expectation, options) for path, expectation in zip(paths, expectations, strict=True)]
    # Another process has no standard input of ours.
    if options.jobs <= 1 or len(paths) <= 1 or "-" in paths:
        yield from map(_check_one, tasks)
        return
    with process_pool(min(options.jobs, len(paths))) as pool:
        yield from pool.map(_check_one, tasks)


def check_together(reports: Sequence[ShardReport]) -> list[Finding]:
    """Return what is wrong with shards as one dataset: repeated keys (WDS052), one class a shard (WDS033)."""
    return [*repeated_keys(reports), *_one_class_each(reports)]


def repeated_keys(reports: Sequence[ShardReport]) -> list[Finding]:
    """Return a finding for each shard that repeats keys of shards before it (WDS052)."""
    seen: dict[str, str] = {}
    findings = []
    for report in reports:
        shard = report.summary.shard
        again = [key for key in report.keys if seen.setdefault(key, shard) != shard]
        if again:
            first = f"first '{printable(again[0])}', also in {printable(seen[again[0]])}"
            findings.append(finding("WDS052", shard, f"{len(again)} keys are in other shards too, {first}", again[0]))
    return findings


def _one_class_each(reports: Sequence[ShardReport]) -> list[Finding]:
    """Return a finding if shards of several samples hold one class each, and not all the same."""
    labels = [report.summary.labels for report in reports if report.summary.samples > 1 and report.summary.labels]
    if len(labels) < 2 or any(len(counts) > 1 for counts in labels) or len(set().union(*labels)) < 2:
        return []
    return [finding("WDS033", reports[0].summary.shard, f"1 class a shard, in each of {len(labels)} shards")]


def _check_one(task: tuple[str, Expectation, CheckOptions]) -> ShardReport:
    path, expectation, options = task
    try:
        scan = scan_shard(
            path,
            expected=expectation,
            decode=options.decode,
            max_pixels=options.max_pixels,
            allow_commands=options.allow_commands,
        )
    except OSError as error:
        unreadable = finding("WDS000", path, f"cannot be read: {error.strerror or error}")
        return ShardReport(summarize(ShardScan(shard=path)), (unreadable,))
    findings = tuple(check_scan(scan))
    return ShardReport(summarize(scan), findings, tuple(scan.samples))


def _expectations(paths: Sequence[str], options: CheckOptions) -> list[Expectation]:
    """Return what each shard is held against, from the manifests in the shards' folders."""
    by_folder: dict[Path, dict[str, tuple[Manifest, ShardRecord]]] = {}
    expectations = []
    for path in paths:
        expectation = Expectation(num_classes=options.num_classes)
        folder = Path(path).parent
        if options.against_manifest and path != "-" and folder.is_dir():
            if folder not in by_folder:
                by_folder[folder], unusable = _records_in(folder)
                gone = tuple(name for name in by_folder[folder] if options.complete and not (folder / name).exists())
                expectation = replace(expectation, unusable_manifests=unusable, gone=gone)
            if (found := by_folder[folder].get(os.path.basename(path))) is not None:
                manifest, record = found
                num_classes = options.num_classes or len(manifest.classes) or None
                expectation = replace(expectation, record=record, num_classes=num_classes)
        expectations.append(expectation)
    return expectations


def _records_in(folder: Path) -> tuple[dict[str, tuple[Manifest, ShardRecord]], tuple[str, ...]]:
    """Return what the manifests in a folder say of each shard, and why some of them cannot be used."""
    records: dict[str, tuple[Manifest, ShardRecord]] = {}
    unusable = []
    for path in sorted(folder.glob("*" + MANIFEST_SUFFIX)):
        try:
            manifest = read_manifest(path)
        except (ManifestError, OSError) as error:
            unusable.append(str(error))
            continue
        records.update((shard.name, (manifest, shard)) for shard in manifest.shards)
    return records, tuple(unusable)
