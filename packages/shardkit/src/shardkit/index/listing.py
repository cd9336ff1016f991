"""The manifest of shards that others made: its name, its classes, and whether it may take the place of one there.

Owns what such a manifest says where nobody knows better: no class names, no seed, not shuffled. It never
replaces the manifest of a packing, nor one that lists shards which are still there and were not named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shardkit.errors import ManifestError, OutputExistsError, PatternError, counted
from shardkit.index.indexing import IndexedShard
from shardkit.index.shard_index import shard_name
from shardkit.manifest import MANIFEST_SUFFIX, Manifest, ShardRecord, manifests_in, read_manifest
from shardkit.packing.config import PLAN_SUFFIX, PREFIX

__all__ = [
    "ListingOptions",
    "common_prefix",
    "list_shards",
    "read_classes",
    "require_no_plan",
    "require_room",
    "standing_manifests",
]

_OPTIONS = {"source": "index"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingOptions:
    """Where the manifest goes and what it says.

    ``classes``: the names in the order of their numbers, or how many classes there are; None: as in the manifest it
    replaces, else not known. ``class_order``: where they come from. ``split``: None: as in the manifest it replaces,
    else ``train``.
    """

    folder: Path
    prefix: str
    classes: tuple[str, ...] | int | None = None
    class_order: str = "as given"
    split: str | None = None

    def __post_init__(self) -> None:
        if not PREFIX.fullmatch(self.prefix):
            raise PatternError(f"prefix {self.prefix!r}: use letters, digits, '.', '_' and '-' only")

    @property
    def path(self) -> Path:
        """Where the manifest goes."""
        return self.folder / (self.prefix + MANIFEST_SUFFIX)


def common_prefix(locations: Sequence[str]) -> str:
    """Return what the names of the shards have in common before their numbers; ``shards`` where that is no name."""
    names = [shard_name(location) for location in locations]
    first, last = min(names), max(names)
    shared = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    common = first[:shared] if first != last else first.partition(".")[0]
    stem = re.sub(r"[-_.]?[0-9]*$", "", common).rstrip("-_.")
    return stem if PREFIX.fullmatch(stem) else "shards"


def read_classes(wanted: str) -> tuple[str, ...] | int:
    """Return the class names that a file holds, one a line in the order of their numbers; or the number that is given.

    Raises: PatternError: no such file, and no number above 0. ManifestError: no names, an empty line among them, or a
        name twice. OSError.
    """
    path = Path(wanted)
    if not path.exists():
        if re.fullmatch(r"0*[1-9][0-9]{0,6}", wanted):
            return int(wanted)
        raise PatternError(f"{wanted}: no such file. Give a file of class names, or how many classes there are")
    try:
        names = tuple(path.read_text(encoding="utf-8-sig").splitlines())
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: not UTF-8 text. Write one class name a line") from error
    first: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if not name.strip():
            raise ManifestError(f"{path}, line {number}: no name. Write one class name a line")
        if first.setdefault(name, number) != number:
            raise ManifestError(f"{path}, line {number}: {name!r} is there already, in line {first[name]}")
    if not names:
        raise ManifestError(f"{path}: no class names. Write one a line, in the order of their numbers")
    return names


def require_no_plan(options: ListingOptions) -> None:
    """Refuse a manifest in the place where that of an unfinished packing will be. Raises: OutputExistsError."""
    plan = options.folder / (options.prefix + PLAN_SUFFIX)
    if plan.exists():
        raise OutputExistsError(
            f"{plan}: a packing of this name is not finished. Let it finish (wds run-plan), or index its shards "
            "without a manifest (--no-manifest)"
        )


def require_room(locations: Sequence[str], options: ListingOptions) -> None:
    """Refuse a manifest that would drop shards which another run listed, and which are still there.

    Raises: OutputExistsError. ManifestError: the one that is there cannot be read.
    """
    if not options.path.exists():
        return
    standing = read_manifest(options.path)
    names = {shard_name(location) for location in locations}
    unnamed = [s.name for s in standing.shards if s.name not in names and (options.folder / s.name).exists()]
    if unnamed:
        raise OutputExistsError(
            f"{options.path} lists {counted(len(unnamed), 'shard that is/shards that are')} not named here, "
            f"first {unnamed[0]}. "
            "Name all of them, or give this manifest another name (--prefix), or go without it (--no-manifest)"
        )


def list_shards(shards: Sequence[IndexedShard], options: ListingOptions) -> Manifest:
    """Return the manifest of indexed shards, in the order given.

    Raises: OutputExistsError: a packing's manifest of that name no longer describes the shards. ManifestError: a label
        outside the classes given, or the manifest to be replaced cannot be read.
    """
    records = tuple(ShardRecord(shard_name(s.shard), s.num_samples, s.num_bytes, s.checksum) for s in shards)
    standing = read_manifest(options.path) if options.path.exists() else None
    if standing is not None and standing.options != _OPTIONS:
        says_same = _agrees(standing, options)
        if standing.shards == records and says_same:
            return standing
        remedy = "Pack them again, remove it, or give this manifest another name (--prefix)"
        what = "its shards are others now" if says_same else "says otherwise than told (--classes, --split)"
        raise OutputExistsError(f"{options.path} is the manifest of a packing, and {what}. {remedy}")
    labels = sorted({label for shard in shards for label in shard.labels})
    classes, num_classes, class_order = _classes(labels, options, standing=standing)
    return Manifest(
        name=options.prefix,
        split=options.split or (standing.split if standing is not None else "train"),
        seed=0,
        classes=classes,
        class_order=class_order,
        shuffled=False,
        shards=records,
        options=_OPTIONS,
        num_classes=num_classes,
    )


def _agrees(manifest: Manifest, options: ListingOptions) -> bool:
    """Tell whether a manifest says what the options tell of classes and split."""
    told = options.classes
    same = told is None or told in (manifest.classes, manifest.num_classes)
    return same and options.split in (None, manifest.split)


def standing_manifests(shards: Sequence[IndexedShard], options: ListingOptions) -> list[Path]:
    """Return the manifests in the folder that list all these shards as they are now; none where one is in no manifest.

    Raises: ManifestError: one of them cannot be read.
    """
    missing = {(shard_name(s.shard), s.num_samples, s.num_bytes, s.checksum) for s in shards}
    used = []
    for path, manifest in manifests_in(options.folder):
        listed = missing & {(r.name, r.num_samples, r.num_bytes, r.checksum) for r in manifest.shards}
        if listed:
            used.append(path)
            missing -= listed
    return [] if missing else used


def _classes(
    labels: Sequence[int], options: ListingOptions, *, standing: Manifest | None
) -> tuple[tuple[str, ...], int | None, str]:
    """Return the class names, their number, and how their order was made. Names that nobody gave are none.

    Numbers as names would make two sets differ where just their highest labels do.
    """
    if options.classes is not None:
        given, class_order, by_whom = options.classes, options.class_order, "were given"
    elif standing is not None and standing.num_classes is not None:
        given, class_order = standing.classes or standing.num_classes, standing.class_order
        by_whom = f"are in {options.path}"
    else:
        return (), None, "not known"
    names, num_classes = ((), given) if isinstance(given, int) else (given, len(given))
    highest = labels[-1] if labels else -1
    if highest >= num_classes:
        lack = "has no name:" if names else "is none of the"
        raise ManifestError(
            f"label {highest} {lack} {counted(num_classes, 'class/classes')} "
            f"{'' if names else 'that '}{by_whom}, for labels 0..{num_classes - 1}. "
            f"Give {'its name too' if names else 'their number'} (--classes), or mend the labels"
        )
    return names, num_classes, class_order
