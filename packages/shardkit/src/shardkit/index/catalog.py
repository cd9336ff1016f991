"""All that is made of a set of shards in one go: an index each, and of all of them a manifest, a table, and exports.

Owns what belongs together: what describes the whole set is written last, and only if every shard could be read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from shardkit.atomic import exclusive, remove_leftovers_of, write_atomically
from shardkit.check.rules import Finding
from shardkit.errors import PatternError
from shardkit.index.exports import WidsShard, read_sizes, sizes_json, wids_json, wids_url
from shardkit.index.indexing import IndexedShard, IndexOptions, index_home, index_shards, keys_in_several
from shardkit.index.listing import (
    ListingOptions,
    common_prefix,
    list_shards,
    require_no_plan,
    require_room,
    standing_manifests,
)
from shardkit.index.shard_index import shard_name
from shardkit.index.table import TableWriter, table_writer
from shardkit.manifest import MANIFEST_SUFFIX, Manifest, read_manifest, write_manifest

__all__ = ["Catalog", "CatalogOptions", "Export", "catalog_shards"]

Export = Literal["dali", "wids", "sizes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOptions:
    """What to make.

    ``folder``: the folder for all of it but the table; None: beside the shards, in the one folder they share.
    ``manifest``: make one, of this ``prefix`` (None: what the shards' names have in common), ``classes`` (names, or how
    many; None: not known) and ``split`` (None: train). ``known``: manifests that list shards from elsewhere: one made
    here repeats what they say. ``table``: the Parquet file to write. ``write``: false reads and writes nothing.
    ``check``: compare the checksums of all shards, also where size and time agree.
    """

    folder: Path | None = None
    manifest: bool = True
    prefix: str | None = None
    classes: tuple[str, ...] | int | None = None
    split: str | None = None
    known: tuple[Manifest, ...] = ()
    table: Path | None = None
    exports: frozenset[Export] = frozenset()
    check: bool = False
    write: bool = True
    jobs: int = 1

    @property
    def asks_for_manifest(self) -> bool:
        """Whether what the manifest says was told, so that any other that lists the shards will not do."""
        return any(told is not None for told in (self.prefix, self.classes, self.split))


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """What was made.

    ``shards``: what became of each, in order. ``findings``: what is wrong with them together. ``manifests``: that list
    them, found or made; empty where none was wanted, or a shard failed. ``nameless``: the one made has labels, and
    nobody knows of which classes. ``written``: files that describe the whole set.
    """

    shards: tuple[IndexedShard, ...]
    findings: tuple[Finding, ...] = ()
    manifests: tuple[Path, ...] = ()
    nameless: bool = False
    written: tuple[Path, ...] = field(default=())

    @property
    def failed(self) -> tuple[IndexedShard, ...]:
        """The shards that could not be indexed."""
        return tuple(shard for shard in self.shards if shard.outcome == "failed")


def catalog_shards(
    locations: Sequence[str], options: CatalogOptions, *, on_shard: Callable[[IndexedShard], None]
) -> Catalog:
    """Index the shards (paths, or URLs with ``folder``) and make what the options ask for.

    The indexes of good shards are written whatever becomes of others; the rest only if no shard failed.
    Args: on_shard: called with what became of each shard, in order.
    Raises: PatternError: shards of several folders, for what describes them together; one named twice; a remote one
        without ``folder``. OutputExistsError, ManifestError: see ``listing``. TableError: no pyarrow. WorkerDiedError.
        OSError.
    """
    listing = _listing(locations, options)
    if listing is not None and options.manifest:
        require_no_plan(listing)
        if options.asks_for_manifest:
            require_room(locations, listing)
    if options.write:
        whole = [] if listing is None else [listing.path, _wids_path(listing), _sizes_path(listing)]
        remove_leftovers_of(whole if options.table is None else [*whole, options.table])
    work = IndexOptions(
        folder=options.folder,
        check=options.check,
        write=options.write,
        dali="dali" in options.exports,
        md5="wids" in options.exports,
        rows=options.table is not None,
        jobs=options.jobs,
    )
    shards: list[IndexedShard] = []
    written: list[Path] = []
    with _table(options, written) as table:
        for shard in index_shards(locations, work):
            if table is not None and shard.rows is not None:
                table.write(shard.rows)
            shards.append(replace(shard, rows=None))
            on_shard(shards[-1])
        if any(shard.outcome == "failed" for shard in shards):
            raise _Withheld
    catalog = Catalog(shards=tuple(shards), findings=tuple(keys_in_several(shards)))
    if catalog.failed or listing is None:
        return replace(catalog, written=tuple(written))
    if options.manifest:
        catalog = _with_manifest(catalog, listing, written=written, options=options)
    if options.write:
        written += _export(catalog, listing, exports=options.exports)
    return replace(catalog, written=tuple(written))


class _Withheld(Exception):  # noqa: N818  # no error: it leaves the table without publishing it
    """The table is not to be published."""


@contextlib.contextmanager
def _table(options: CatalogOptions, written: list[Path]) -> Iterator[TableWriter | None]:
    """Open the table, where one is wanted, for a block that may withhold it."""
    with contextlib.suppress(_Withheld):
        if options.table is None or not options.write:
            yield None
            return
        with table_writer(options.table) as table:
            yield table
        written.append(options.table)


def _listing(locations: Sequence[str], options: CatalogOptions) -> ListingOptions | None:
    """Return where and how the whole set is described; None where nothing of the kind is wanted."""
    if not options.manifest and not options.exports & {"wids", "sizes"}:
        return None
    folders = sorted({str(index_home(location, folder=options.folder).parent) for location in locations})
    if len(folders) > 1:
        raise PatternError(
            f"shards of {len(folders)} folders ({folders[0]}, {folders[1]}, ..) have no common manifest. Index each "
            "folder alone, all of them into one (--out DIR), or go without it (--no-manifest)"
        )
    listing = ListingOptions(
        folder=Path(folders[0]),
        prefix=options.prefix or common_prefix(locations),
        classes=options.classes,
        split=options.split,
    )
    if len(options.known) != 1:
        return listing
    known = options.known[0]
    if options.classes is None and known.num_classes is not None:
        listing = replace(listing, classes=known.classes or known.num_classes, class_order=known.class_order)
    return replace(listing, split=options.split or known.split)


def _with_manifest(
    catalog: Catalog, listing: ListingOptions, *, written: list[Path], options: CatalogOptions
) -> Catalog:
    """Return the catalog with its manifests: those that are there if they list all of it, else a new one."""
    if not options.asks_for_manifest and (standing := standing_manifests(catalog.shards, listing)):
        return replace(catalog, manifests=tuple(standing), findings=_keys_by_manifest(catalog.shards, standing))
    if not options.asks_for_manifest and (copies := _copied(catalog, listing, written=written, options=options)):
        return replace(catalog, manifests=copies)
    require_room([shard.shard for shard in catalog.shards], listing)
    manifest = list_shards(catalog.shards, listing)
    if options.write and not (listing.path.exists() and read_manifest(listing.path) == manifest):
        with exclusive(listing.folder, name=listing.path.name, wait=True):
            # Once more: another process may have written it meanwhile.
            require_room([shard.shard for shard in catalog.shards], listing)
            write_manifest(manifest, listing.path, replace=True)
        written.append(listing.path)
    labelled = any(label >= 0 for shard in catalog.shards for label in shard.labels)
    return replace(catalog, manifests=(listing.path,), nameless=labelled and manifest.num_classes is None)


def _copied(
    catalog: Catalog, listing: ListingOptions, *, written: list[Path], options: CatalogOptions
) -> tuple[Path, ...]:
    """Return the copies of the known manifests, where these list all the shards as they are; none where they do not."""
    found = {(shard_name(s.shard), s.num_samples, s.num_bytes, s.checksum) for s in catalog.shards}
    listed = {(r.name, r.num_samples, r.num_bytes, r.checksum) for m in options.known for r in m.shards}
    if not options.known or found != listed:
        return ()
    paths = []
    for manifest in options.known:
        path = listing.folder / (manifest.name + MANIFEST_SUFFIX)
        require_room([record.name for record in manifest.shards], replace(listing, prefix=manifest.name))
        if options.write and not (path.exists() and read_manifest(path) == manifest):
            write_manifest(manifest, path, replace=True)
            written.append(path)
        paths.append(path)
    return tuple(paths)


def _keys_by_manifest(shards: Sequence[IndexedShard], standing: Sequence[Path]) -> tuple[Finding, ...]:
    """Return the keys in several shards of one manifest: those of two are two datasets."""
    listed = [{record.name for record in read_manifest(path).shards} for path in standing]
    sets = [[shard for shard in shards if shard_name(shard.shard) in names] for names in listed]
    return tuple(finding for members in sets for finding in keys_in_several(members))


def _export(catalog: Catalog, listing: ListingOptions, *, exports: frozenset[Export]) -> list[Path]:
    """Write the exports that describe the whole set, and return their paths."""
    written = []
    if "wids" in exports:
        entries = [
            WidsShard(url=wids_url(s.shard), md5=s.md5, num_samples=s.num_samples, num_bytes=s.num_bytes)
            for s in catalog.shards
        ]
        written.append(_wids_path(listing))
        write_atomically(written[-1], wids_json(entries, name=listing.prefix), replace=True)
    if "sizes" in exports:
        written.append(_sizes_path(listing))
        # Other shards of the folder are in the same file, which another process may be adding to.
        with exclusive(listing.folder, name=written[-1].name, wait=True):
            before = read_sizes(written[-1].read_bytes()) if written[-1].exists() else {}
            sizes = before | {shard_name(s.shard): s.num_samples for s in catalog.shards}
            write_atomically(written[-1], sizes_json(sizes), replace=True)
    return written


def _wids_path(listing: ListingOptions) -> Path:
    return listing.folder / f"{listing.prefix}.wids.json"


def _sizes_path(listing: ListingOptions) -> Path:
    return listing.folder / "sizes.json"
