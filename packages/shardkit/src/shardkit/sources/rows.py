"""Samples of shards as columns of numbers, and how one shard gives its rows: from its index, by the filters.

Owns what is kept of a sample (where it lies, its label, its members' sizes) and nothing more; no key is held.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from shardkit.errors import IndexFileError, PictureError, ShardReadError, printable
from shardkit.index.shard_index import ShardIndex, build_index, index_path_of, index_state, read_index
from shardkit.keys import LABEL_EXTENSION, PICTURE_EXTENSIONS, picture_extension
from shardkit.pictures import open_picture
from shardkit.sources.selection import Selection, read_keys
from shardkit.tar.reader import ShardFile

__all__ = ["Rows", "ShardInput", "join_rows", "load_rows", "repeated_key"]

_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInput:
    """A shard to read: where it was named, where it lies as a plain tar, and what its index says of it."""

    location: str
    path: Path
    num_samples: int = 0
    num_bytes: int = 0
    checksum: str = ""

    @property
    def name(self) -> str:
        """Its file name, printable."""
        return printable(os.path.basename(self.location))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Samples as columns: number of the shard, byte offset and size there, label (-1: none), each (n,).

    ``member_sizes``: (n, extensions) bytes, -1 where a sample lacks the member. ``hashes``: of the keys, or empty.
    """

    extensions: tuple[str, ...]
    shards: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    member_sizes: npt.NDArray[np.int64] | npt.NDArray[np.int32]
    hashes: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.shards)

    def take(self, rows: npt.NDArray[np.int64]) -> Rows:
        """Return these rows, in this order."""
        return replace(
            self,
            shards=self.shards[rows],
            offsets=self.offsets[rows],
            sizes=self.sizes[rows],
            labels=self.labels[rows],
            member_sizes=self.member_sizes[rows],
            hashes=self.hashes[rows] if len(self.hashes) else self.hashes,
        )

    def without_hashes(self) -> Rows:
        """Return the rows without what only a search for doubles needs."""
        return replace(self, hashes=np.empty(0, np.uint64))

    def members(self, number: int) -> Iterator[tuple[str, int]]:
        """Yield (extension, size in bytes) of the members of one sample, by extension."""
        for extension, size in zip(self.extensions, self.member_sizes[number].tolist(), strict=True):
            if size >= 0:
                yield extension, size


def load_rows(shard: ShardInput, *, selection: Selection) -> tuple[ShardInput, Rows, dict[str, int]]:
    """Return a shard with what is on record of it, its rows that pass the filters, and counts for the user.

    Raises: ShardReadError: a damaged shard. OSError.
    """
    index = _index_of(shard)
    counts = {"beside": _places_beside(index, shard.path), "halves": 0, "unread": 0}
    keep = np.ones(index.num_samples, bool)
    if selection.labels is not None:
        keep &= np.isin(index.labels, np.array(selection.labels, np.int64))
    if selection.keys is not None:
        listed = _listed(index, selection.keys)
        counts["keys"] = int(listed.sum())
        keep &= listed
    if selection.drop_keys is not None:
        listed = _listed(index, selection.drop_keys)
        counts["drop_keys"] = int(listed.sum())
        keep &= ~listed
    pictures = _picture_columns(index)
    if selection.min_bytes is not None or selection.max_bytes is not None:
        num_bytes = _of_pictures(index.member_sizes, pictures)
        most = np.iinfo(np.int64).max if selection.max_bytes is None else selection.max_bytes
        keep &= (num_bytes >= (selection.min_bytes or 0)) & (num_bytes <= most)
    if selection.min_side is not None or selection.max_side is not None:
        keep &= _of_right_sides(shard, index, pictures=pictures, keep=keep, selection=selection, counts=counts)
    has_label = np.zeros(index.num_samples, bool)
    if LABEL_EXTENSION in index.extensions:
        has_label = index.member_sizes[:, index.extensions.index(LABEL_EXTENSION)] >= 0
    counts["halves"] = int((keep & ~(has_label & (pictures >= 0))).sum())
    rows = np.flatnonzero(keep)
    known = replace(shard, num_samples=index.num_samples, num_bytes=index.num_bytes, checksum=index.checksum)
    return known, _rows(index, rows), counts


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several shards as one, numbered by shard in this order."""
    extensions = tuple(sorted({extension for part in parts for extension in part.extensions}))
    total = sum(len(part) for part in parts)
    most = max((int(np.max(part.member_sizes, initial=0)) for part in parts), default=0)
    # Half the memory for all but members of 2 GiB and more.
    shape = (total, len(extensions))
    member_sizes = np.full(shape, -1, np.int32) if most < 2**31 else np.full(shape, -1, np.int64)
    start = 0
    for part in parts:
        for column, extension in enumerate(part.extensions):
            member_sizes[start : start + len(part), extensions.index(extension)] = part.member_sizes[:, column]
        start += len(part)
    return Rows(
        extensions=extensions,
        shards=np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts]),
        offsets=np.concatenate([part.offsets for part in parts]),
        sizes=np.concatenate([part.sizes for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
        member_sizes=member_sizes,
        hashes=np.concatenate([part.hashes for part in parts]),
    )


def repeated_key(shards: Sequence[ShardInput], rows: Rows) -> str | None:
    """Say which key two samples share and where they are, None where every sample has its own."""
    order = np.argsort(rows.hashes, kind="stable")
    again = np.flatnonzero(rows.hashes[order][1:] == rows.hashes[order][:-1])
    for position in again.tolist():
        # Equal hashes are a suspicion; the keys decide.
        places = sorted((int(order[position]), int(order[position + 1])))
        keys = []
        for row in places:
            with ShardFile(shards[int(rows.shards[row])].path) as file:
                keys.append(file.read_key(int(rows.offsets[row]), int(rows.sizes[row])))
        if keys[0] == keys[1]:
            where = [f"{shards[int(rows.shards[row])].location} at byte {rows.offsets[row]}" for row in places]
            return f"key '{printable(keys[0])}' is in {where[0]} and in {where[1]}"
    return None


def _rows(index: ShardIndex, rows: npt.NDArray[np.int64]) -> Rows:
    hashes = (xxhash.xxh3_64_intdigest(index.keys[row].encode("utf-8", "surrogateescape")) for row in rows)
    return Rows(
        extensions=index.extensions,
        shards=np.zeros(len(rows), np.int32),
        offsets=index.offsets[rows],
        sizes=index.sizes[rows],
        labels=index.labels[rows],
        member_sizes=index.member_sizes[rows],
        hashes=np.fromiter(hashes, np.uint64, len(rows)),
    )


def _index_of(shard: ShardInput) -> ShardIndex:
    """Return the index beside the shard where it fits and is not older, else one made by reading the shard."""
    path = Path(index_path_of(shard.location))
    if str(shard.path) == shard.location:
        # An index that cannot be used is no reason to stop: the shard says the same.
        with contextlib.suppress(IndexFileError):
            if index_state(shard.path) == "fresh":
                return read_index(path)
    try:
        return build_index(shard.path)
    except ShardReadError as error:
        # Of a shard that was unpacked, the name that the user knows.
        raise ShardReadError(
            shard.location,
            error.reason,
            rule=error.rule,
            member=error.member,
            offset=error.offset,
            remedy="Save what is whole first: wds repair",
        ) from error


def _places_beside(index: ShardIndex, path: Path) -> int:
    """Count the places in front of, between and behind the samples that hold something else. Raises: OSError."""
    ends = index.offsets + index.sizes
    starts = np.concatenate(([0], ends))
    between = index.offsets - starts[:-1]
    with open(path, "rb") as file:
        file.seek(int(starts[-1]))
        # A block of zeros is the end marker; up to 20 of them follow it, as the packer fills its last record.
        behind = any(file.read(_BLOCK_BYTES))
    return int((between > 0).sum()) + behind


def _listed(index: ShardIndex, path: Path) -> npt.NDArray[np.bool_]:
    wanted = read_keys(path)
    return np.fromiter((key in wanted for key in index.keys), bool, index.num_samples)


def _picture_columns(index: ShardIndex) -> npt.NDArray[np.int64]:
    """Return the column of each sample's picture, -1 where it has none: (n,)."""
    columns = np.full(index.num_samples, -1, np.int64)
    for extension in reversed(PICTURE_EXTENSIONS):
        if extension in index.extensions:
            column = index.extensions.index(extension)
            columns[index.member_sizes[:, column] >= 0] = column
    return columns


def _of_pictures(values: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each sample's value in the column of its picture, -1 where it has none."""
    if not values.shape[1]:
        return np.full(len(columns), -1, np.int64)
    return np.where(columns >= 0, values[np.arange(len(columns)), np.maximum(columns, 0)], -1)


def _of_right_sides(
    shard: ShardInput,
    index: ShardIndex,
    *,
    pictures: npt.NDArray[np.int64],
    keep: npt.NDArray[np.bool_],
    selection: Selection,
    counts: dict[str, int],
) -> npt.NDArray[np.bool_]:
    """Tell which of the samples to keep have pictures of the right sides, by the pictures' headers."""
    right = np.zeros(index.num_samples, bool)
    with ShardFile(shard.path) as file:
        for row in np.flatnonzero(keep & (pictures >= 0)):
            members = file.read_sample(int(index.offsets[row]), int(index.sizes[row])).members
            extension = picture_extension(members)
            try:
                width, height = open_picture(members[extension or ""]).size
            except (PictureError, KeyError):
                counts["unread"] += 1
                continue
            right[row] = min(width, height) >= (selection.min_side or 0)
            right[row] &= selection.max_side is None or max(width, height) <= selection.max_side
    return right
