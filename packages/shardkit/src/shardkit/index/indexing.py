"""Index many shards that others made: only those whose index is missing or stale, in parallel, each index atomically.

Owns the work on each shard, and the time of an index file: it is its shard's as it was before reading, so that a shard
that is newer than its index was changed since, or copied without its times. What is in an index never depends on it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import xxhash

from shardkit.atomic import remove_leftovers_of, write_atomically
from shardkit.check.rules import Finding, finding
from shardkit.errors import IndexFileError, PatternError, ShardkitError, counted, message_naming, printable
from shardkit.index.exports import dali_index, dali_name
from shardkit.index.shard_index import (
    INDEX_SUFFIX,
    ShardIndex,
    build_index,
    index_path_of,
    index_state,
    read_index,
    shard_name,
    write_index,
)
from shardkit.index.table import PictureLooks, sample_rows
from shardkit.locations import is_url
from shardkit.processes import map_in_order
from shardkit.tar.checksum import file_checksum

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["IndexOptions", "IndexedShard", "index_home", "index_shards", "keys_in_several"]

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """How to index.

    ``folder``: the folder for the indexes; None: beside the shards, which must be local then. ``check``: compare the
    checksums of all shards, also where size and time agree. ``write``: write the indexes that are made. ``dali``: write
    DALI's index of each shard too. ``md5``: hash each shard for wids. ``rows``: read every picture, for the table.
    """

    folder: Path | None = None
    check: bool = False
    write: bool = True
    dali: bool = False
    md5: bool = False
    rows: bool = False
    jobs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedShard:
    """What became of one shard.

    ``outcome``: its index was ``made`` where none was, ``renewed`` where a stale one was, ``kept``, or the shard
    ``failed`` for the reason in ``error``. ``labels``: label -> number of samples, -1 for none. ``key_hashes``: XXH3
    (64 bits) of each key; ``packed_keys``: all of them, NUL between. ``rows``: of the table, where wanted.
    ``dali_path``: the index for DALI that was written, None where none was.
    ``warnings``: what is wrong with a shard that was read now and could be indexed all the same.
    """

    shard: str
    index_path: Path
    outcome: Literal["made", "renewed", "kept", "failed"]
    num_samples: int = 0
    num_bytes: int = 0
    checksum: str = ""
    md5: str = ""
    labels: dict[int, int] = field(default_factory=dict)
    key_hashes: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64), repr=False)
    packed_keys: bytes = field(default=b"", repr=False)
    rows: pa.RecordBatch | None = field(default=None, repr=False)
    dali_path: Path | None = None
    warnings: tuple[str, ...] = ()
    error: str = ""


def index_home(location: str, *, folder: Path | None) -> Path:
    """Return where the index of a shard goes. Raises: PatternError: a remote shard, and no folder for its index."""
    if folder is not None:
        return folder / (shard_name(location) + INDEX_SUFFIX)
    if is_url(location):
        raise PatternError(f"{location}: an index cannot be written there. Name a folder for the indexes: --out DIR")
    return Path(index_path_of(location))


def index_shards(locations: Sequence[str], options: IndexOptions) -> Iterator[IndexedShard]:
    """Index the shards and yield what became of each, in the order given. A bad shard is an outcome, not an error.

    Raises: PatternError: two shards whose indexes would have one name; a remote shard without ``folder``. OSError: an
        index cannot be written. WorkerDiedError.
    """
    homes: dict[Path, str] = {}
    for location in locations:
        home = index_home(location, folder=options.folder)
        if home in homes:
            both = f"{location} and {homes[home]}: both indexes would be {home}"
            raise PatternError(f"{both}. Name each shard once, and index shards of one name into two folders")
        homes[home] = location
    if options.write:
        for folder in {home.parent for home in homes}:
            folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers_of([*homes, *(_dali_path(location, home) for home, location in homes.items())])
    # Starting processes takes longer than reading a few indexes that are there.
    num_read = sum(_is_read(location, home, options=options) for home, location in homes.items())
    tasks = [(location, options) for location in locations]
    yield from map_in_order(_index_one, tasks, jobs=min(options.jobs, max(1, num_read)))


def keys_in_several(shards: Sequence[IndexedShard]) -> list[Finding]:
    """Return a finding for each shard that repeats keys of shards before it (WDS052)."""
    if not shards:
        return []
    hashes = np.concatenate([shard.key_hashes for shard in shards])
    owners = np.repeat(np.arange(len(shards)), [len(shard.key_hashes) for shard in shards])
    order = np.argsort(hashes, kind="stable")
    suspects = np.unique(hashes[order[1:][hashes[order[1:]] == hashes[order[:-1]]]])
    seen: dict[str, str] = {}
    findings = []
    for number in np.unique(owners[np.isin(hashes, suspects)]).tolist():
        shard = shards[number]
        keys = shard.packed_keys.decode("utf-8", "surrogateescape").split("\0")
        twice = [keys[row] for row in np.flatnonzero(np.isin(shard.key_hashes, suspects)).tolist()]
        # Equal hashes are not yet equal keys.
        if again := [key for key in twice if seen.setdefault(key, shard.shard) != shard.shard]:
            what = f"first '{printable(again[0])}', also in {printable(seen[again[0]])}"
            message = f"{counted(len(again), 'key is/keys are')} in other shards too, {what}"
            findings.append(finding("WDS052", shard.shard, message, again[0]))
    return findings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of a shard once it, or its index, has been read."""

    index: ShardIndex
    outcome: Literal["made", "renewed", "kept"]
    shard_mtime_ns: int | None
    md5: str = ""
    rows: pa.RecordBatch | None = None
    warnings: tuple[str, ...] = ()


def _index_one(task: tuple[str, IndexOptions]) -> IndexedShard:
    """Bring the index of one shard up to date."""
    location, options = task
    home = index_home(location, folder=options.folder)
    try:
        known = _kept(location, home, options=options) or _read(location, home, options=options)
        dali = dali_index(known.index) if options.dali else b""
    except (ShardkitError, OSError) as error:
        return IndexedShard(shard=location, index_path=home, outcome="failed", error=message_naming(location, error))
    # Outside of the above: a full disk is no fault of the shard's and ends the run.
    if options.write and known.outcome != "kept":
        write_index(known.index, home, shard_mtime_ns=known.shard_mtime_ns)
    dali_path = _dali_path(location, home) if options.write and options.dali else None
    if dali_path is not None:
        write_atomically(dali_path, dali, replace=True)
    keys = [key.encode("utf-8", "surrogateescape") for key in known.index.keys]
    labels, counts = np.unique(known.index.labels, return_counts=True)
    return IndexedShard(
        shard=location,
        index_path=home,
        outcome=known.outcome,
        num_samples=known.index.num_samples,
        num_bytes=known.index.num_bytes,
        checksum=known.index.checksum,
        md5=known.md5,
        labels=dict(zip(labels.tolist(), counts.tolist(), strict=True)),
        key_hashes=np.fromiter(map(xxhash.xxh3_64_intdigest, keys), np.uint64, len(keys)),
        packed_keys=b"\0".join(keys),
        rows=known.rows,
        dali_path=dali_path,
        warnings=known.warnings,
    )


def _dali_path(location: str, home: Path) -> Path:
    return home.with_name(dali_name(shard_name(location)))


def _is_read(location: str, home: Path, *, options: IndexOptions) -> bool:
    """Tell whether the shard itself will have to be read."""
    if options.rows or options.check or options.md5 or is_url(location):
        return True
    try:
        return index_state(location, index=home) != "fresh"
    except OSError:
        return True


def _kept(location: str, home: Path, *, options: IndexOptions) -> _Known | None:
    """Return the index that is there if it is the shard's, and nothing else is to be read of the shard."""
    # A remote shard says nothing of its age, so it is read from end to end.
    if options.rows or is_url(location):
        return None
    state = index_state(Path(location), index=home)
    if state in ("missing", "stale"):
        return None
    mtime_ns = os.stat(location).st_mtime_ns
    try:
        index = read_index(home)
    except IndexFileError:
        return None
    if (state == "unsure" or options.check) and file_checksum(Path(location)) != index.checksum:
        return None
    if state == "unsure" and options.write:
        # For the next look. An index that is not ours to touch is compared again then.
        with contextlib.suppress(PermissionError):
            os.utime(home, ns=(mtime_ns, mtime_ns))
    return _Known(index=index, outcome="kept", shard_mtime_ns=mtime_ns, md5=_md5(location) if options.md5 else "")


def _read(location: str, home: Path, *, options: IndexOptions) -> _Known:
    """Read a shard once for all that is wanted of it."""
    looks = PictureLooks() if options.rows else None
    md5 = hashlib.md5(usedforsecurity=False)
    mtime_ns = None if is_url(location) else os.stat(location).st_mtime_ns
    warnings: list[str] = []
    index = build_index(location, on_sample=looks, on_warning=warnings.append, hashers=(md5,) if options.md5 else ())
    before = None
    if home.exists():
        with contextlib.suppress(IndexFileError):
            before = read_index(home)
    # The index of a shard that was packed here also knows where each sample came from: it is not replaced by less.
    kept = before is not None and before.checksum == index.checksum
    return _Known(
        index=before if before is not None and kept else index,
        outcome="kept" if kept else "renewed" if home.exists() else "made",
        shard_mtime_ns=mtime_ns,
        md5=md5.hexdigest() if options.md5 else "",
        rows=None if looks is None else sample_rows(index, looks),
        warnings=tuple(warnings),
    )


def _md5(location: str) -> str:
    state = hashlib.md5(usedforsecurity=False)
    with open(location, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            state.update(piece)
    return state.hexdigest()
