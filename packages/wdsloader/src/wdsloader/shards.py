"""The shards of a dataset as workers see them: where each lies, how many samples it has, and one sample by its number.

Owns the step from a sample's number (its place in the dataset as listed) to its bytes: find the shard, bring it here,
open it, look up the offset, check the key. Open files and indexes are bounded. Everything here can be pickled.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shardkit import (
    Sample,
    ShardFile,
    ShardIndex,
    ShardkitError,
    ShardReadError,
    build_index,
    index_path_of,
    parse_label,
    read_index,
    write_index,
)
from wdsloader.errors import DatasetError, FetchError, SampleError
from wdsloader.fetch import Fetcher, is_remote, mask_url
from wdsloader.order import Int64s, listed_starts

__all__ = ["SampleReader", "ShardEntry", "ShardTable", "StoredSample", "fetched_index", "stale"]

log = logging.getLogger(__name__)

# Statuses with which stores answer for an object that is not there; some deny the very question.
_ABSENT = frozenset({403, 404, 410})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One shard: its path or URL, what is known of it, and its index where that lies in no file.

    ``faults``: rows of that index which cannot be read, as was found when it was made, and why.
    """

    url: str
    num_samples: int
    num_bytes: int | None = None
    checksum: str | None = None
    index: ShardIndex | None = None
    faults: Mapping[int, ShardReadError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShardTable:
    """The shards in listed order, and who fetches the remote ones (None: all are local)."""

    entries: tuple[ShardEntry, ...]
    fetcher: Fetcher | None = None
    starts: Int64s = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", listed_starts([entry.num_samples for entry in self.entries]))

    def locate(self, sample: int) -> tuple[int, int]:
        """Return (shard, row in the shard) of a sample number."""
        shard = int(np.searchsorted(self.starts, sample, side="right")) - 1
        return shard, sample - int(self.starts[shard])


@dataclass(frozen=True, slots=True)
class StoredSample:
    """One sample as it lies in its shard; ``label`` is -1 where it has no integer label."""

    shard: str
    content: Sample
    label: int


@dataclass(slots=True)
class _OpenShard:
    index: ShardIndex
    path: Path
    file: ShardFile | None = None


class SampleReader:
    """Reads samples by number, with at most ``max_files`` files open and ``max_indexes`` indexes in memory.

    Close it, or use it up: files are closed when their place is needed.
    """

    def __init__(self, table: ShardTable, *, max_indexes: int, max_files: int = 128) -> None:
        self._table = table
        self._max_indexes, self._max_files = max(1, max_indexes), max(1, max_files)
        self._shards: OrderedDict[int, _OpenShard] = OrderedDict()
        self._files: OrderedDict[int, ShardFile] = OrderedDict()

    def close(self) -> None:
        """Close every file."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._shards.clear()

    def will_need(self, samples: Iterable[int]) -> None:
        """Hear which samples will be read next, in this order. Local shards need no preparation."""

    def read(self, sample: int) -> StoredSample:
        """Return one sample.

        Raises: SampleError: its bytes are damaged, or not the sample the index names. DatasetError: the index or
            manifest is not this shard's. FetchError.
        """
        number, row = self._table.locate(sample)
        index, file = self._open(number)
        known = self._table.entries[number].faults.get(row)
        shard, key, offset = mask_url(self._table.entries[number].url), index.keys[row], int(index.offsets[row])
        try:
            if known is not None:
                raise known
            content = file.read_sample(offset, int(index.sizes[row]))
        except (ShardkitError, OSError) as error:
            rule = getattr(error, "rule", None)
            raise SampleError(shard, _cause(error), key=key, offset=offset, rule=rule) from error
        if content.key != key:
            reason = f"the index has '{key}' here, the shard '{content.key}': the index is stale. Delete it"
            raise SampleError(shard, reason, key=content.key, offset=offset, kind="stale index")
        label, found = int(index.labels[row]), parse_label(content.members.get("cls", b""))
        if label != (-1 if found is None else found):
            reason = f"the index has label {label} here, the shard {found}: the index is stale. Delete it"
            raise SampleError(shard, reason, key=key, offset=offset, kind="stale index")
        return StoredSample(shard, content, label)

    def _open(self, number: int) -> tuple[ShardIndex, ShardFile]:
        shard = self._shards.get(number)
        if shard is None:
            shard = self._shards[number] = self._load(self._table.entries[number])
            while len(self._shards) > self._max_indexes:
                self._close_file(self._shards.popitem(last=False)[0])
        self._shards.move_to_end(number)
        file = self._files.get(number)
        if file is None:
            file = self._files[number] = ShardFile(shard.path)
            while len(self._files) > self._max_files:
                self._close_file(next(iter(self._files)))
        self._files.move_to_end(number)
        return shard.index, file

    def _close_file(self, number: int) -> None:
        file = self._files.pop(number, None)
        if file is not None:
            file.close()

    def _load(self, entry: ShardEntry) -> _OpenShard:
        """Bring a shard and its index here, and check that they belong together."""
        try:
            if is_remote(entry.url):
                if self._table.fetcher is None:
                    raise DatasetError(f"{mask_url(entry.url)}: a remote shard without a folder to keep it in")
                path = self._table.fetcher.local_path(entry.url, num_bytes=entry.num_bytes)
                index = fetched_index(entry.url, self._table.fetcher, path=path)
            else:
                path = Path(entry.url)
                index = entry.index or read_index(Path(index_path_of(entry.url)))
            found = path.stat().st_size
        except FetchError:
            raise
        except (ShardkitError, OSError) as error:
            raise DatasetError(str(error)) from error
        if index.num_bytes != found:
            raise stale(entry.url, f"has {found} bytes, its index says {index.num_bytes}")
        if index.num_samples != entry.num_samples or entry.checksum not in (None, index.checksum):
            index_says = f"{index.num_samples} samples and checksum {index.checksum}"
            raise stale(
                entry.url, f"{index_says} in its index, {entry.num_samples} and {entry.checksum} in its manifest"
            )
        return _OpenShard(index, path)


def fetched_index(url: str, fetcher: Fetcher, *, path: Path) -> ShardIndex:
    """Return the index of a remote shard: the server's, else one made from the fetched shard and kept beside it.

    Args: path: of the fetched shard.
    Raises: FetchError. IndexFileError, ShardReadError: no index can be read or made. OSError.
    """
    made, found = Path(index_path_of(str(path))), path.stat().st_size
    if made.exists() and (index := read_index(made)).num_bytes == found:
        return index
    try:
        index = read_index(fetcher.document(index_path_of(url)))
        if index.num_bytes != found:
            # Kept from before the shard was packed anew; if the server's is no other, the caller refuses it.
            index = read_index(fetcher.document(index_path_of(url), anew=True))
        return index
    except FetchError as error:
        if error.status not in _ABSENT:
            raise
    log.info("%s: the server has no index; it is made from the fetched shard", mask_url(url))
    index = build_index(path)
    write_index(index, made)
    return index


def _cause(error: ShardkitError | OSError) -> str:
    """Return why a sample could not be read, without the shard and place that the caller adds."""
    return f"{error.reason} ({error.rule})" if isinstance(error, ShardReadError) else str(error)


def stale(url: str, what: str) -> DatasetError:
    """Return the error of a shard that is not the one its index or manifest describes."""
    return DatasetError(f"{mask_url(url)}: {what}: the shard was changed or cut. Index or fetch it again")
