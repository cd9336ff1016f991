"""The shards of a dataset as workers see them: where each lies, how many samples it has, and one sample by its number.

Owns the step from a sample's number (its place in the dataset as listed) to its bytes: find the shard, bring it here,
open it, look up the offset, check the key. Open files and indexes are bounded. Everything here can be pickled.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shardkit import (
    Sample,
    ShardFile,
    ShardIndex,
    ShardkitError,
    ShardReadError,
    build_index,
    counted,
    index_from_json,
    index_path_of,
    parse_label,
    read_index,
    write_index,
)
from wdsloader.ahead import AheadThreads
from wdsloader.arriving import CHUNK_BYTES
from wdsloader.cache import WantedFile
from wdsloader.errors import DatasetError, FetchError, SampleError
from wdsloader.fetch import Fetcher, is_remote, mask_url
from wdsloader.order import Int64s, listed_starts
from wdsloader.remote_shard import RemoteShard

__all__ = ["SampleReader", "ShardEntry", "ShardTable", "StoredSample", "fetched_index", "stale", "wanted_of"]

log = logging.getLogger(__name__)

# Statuses with which stores answer for an object that is not there; some deny the very question.
_ABSENT = frozenset({403, 404, 410})
# Asked for already, so not worth asking again.
_REMEMBERED_CHUNKS = 1 << 16


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
        shard = int(self.starts.searchsorted(sample, side="right")) - 1
        return shard, sample - int(self.starts[shard])


@dataclass(frozen=True, slots=True)
class StoredSample:
    """One sample as it lies in its shard; ``label`` is -1 where it has no integer label."""

    shard: str
    content: Sample
    label: int


class _Slot:
    """A shard that is read: its index, and what reads its samples, made by the first thread that needs them.

    ``refusal``: a final answer of its server that a thread which fetches ahead has met; the reader is told, and does
    not ask again at once. ``refused``: whether there was one; nothing is fetched ahead of such a shard.
    """

    def __init__(self, entry: ShardEntry, *, threads: AheadThreads) -> None:
        self._entry, self._threads = entry, threads
        self._lock = threading.Lock()
        self._closed = False
        self.refusal: FetchError | None = None
        self.refused = False
        self.index: ShardIndex | None = None
        self.remote: RemoteShard | None = None
        self.local: ShardFile | None = None

    def opened(self, fetcher: Fetcher | None) -> ShardIndex:
        """Return the index. Raises: DatasetError: it and the shard do not belong together. FetchError."""
        with self._lock:
            self._tell_refusal()
            if self.index is None:
                index, num_bytes = _index_and_size(self._entry, fetcher)
                _require_fit(self._entry, index, num_bytes=num_bytes)
                if fetcher is not None and is_remote(self._entry.url):
                    wanted = wanted_of(self._entry)
                    self.remote = RemoteShard(wanted, num_bytes=num_bytes, fetcher=fetcher, threads=self._threads)
                    if self._closed:
                        # By the reader, while a thread that fetches ahead was here.
                        self.remote.close()
                self.index = index
            return self.index

    def read(self, offset: int, size: int) -> Sample:
        """Return the sample in these bytes, once it is opened. Raises: FetchError, ShardkitError, OSError."""
        if self.remote is not None:
            return self.remote.read_sample(offset, size)
        self.local = self.local or ShardFile(self._entry.url)
        return self.local.read_sample(offset, size)

    def bring(self, row: int, *, fetcher: Fetcher | None) -> None:
        """Fetch a sample and what lies behind it, unless its server has refused that. Raises: FetchError."""
        if self.refused:
            return
        try:
            index = self.opened(fetcher)
            if self.remote is not None:
                first = int(index.offsets[row])
                self.remote.bring(first, min(first + CHUNK_BYTES, index.num_bytes))
        except FetchError as error:
            if error.status is not None:
                self.refusal, self.refused = error, True
            raise

    def _tell_refusal(self) -> None:
        refusal, self.refusal = self.refusal, None
        if refusal is not None:
            raise refusal

    def close_file(self) -> None:
        """Close the file, to be opened again by the next read."""
        if self.remote is not None:
            self.remote.close_file()
        elif self.local is not None:
            self.local.close()
            self.local = None

    def close(self, *, finish: bool = False) -> None:
        """Close it. Args: finish: once what is being fetched is whole."""
        self._closed = True
        self.close_file()
        if self.remote is not None:
            self.remote.retire() if finish else self.remote.close()


class SampleReader:
    """Reads samples by number, with at most ``max_files`` files open and ``max_indexes`` indexes in memory.

    Close it, or use it up: files are closed when their place is needed.

    Args: stop_on_damage: a remote shard that turns out to be another than its record, once all of it is here, ends
        reading with the next sample, whichever that is; else only with the next one of that shard.
    """

    def __init__(
        self, table: ShardTable, *, max_indexes: int, max_files: int = 128, stop_on_damage: bool = True
    ) -> None:
        self._table, self._stop_on_damage = table, stop_on_damage
        self._max_indexes, self._max_files = max(1, max_indexes), max(1, max_files)
        if table.fetcher is not None:
            # What is read no more must not be held, or a full cache could not make room; and shards that are fetched
            # ahead have a place beside those that are read.
            self._max_files = min(self._max_files, self._max_indexes)
            self._max_indexes *= 2
        self._slots: OrderedDict[int, _Slot] = OrderedDict()
        self._files: OrderedDict[int, _Slot] = OrderedDict()
        self._asked: OrderedDict[tuple[int, int], None] = OrderedDict()
        ahead = 0 if table.fetcher is None else table.fetcher.cache.config.ahead_bytes
        self._threads = AheadThreads(max_tasks=ahead // CHUNK_BYTES)
        if table.fetcher is not None:
            table.fetcher.serve(self)
            # They may outlive a reader that is dropped unclosed.
            table.fetcher.serve(self._threads)

    def join(self, *, within_s: float) -> None:
        """Wait until what was fetched ahead has ended; nothing of it is begun once this is closed."""
        self._threads.join(within_s=within_s)

    def close(self) -> None:
        """Close every file, and give up what is being fetched."""
        self._threads.close()
        for slot in self._slots.values():
            slot.close()
        self._files.clear()
        self._slots.clear()
        if self._table.fetcher is not None:
            self._table.fetcher.close()

    def read(self, sample: int) -> StoredSample:
        """Return one sample.

        Raises: SampleError: its bytes are damaged, or not the sample the index names. DatasetError: the index or
            manifest is not this shard's. FetchError.
        """
        if self._stop_on_damage and self._threads.failure is not None:
            raise self._threads.failure
        number, row = self._table.locate(sample)
        slot = self._slot(number)
        index = slot.opened(self._table.fetcher)
        self._count_file(number, slot)
        known = self._table.entries[number].faults.get(row)
        shard, key, offset = mask_url(self._table.entries[number].url), index.keys[row], int(index.offsets[row])
        try:
            if known is not None:
                raise known
            content = slot.read(offset, int(index.sizes[row]))
        except FetchError as error:
            slot.refused = slot.refused or error.status is not None
            slot.refusal = None
            raise
        except (ShardkitError, OSError) as error:
            if self._table.fetcher is not None:
                self._table.fetcher.cache.require_writable(error)
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

    def will_need(self, samples: Iterable[int]) -> None:
        """Have the samples fetched that come next, in the order in which they come, up to the cache's ``ahead_bytes``.

        Cheap to call again with samples that were named before; does nothing for local shards.
        """
        fetcher = self._table.fetcher
        if fetcher is None:
            return
        left = fetcher.cache.config.ahead_bytes // CHUNK_BYTES
        named: set[tuple[int, int]] = set()
        for distance, sample in enumerate(samples):
            number, row = self._table.locate(sample)
            entry = self._table.entries[number]
            if not is_remote(entry.url):
                continue
            # Where a sample lies is in the index, which may have to be fetched too; this is near enough to count by.
            chunk = (number, row * (entry.num_bytes or 0) // entry.num_samples // CHUNK_BYTES)
            if chunk in named:
                continue
            if len(named) >= left:
                break
            named.add(chunk)
            if chunk not in self._asked:
                self._asked[chunk] = None
                self._ask_ahead(number, row, distance=distance)
        while len(self._asked) > _REMEMBERED_CHUNKS:
            self._asked.popitem(last=False)

    def _ask_ahead(self, number: int, row: int, *, distance: int) -> None:
        slot, fetcher = self._slot(number), self._table.fetcher
        self._threads.soon(lambda: slot.bring(row, fetcher=fetcher), distance=distance)

    def _slot(self, number: int) -> _Slot:
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = _Slot(self._table.entries[number], threads=self._threads)
            while len(self._slots) > self._max_indexes:
                old, oldest = self._slots.popitem(last=False)
                self._files.pop(old, None)
                oldest.close(finish=True)
        self._slots.move_to_end(number)
        return slot

    def _count_file(self, number: int, slot: _Slot) -> None:
        self._files[number] = slot
        self._files.move_to_end(number)
        while len(self._files) > self._max_files:
            self._files.popitem(last=False)[1].close_file()


def wanted_of(entry: ShardEntry) -> WantedFile:
    """Return what the file of a shard must be."""
    return WantedFile(entry.url, num_bytes=entry.num_bytes, checksum=entry.checksum)


def _index_and_size(entry: ShardEntry, fetcher: Fetcher | None) -> tuple[ShardIndex, int]:
    """Return the index of a shard and the shard's length; a remote one is not fetched for it if there is an index."""
    try:
        if not is_remote(entry.url):
            return entry.index or read_index(Path(index_path_of(entry.url))), Path(entry.url).stat().st_size
        if fetcher is None:
            raise DatasetError(f"{mask_url(entry.url)}: a remote shard without a folder to keep it in")
        index = fetched_index(wanted_of(entry), fetcher)
        return index, entry.num_bytes or index.num_bytes
    except FetchError:
        raise
    except (ShardkitError, OSError) as error:
        if fetcher is not None:
            fetcher.cache.require_writable(error)
        raise DatasetError(str(error)) from error


def _require_fit(entry: ShardEntry, index: ShardIndex, *, num_bytes: int) -> None:
    """Refuse an index that is another shard's. Raises: DatasetError."""
    if index.num_bytes != num_bytes:
        raise stale(entry.url, f"has {num_bytes} bytes, its index says {index.num_bytes}")
    if index.num_samples != entry.num_samples or entry.checksum not in (None, index.checksum):
        index_says = f"{counted(index.num_samples, 'sample')} and checksum {index.checksum}"
        raise stale(entry.url, f"{index_says} in its index, {entry.num_samples} and {entry.checksum} in its manifest")


def fetched_index(wanted: WantedFile, fetcher: Fetcher) -> ShardIndex:
    """Return the index of a remote shard: the server's, else one made from the fetched shard and kept beside it.

    Raises: FetchError. IndexFileError, ShardReadError: no index can be read or made. OSError.
    """
    kept = fetcher.cache.path_of(wanted.url)
    made = Path(index_path_of(str(kept)))
    if made.exists() and _fits(index := read_index(made), wanted):
        return index
    url = index_path_of(wanted.url)
    try:
        index = index_from_json(fetcher.document(url))
        # Kept from before the shard was packed anew? If the server's is no other, the caller refuses it.
        return index if _fits(index, wanted) else index_from_json(fetcher.document(url, anew=True))
    except FetchError as error:
        if error.status not in _ABSENT:
            raise
    log.info("%s: the server has no index; it is made from the fetched shard", mask_url(wanted.url))
    with fetcher.open(wanted):
        index = build_index(kept)
        write_index(index, made)
    return index


def _fits(index: ShardIndex, wanted: WantedFile) -> bool:
    return wanted.num_bytes in (None, index.num_bytes) and wanted.checksum in (None, index.checksum)


def _cause(error: ShardkitError | OSError) -> str:
    """Return why a sample could not be read, without the shard and place that the caller adds."""
    return f"{error.reason} ({error.rule})" if isinstance(error, ShardReadError) else str(error)


def stale(url: str, what: str) -> DatasetError:
    """Return the error of a shard that is not the one its index or manifest describes."""
    return DatasetError(f"{mask_url(url)}: {what}: the shard was changed or cut. Index or fetch it again")
