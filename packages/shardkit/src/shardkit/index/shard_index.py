"""The index of one shard: where each sample and each of its members lies. Built from the shard, kept as JSON beside it.

Format ``shardkit-index`` version 1: one JSON object; per-sample columns as lists of equal length, numbers in bytes,
-1 where a sample lacks a member or an integer label. Columns, not objects, so that a million samples are a few arrays.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import xxhash

from shardkit.atomic import atomic_file
from shardkit.errors import IndexFileError, ShardReadError
from shardkit.keys import LABEL_EXTENSION, PICTURE_EXTENSIONS, split_name
from shardkit.labels import parse_label
from shardkit.pictures import MAX_PICTURE_BYTES
from shardkit.tar.byte_source import open_source
from shardkit.tar.checksum import Hasher, HashingSource, file_checksum
from shardkit.tar.header import padded
from shardkit.tar.reader import Group, walk_groups
from shardkit.tar.walk import Member, ShardWalk

__all__ = [
    "INDEX_SUFFIX",
    "IndexState",
    "ShardIndex",
    "build_index",
    "file_checksum",
    "index_from_json",
    "index_of_groups",
    "index_path_of",
    "index_state",
    "read_index",
    "shard_name",
    "write_index",
]

log = logging.getLogger(__name__)

INDEX_SUFFIX = ".index.json"
_FORMAT = "shardkit-index"
_VERSION = 1
# 128 MiB: two million samples.
_MAX_BYTES = 1 << 27
# The size stands before the long columns, so that this much of a file says whether it can be a shard's.
_HEAD_BYTES = 1 << 9
_NUM_BYTES = re.compile(rb'"num_bytes":([0-9]{1,18})[,}]')

IndexState = Literal["fresh", "unsure", "stale", "missing"]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardIndex:
    """Where the samples of one shard lie.

    ``checksum``: XXH3 (128 bits, hex) of the whole file. ``labels``: (n,), -1 where there is no integer. ``offsets``:
    (n,) byte of a sample's first header. ``sizes``: (n,) bytes from there to the end of its last member's padding.
    ``member_offsets``, ``member_sizes``: (n, extensions) bytes of the contents, -1 where a sample lacks the member.
    ``origins``: (n,) the source file of each sample, or empty.
    """

    shard: str
    num_bytes: int
    checksum: str
    extensions: tuple[str, ...]
    keys: tuple[str, ...]
    labels: Int64s
    offsets: Int64s
    sizes: Int64s
    member_offsets: Int64s
    member_sizes: Int64s
    origins: tuple[str, ...] = ()

    @property
    def num_samples(self) -> int:
        """The number of samples in the shard."""
        return len(self.keys)


def index_path_of(shard: str) -> str:
    """Return the path or URL of a shard's index: beside the shard, named after it."""
    # Only a URL has a query; a question mark in a file's name is part of the name.
    location, question, query = shard.partition("?") if "://" in shard else (shard, "", "")
    return location + INDEX_SUFFIX + question + query


def shard_name(location: Path | str) -> str:
    """Return the file name of a shard, given its path or URL."""
    text = str(location)
    return os.path.basename(urlsplit(text).path if "://" in text else text)


def index_state(shard: Path | str, *, index: Path | None = None) -> IndexState:
    """Tell from sizes and times alone whether a local shard's index is the shard's.

    ``fresh``: the size is the recorded one, and the shard is no newer than the index. ``unsure``: the size is the
    recorded one, but the shard is newer, as after a copy that did not keep the times: only the checksum tells.
    ``stale``: another size, or no index in the file. ``missing``: no such file.
    Args: index: where the index lies; None: beside the shard.
    Raises: OSError: the shard or the index cannot be looked at.
    """
    found = os.stat(shard)
    path = index_path_of(str(shard)) if index is None else index
    try:
        # Not open(): a dataset has thousands of shards, and this is a third of the time.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        return "missing"
    try:
        written_ns = os.fstat(descriptor).st_mtime_ns
        head = _NUM_BYTES.search(os.read(descriptor, _HEAD_BYTES))
    finally:
        os.close(descriptor)
    try:
        num_bytes = int(head[1]) if head is not None else read_index(Path(path)).num_bytes
    except IndexFileError:
        return "stale"
    if num_bytes != found.st_size:
        return "stale"
    return "unsure" if found.st_mtime_ns > written_ns else "fresh"


def build_index(
    location: Path | str,
    *,
    on_sample: Callable[[Group], None] | None = None,
    on_warning: Callable[[str], None] = log.warning,
    hashers: tuple[Hasher, ...] = (),
) -> ShardIndex:
    """Read an uncompressed shard (a path, or a URL) once, from its first byte to its last, and index it.

    A sample that lacks a member is indexed as it is; a shard whose bytes or order are damaged is not indexed at all.
    Args: on_sample: called with each sample in order, the contents of its pictures and label at hand; they are let go
        of afterwards. on_warning: is told what does not keep the shard from being indexed. hashers: are fed all bytes.
    Raises: ShardReadError: damage, parts apart, a duplicate, a second archive; gzip (WDS012). OSError.
    """
    shard, checksum = str(location), xxhash.xxh3_128()
    with open_source(location) as opened:
        if opened.gunzip is not None:
            reason = "gzip: samples have no byte offset in it, so it cannot be indexed"
            raise ShardReadError(shard, reason, rule="WDS012", remedy="Unpack it (gunzip) and index the plain tar")
        source = HashingSource(opened, hashers=(checksum, *hashers))
        walk = ShardWalk(source, shard=shard, want=_is_label if on_sample is None else _is_looked_at)
        groups = []
        for group in walk_groups(walk, shard=shard, on_warning=on_warning):
            if on_sample is not None:
                on_sample(group)
                group.parts = [(e, m, content if e == LABEL_EXTENSION else None) for e, m, content in group.parts]
            groups.append(group)
        source.skip(1 << 62)
    return index_of_groups(groups, shard=shard_name(location), num_bytes=source.position, checksum=checksum.hexdigest())


def _is_label(member: Member) -> bool:
    return member.name.lower().endswith("." + LABEL_EXTENSION)


def _is_looked_at(member: Member) -> bool:
    split = split_name(member.name)
    if split is None:
        return False
    return split[1] == LABEL_EXTENSION or (split[1] in PICTURE_EXTENSIONS and member.size <= MAX_PICTURE_BYTES)


def index_of_groups(
    groups: list[Group], *, shard: str, num_bytes: int, checksum: str, origins: tuple[str, ...] = ()
) -> ShardIndex:
    """Put the samples of a shard into columns; label contents must be in the groups."""
    extensions = tuple(sorted({extension for group in groups for extension, _, _ in group.parts}))
    column = {extension: i for i, extension in enumerate(extensions)}
    member_offsets = np.full((len(groups), len(extensions)), -1, np.int64)
    member_sizes = np.full((len(groups), len(extensions)), -1, np.int64)
    labels = np.full(len(groups), -1, np.int64)
    offsets = np.zeros(len(groups), np.int64)
    sizes = np.zeros(len(groups), np.int64)
    for row, group in enumerate(groups):
        for extension, member, content in group.parts:
            member_offsets[row, column[extension]] = member.offset
            member_sizes[row, column[extension]] = member.size
            if extension == LABEL_EXTENSION and content is not None:
                label = parse_label(content)
                labels[row] = -1 if label is None else label
        last = group.parts[-1][1]
        offsets[row] = group.offset
        sizes[row] = last.offset + padded(last.size) - group.offset
    return ShardIndex(
        shard=shard,
        num_bytes=num_bytes,
        checksum=checksum,
        extensions=extensions,
        keys=tuple(str(group.key) for group in groups),
        labels=labels,
        offsets=offsets,
        sizes=sizes,
        member_offsets=member_offsets,
        member_sizes=member_sizes,
        origins=origins,
    )


def write_index(index: ShardIndex, path: Path, *, shard_mtime_ns: int | None = None) -> None:
    """Write the index atomically, replacing one that is there.

    Args: shard_mtime_ns: when the shard was last changed before it was read; the file gets that time, so that a shard
        changed while it was being indexed is newer than its index.
    Raises: OSError.
    """
    with atomic_file(path, replace=True) as file:
        file.write(index_to_json(index))
        if shard_mtime_ns is not None:
            file.flush()
            os.utime(file.fileno(), ns=(shard_mtime_ns, shard_mtime_ns))


def index_to_json(index: ShardIndex) -> bytes:
    """Return the index in its file format."""
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "shard": index.shard,
        "num_bytes": index.num_bytes,
        "xxh3_128": index.checksum,
        "extensions": list(index.extensions),
        "keys": list(index.keys),
        "labels": index.labels.tolist(),
        "offsets": index.offsets.tolist(),
        "sizes": index.sizes.tolist(),
        "member_offsets": {e: index.member_offsets[:, i].tolist() for i, e in enumerate(index.extensions)},
        "member_sizes": {e: index.member_sizes[:, i].tolist() for i, e in enumerate(index.extensions)},
    }
    if index.origins:
        document["origins"] = list(index.origins)
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def read_index(path: Path) -> ShardIndex:
    """Read an index file. Raises: IndexFileError: no index, of an unknown version, or over 128 MiB. OSError."""
    try:
        # JSON takes up to 25 times its size while it is read.
        if (num_bytes := os.stat(path).st_size) > _MAX_BYTES:
            raise IndexFileError(f"{num_bytes} bytes, at most {_MAX_BYTES} are read: too many samples for one shard")
        return index_from_json(path.read_bytes())
    except IndexFileError as error:
        raise IndexFileError(f"{path}: {error}. Delete it and index the shard again") from error


def index_from_json(data: bytes) -> ShardIndex:
    """Return the index that these bytes hold. Raises: IndexFileError: no index, or of an unknown version."""
    try:
        document = json.loads(data)
        if document["format"] != _FORMAT or document["version"] != _VERSION:
            raise IndexFileError(f"format {document['format']!r} version {document['version']!r} is not known here")
        extensions = tuple(document["extensions"])
        index = ShardIndex(
            shard=document["shard"],
            num_bytes=int(_column(document["num_bytes"])),
            checksum=document["xxh3_128"],
            extensions=extensions,
            keys=tuple(document["keys"]),
            labels=_column(document["labels"]),
            offsets=_column(document["offsets"]),
            sizes=_column(document["sizes"]),
            member_offsets=_columns(document, "member_offsets"),
            member_sizes=_columns(document, "member_sizes"),
            origins=tuple(document.get("origins", ())),
        )
    except IndexFileError:
        raise
    # json goes as deep as the brackets in the file, and integers as large.
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise IndexFileError(f"not an index file ({type(error).__name__}: {error})") from error
    _require_sense(index)
    return index


def _require_sense(index: ShardIndex) -> None:
    """Refuse an index whose columns cannot be those of any shard. Raises: IndexFileError."""
    num_samples, shape = index.num_samples, (index.num_samples, len(index.extensions))
    columns = (index.labels, index.offsets, index.sizes)
    if any(column.shape != (num_samples,) for column in columns) or len(index.origins) not in (0, num_samples):
        raise IndexFileError("columns of different lengths")
    if index.member_offsets.shape != shape or index.member_sizes.shape != shape:
        raise IndexFileError("columns of different lengths")
    names = (index.shard, index.checksum, *index.extensions, *index.keys, *index.origins)
    if set(map(type, names)) != {str}:
        raise IndexFileError("a name is not text")
    if len(set(index.keys)) != num_samples:
        raise IndexFileError("a key comes twice")
    ends = index.offsets + index.sizes
    if np.any(index.sizes <= 0) or np.any(index.offsets < np.concatenate(([0], ends[:-1]))[:num_samples]):
        raise IndexFileError("samples that overlap, or have no bytes")


def _column(values: object) -> Int64s:
    """Return a column of whole numbers as an array. Raises: ValueError: it holds anything else."""
    column = np.array(values)
    if column.size and column.dtype.kind != "i":
        raise ValueError(f"a column holds {column.dtype} where whole numbers belong")
    return column.astype(np.int64, copy=False)


def _columns(document: dict[str, Any], field: str) -> Int64s:
    """Return the columns that the file keeps by extension as one array: int64 (samples, extensions)."""
    columns = [document[field][extension] for extension in document["extensions"]]
    return _column(columns).T if columns else np.empty((len(document["keys"]), 0), np.int64)
