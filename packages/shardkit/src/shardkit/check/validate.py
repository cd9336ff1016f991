"""Check shards against the rules and return every finding; never prints, never stops at the first.

Owns the way from paths to findings: which manifest a shard belongs to, and the work spread over processes. What several
shards together must not have is in ``together``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from shardkit.check.marks import SampleMarks, mark_samples
from shardkit.check.rules import Finding, check_scan, find_rule, finding
from shardkit.check.scan import Expectation, ScanOptions, ShardScan, scan_shard
from shardkit.errors import IndexFileError
from shardkit.index.shard_index import ShardIndex, index_path_of, read_index, shard_name
from shardkit.keys import split_name
from shardkit.locations import beside
from shardkit.manifest import Manifest, ShardRecord, readable_manifests_in
from shardkit.pictures import MAX_PIXELS
from shardkit.processes import map_in_order
from shardkit.show.summary import ShardSummary, summarize
from shardkit.tar.gunzip import MAX_UNPACK_RATIO

__all__ = ["CheckOptions", "Membership", "ShardReport", "check_shards"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """How to check.

    ``num_classes``: labels must be below it (None: as the manifest beside the shards says, if there is one).
    ``pictures``: open and hash every picture, else check structure, names and labels alone. ``decode``: unpack every
    picture that is opened. ``max_unpack_ratio``: a gzip file that unpacks to more is read no further. ``jobs``:
    processes. ``against_manifest``: hold shards against manifest and index beside them. ``complete``: a shard that such
    a manifest lists and its folder lacks is a finding. ``end_marker``: a shard must have one. ``ignore``: ids of rules
    whose findings are counted only. ``allow_commands``: ``pipe:`` locations are run.
    Raises: UnknownRuleError: ``ignore`` names a rule that there is not.
    """

    num_classes: int | None = None
    pictures: bool = True
    decode: bool = True
    max_pixels: int = MAX_PIXELS
    max_unpack_ratio: int = MAX_UNPACK_RATIO
    jobs: int = 1
    against_manifest: bool = True
    complete: bool = False
    end_marker: bool = True
    ignore: frozenset[str] = frozenset()
    allow_commands: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "ignore", frozenset(find_rule(rule_id).id for rule_id in self.ignore))

    @property
    def scan(self) -> ScanOptions:
        """How far to look into a shard."""
        return ScanOptions(
            pictures=self.pictures,
            decode=self.decode,
            max_pixels=self.max_pixels,
            max_unpack_ratio=self.max_unpack_ratio,
            allow_commands=self.allow_commands,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The dataset that a shard belongs to: its manifest's path, split, number of classes (0: unknown) and of shards."""

    manifest: str
    split: str
    num_classes: int
    num_shards: int


@dataclass(frozen=True, slots=True)
class ShardReport:
    """One shard: what it holds and what is wrong with it.

    ``marks``: of all its samples, in order. ``ignored``: number of findings by rule that were not wanted.
    """

    summary: ShardSummary
    findings: tuple[Finding, ...]
    marks: SampleMarks = field(compare=False, repr=False)
    dataset: Membership | None = None
    ignored: Mapping[str, int] = field(default_factory=dict)

    def for_comparison(self) -> ShardReport:
        """Return a report of what comparing shards needs: without findings, and with a summary that counts nothing."""
        return replace(self, summary=summarize(ShardScan(shard=self.summary.shard)), findings=())


def check_shards(
    paths: Sequence[str], options: CheckOptions, *, manifests: Mapping[str, Manifest] = MappingProxyType({})
) -> Iterator[ShardReport]:
    """Check shards (paths, URLs, commands, or ``-``) and yield a report of each, in the order given.

    A file that cannot be opened is a finding too (WDS000), and so is a manifest that cannot be used (WDS053).
    Args: manifests: those that lie elsewhere, by URL; those in the shards' folders are found.
    Raises: WorkerDiedError.
    """
    expected = _Expectations(options, manifests)
    tasks = [(path, *expected.of(path), options) for path in paths]
    # Another process has no standard input of ours.
    yield from map_in_order(_check_one, tasks, jobs=1 if "-" in paths else options.jobs)


def _check_one(task: tuple[str, Expectation, Membership | None, CheckOptions]) -> ShardReport:
    path, expectation, dataset, options = task
    if options.against_manifest:
        expectation = replace(expectation, index=_index_beside(path))
    index = expectation.index
    try:
        scan = scan_shard(path, expected=expectation, options=options.scan)
        found = check_scan(scan)
    except OSError as error:
        scan = ShardScan(shard=path)
        found = [finding("WDS000", path, f"cannot be read: {error.strerror or error}")]
    return ShardReport(
        summarize(scan),
        _with_origins([finding for finding in found if finding.rule not in options.ignore], index),
        mark_samples(scan.samples.values()),
        dataset,
        Counter(finding.rule for finding in found if finding.rule in options.ignore),
    )


def _with_origins(findings: Sequence[Finding], index: ShardIndex | str | None) -> tuple[Finding, ...]:
    """Name the file that each finding's sample was packed from, where the index knows it."""
    if not findings or not isinstance(index, ShardIndex) or not index.origins:
        return tuple(findings)
    origins = dict(zip(index.keys, index.origins, strict=True))

    def with_origin(finding: Finding) -> Finding:
        if finding.member is None:
            return finding
        key, _ = split_name(finding.member) or (finding.member, "")
        return replace(finding, origin=origins.get(key) or None)

    return tuple(map(with_origin, findings))


def _index_beside(path: str) -> ShardIndex | str | None:
    """Return the index beside a local shard, why it cannot be read, or None where there is none."""
    place = Path(index_path_of(path))
    try:
        return read_index(place) if path != "-" and place.is_file() else None
    except (IndexFileError, OSError) as error:
        return str(error)


_Listed = tuple[str, Manifest, ShardRecord]


class _Expectations:
    """What shards are held against, from the manifests in their folders and those named by URL."""

    def __init__(self, options: CheckOptions, manifests: Mapping[str, Manifest]) -> None:
        self._options = options
        self._by_folder: dict[Path, dict[str, list[_Listed]]] = {}
        self._by_url: dict[str, list[_Listed]] = {}
        for url, manifest in manifests.items():
            for record in manifest.shards:
                self._by_url.setdefault(beside(url, record.name), []).append((url, manifest, record))

    def of(self, path: str) -> tuple[Expectation, Membership | None]:
        """Return what a shard is held against, and the dataset it belongs to."""
        options = self._options
        expectation = Expectation(num_classes=options.num_classes, end_marker=options.end_marker)
        listed = self._by_url.get(path, [])
        folder = Path(path).parent
        if options.against_manifest and path != "-" and folder.is_dir():
            if folder not in self._by_folder:
                self._by_folder[folder], unusable = _records_in(folder)
                names = self._by_folder[folder]
                gone = tuple(name for name in names if options.complete and not (folder / name).exists())
                expectation = replace(expectation, unusable_manifests=unusable, gone=gone)
            listed = self._by_folder[folder].get(os.path.basename(path), [])
        if not listed:
            return expectation, None
        place, manifest, record = listed[-1]
        splits = tuple((shard_name(place), manifest.split) for place, manifest, _ in listed)
        expectation = replace(
            expectation,
            record=record,
            num_classes=options.num_classes or manifest.num_classes,
            splits=splits if len({split for _, split in splits}) > 1 else (),
        )
        return expectation, Membership(
            manifest=place, split=manifest.split, num_classes=manifest.num_classes or 0, num_shards=len(manifest.shards)
        )


def _records_in(folder: Path) -> tuple[dict[str, list[_Listed]], tuple[str, ...]]:
    """Return what the manifests in a folder say of each shard, and why some of them cannot be used."""
    manifests, unusable = readable_manifests_in(folder)
    records: dict[str, list[_Listed]] = {}
    for path, manifest in manifests:
        for shard in manifest.shards:
            records.setdefault(shard.name, []).append((str(path), manifest, shard))
    return records, unusable
