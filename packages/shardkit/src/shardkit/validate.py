"""Check shards against the rules and return every finding; never prints, never stops at the first.

Owns the way from paths to findings: which manifest a shard belongs to, what several shards together must not have, and
the work spread over processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

from shardkit.manifest import Manifest, ShardRecord, manifests_in
from shardkit.pictures import MAX_PIXELS
from shardkit.rules import Finding, check_scan
from shardkit.scan import Expectation, ShardScan, scan_shard
from shardkit.summary import ShardSummary, summarize

__all__ = ["CheckOptions", "ShardReport", "check_shards", "repeated_keys"]


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How to check.

    ``num_classes``: labels must be below it (None: as the manifest beside the shards says, if there is one).
    ``decode``: unpack every picture. ``jobs``: processes. ``against_manifest``: hold shards against the manifest beside
    them.
    """

    num_classes: int | None = None
    decode: bool = True
    max_pixels: int = MAX_PIXELS
    jobs: int = 1
    against_manifest: bool = True


@dataclass(frozen=True, slots=True)
class ShardReport:
    """One shard: what it holds and what is wrong with it. ``keys``: of all its samples, in order."""

    summary: ShardSummary
    findings: tuple[Finding, ...]
    keys: tuple[str, ...] = field(default=(), repr=False)


def check_shards(paths: Sequence[str], options: CheckOptions) -> Iterator[ShardReport]:
    """Check shards (local paths, or ``-``) and yield a report of each, in the order given.

    A file that cannot be opened is a finding too (WDS000).
    """
    expectations = _expectations(paths, options)
    tasks = [(path, expectation, options) for path, expectation in zip(paths, expectations, strict=True)]
    if options.jobs <= 1 or len(paths) == 1:
        yield from map(_check_one, tasks)
        return
    # Not fork: the command may have threads, and Python 3.14 does not either.
    with ProcessPoolExecutor(min(options.jobs, len(paths)), mp_context=get_context("spawn")) as pool:
        try:
            yield from pool.map(_check_one, tasks)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def repeated_keys(reports: Sequence[ShardReport]) -> list[Finding]:
    """Return a finding for each shard that repeats keys of shards before it (WDS052)."""
    seen: dict[str, str] = {}
    findings = []
    for report in reports:
        shard = report.summary.shard
        again = [key for key in report.keys if seen.setdefault(key, shard) != shard]
        if again:
            message = f"{len(again)} keys are in other shards too, first '{again[0]}', also in {seen[again[0]]}"
            findings.append(
                Finding(
                    rule="WDS052",
                    severity="warning",
                    shard=shard,
                    message=message,
                    remedy="Give every sample of a dataset its own key",
                    member=again[0],
                )
            )
    return findings


def _check_one(task: tuple[str, Expectation, CheckOptions]) -> ShardReport:
    path, expectation, options = task
    try:
        scan = scan_shard(
            path,
            expected=expectation,
            decode=options.decode,
            max_pixels=options.max_pixels,
        )
    except OSError as error:
        finding = Finding(
            rule="WDS000",
            severity="error",
            shard=path,
            message=f"cannot be read: {error.strerror or error}",
            remedy="Check the path and its permissions",
        )
        return ShardReport(summarize(ShardScan(shard=path)), (finding,))
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
                by_folder[folder] = _records_in(folder)
            if (found := by_folder[folder].get(os.path.basename(path))) is not None:
                manifest, record = found
                expectation = replace(expectation, record=record)
                if options.num_classes is None:
                    expectation = replace(expectation, num_classes=len(manifest.classes))
        expectations.append(expectation)
    return expectations


def _records_in(folder: Path) -> dict[str, tuple[Manifest, ShardRecord]]:
    return {shard.name: (manifest, shard) for _, manifest in manifests_in(folder) for shard in manifest.shards}
