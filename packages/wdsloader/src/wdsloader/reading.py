"""Samples by number, read as ``on_error`` says: an error stops, or is what the caller gets in the sample's place.

A shard that is missing or damaged as a whole is asked for once an epoch, not once for each of its samples.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardkit import LABEL_EXTENSION
from wdsloader.account import LOST_SHARD
from wdsloader.config import LoaderConfig
from wdsloader.errors import DatasetError, FetchError, SampleError
from wdsloader.fetch import mask_url
from wdsloader.held import HeldBytes
from wdsloader.shards import SampleReader, ShardTable, StoredSample

__all__ = ["PolicyReader", "lost_shard", "require_label"]


class PolicyReader:
    """Reads through a :class:`SampleReader`, which it closes.

    ``held``: the bytes that wait in lanes. ``fetches``: whether it helps to name samples ahead.
    """

    def __init__(self, table: ShardTable, config: LoaderConfig, *, max_indexes: int) -> None:
        self._reader = SampleReader(table, max_indexes=max_indexes, stop_on_damage=config.on_error == "stop")
        self._table, self._config = table, config
        self._lost: dict[int, SampleError] = {}
        self.held = HeldBytes(config.buffer_bytes)
        self.fetches = table.fetcher is not None

    def read(self, number: int) -> StoredSample | SampleError:
        """Return a sample; under "skip" the error in its place.

        Raises: SampleError, DatasetError, FetchError: under "stop".
        """
        if self._config.on_error == "stop":
            return self._checked(self._reader.read(number))
        shard = self._table.locate(number)[0]
        if shard in self._lost:
            return self._lost[shard]
        try:
            return self._checked(self._reader.read(number))
        except SampleError as error:
            return error
        except (DatasetError, FetchError, OSError) as error:
            lost = self._lost[shard] = lost_shard(self._table.entries[shard].url, error)
            return lost

    def will_need(self, numbers: Iterable[int]) -> None:
        """Pass on which samples will be read next."""
        self._reader.will_need(numbers)

    def begin_epoch(self) -> None:
        """Try lost shards again: they may be back."""
        self._lost.clear()

    def close(self) -> None:
        """Close every file."""
        self._reader.close()

    def _checked(self, stored: StoredSample) -> StoredSample:
        if self._config.labels == "required" and stored.label < 0:
            require_label(stored)
        return stored


def require_label(stored: StoredSample) -> None:
    """Refuse a sample without a label. Raises: SampleError."""
    content = stored.content
    label = content.members.get(LABEL_EXTENSION)
    if label is None:
        found = ", ".join(sorted(content.members)) or "nothing"
        reason, rule = f"no label (cls) in this sample, only {found}", "WDS022"
    else:
        shown = label[:40].decode("utf-8", "backslashreplace")
        reason, rule = f"cls: {shown!r} is no label, a whole number from 0 up", "WDS030"
    raise SampleError(stored.shard, reason, key=content.key, offset=content.offset, rule=rule, kind="no label")


def lost_shard(url: str, error: Exception) -> SampleError:
    """Return the error that every sample of a lost shard has."""
    name, system = mask_url(url), error.__cause__ if isinstance(error.__cause__, OSError) else error
    words = system.strerror if isinstance(system, OSError) else None
    return SampleError(name, words or str(error).removeprefix(f"{name}: "), kind=LOST_SHARD)
