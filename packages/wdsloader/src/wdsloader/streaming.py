"""The inexact mode, for shards whose sample counts are not known: split by shard, shuffled in a bounded buffer.

Openly weaker than the exact order: ranks and workers enter it through the split, epochs have no known length, ranks may
make different numbers of steps, and there is no resume inside an epoch. What is left: every sample of the shards once
an epoch (with tail="drop" less what fills no batch of its worker), equal order for equal seed and layout, and a new
order each epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import BinaryIO

import numpy as np

from shardkit import (
    LABEL_EXTENSION,
    Sample,
    ShardReadError,
    iter_samples,
    parse_label,
    seeded_permutation,
    seeded_words,
)
from wdsloader.account import FILTERED, LOST_SHARD, Fault
from wdsloader.assembly import Part
from wdsloader.config import LoaderConfig
from wdsloader.decode import Uint8s
from wdsloader.errors import FetchError, SampleError
from wdsloader.fetch import Fetcher, is_remote, mask_url
from wdsloader.held import packed_bytes
from wdsloader.order import Int64s
from wdsloader.reading import lost_shard, require_label
from wdsloader.rows import BatchRows, Identity, rows_of
from wdsloader.shards import ShardEntry, ShardTable, StoredSample, wanted_of

__all__ = ["StreamTask", "stored_in", "stream_parts", "stream_samples"]

log = logging.getLogger(__name__)

_WORDS_AT_ONCE = 1024
# As webdataset: enough to mix from the first batch on without reading the whole buffer first.
_INITIAL_SAMPLES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTask:
    """Everything one worker of the inexact mode needs for one epoch."""

    table: ShardTable
    config: LoaderConfig
    epoch: int
    rank: int = 0
    world_size: int = 1
    worker: int = 0
    num_workers: int = 1


@dataclass(frozen=True, slots=True)
class Streamed:
    """A sample of the shard of that number."""

    shard: int
    content: Sample


def stream_parts(task: StreamTask, slots: Iterator[Uint8s]) -> Generator[Part, None, None]:
    """Yield the worker's own batches of one epoch, the last one perhaps not whole; ``position`` counts its samples.

    Under "skip" bad samples are left out of the batches; what is left of a damaged shard behind the damage is lost.
    Args: slots: uint8 of ``slot_shape``, one for each batch; it ends early where there is none more.
    Raises: SampleError: a damaged shard or sample. FetchError. Both under "stop" alone. TransformError.
    """
    batches = _Batches(task)
    for found in stream_samples(task):
        if batches.needs_slot:
            memory = next(slots, None)
            if memory is None:
                return
            batches.begin(memory)
        batches.add(found)
        if batches.is_full:
            yield batches.take()
    left = batches.num_rows
    if left and task.config.tail != "drop":
        yield batches.take()
    elif left or batches.has_news:
        batches.forget_rows()
        yield replace(batches.take(), dropped=left)


def stream_samples(task: StreamTask) -> Iterator[Streamed | SampleError]:
    """Yield the worker's own samples of one epoch, not decoded, and under "skip" what damage there is among them."""
    return _shuffled(task) if task.config.shuffle else (found for _, found in _read(task))


class _Batches:
    """The batch that is being filled, and what was left out of it."""

    def __init__(self, task: StreamTask) -> None:
        self._task = task
        self._position = 0
        self._target: BatchRows | None = None
        self._reset()

    @property
    def needs_slot(self) -> bool:
        """Whether a batch has to be begun before more can be added."""
        return self._target is None

    @property
    def num_rows(self) -> int:
        """The rows that are filled."""
        return len(self._keys)

    @property
    def is_full(self) -> bool:
        """Whether the batch is whole."""
        return self.num_rows == self._task.config.batch_size

    @property
    def has_news(self) -> bool:
        """Whether anything was left out that no batch has told yet."""
        return bool(self._faults or self._lost)

    def begin(self, memory: Uint8s) -> None:
        """Fill a batch in this slot."""
        self._target = rows_of(memory, config=self._task.config)

    def add(self, found: Streamed | SampleError) -> None:
        """Deliver a sample into the next row, or take note of why it cannot be."""
        config, row, target = self._task.config, self.num_rows, self._target
        if target is None:
            raise RuntimeError("no batch was begun")
        try:
            stored, identity = stored_in(found, self._task)
            self._labels.append(target.deliver(stored, identity, row=row, position=self._position + row))
        except SampleError as error:
            if config.on_error == "stop" and error.kind != FILTERED:
                raise
            if error.kind == LOST_SHARD:
                self._lost.append(error.shard)
            else:
                self._faults.append(Fault.of(error, position=self._position + row))
            return
        self._keys.append(stored.content.key)

    def forget_rows(self) -> None:
        """Drop the rows that make no whole batch."""
        self._keys.clear()
        self._labels.clear()
        self._target = None

    def take(self) -> Part:
        """Return the batch: its first rows, as many as there are samples."""
        filled = self.num_rows
        part = Part(
            epoch=self._task.epoch,
            position=self._position,
            rows=np.arange(filled),
            labels=np.asarray(self._labels, np.int64),
            weights=np.ones(filled, np.float32),
            keys=tuple(self._keys),
            faults=tuple(self._faults),
            lost=tuple(self._lost),
            encoded=() if self._target is None else tuple(self._target.encoded),
        )
        self._position += filled
        self._reset()
        return part

    def _reset(self) -> None:
        self._target = None
        self._labels: list[int] = []
        self._keys: list[str] = []
        self._faults: list[Fault] = []
        self._lost: list[str] = []


def stored_in(found: Streamed | SampleError, task: StreamTask) -> tuple[StoredSample, Identity]:
    """Return a sample as others know it. Raises: SampleError: it is none, or has no label where one is required."""
    if isinstance(found, SampleError):
        raise found
    label = parse_label(found.content.members.get(LABEL_EXTENSION, b""))
    name = mask_url(task.table.entries[found.shard].url)
    stored = StoredSample(name, found.content, -1 if label is None else label)
    if task.config.labels == "required" and stored.label < 0:
        require_label(stored)
    return stored, Identity(name=f"{found.shard}:{found.content.key}", number=-1, epoch=task.epoch)


def _shards_of(task: StreamTask) -> Int64s:
    """Return the worker's share of the shards, in the epoch's order."""
    num_shards = len(task.table.entries)
    order = np.arange(num_shards)
    if task.config.shuffle:
        order = seeded_permutation(num_shards, key=(task.config.seed, task.epoch, "shards"))
    return order[task.rank + task.world_size * task.worker :: task.world_size * task.num_workers]


def _read(task: StreamTask) -> Iterator[tuple[int, Streamed | SampleError]]:
    """Yield (a random word, a sample) for every sample of the worker's shards, read forward."""
    for shard in _shards_of(task).tolist():
        entry, words = task.table.entries[shard], _words(task, shard)
        name = mask_url(entry.url)
        try:
            with _opened(entry, task.table.fetcher) as stream:
                for content in iter_samples(stream, shard=name):
                    yield next(words), Streamed(shard, content)
        except ShardReadError as error:
            damage = SampleError(name, str(error), offset=error.offset, rule=error.rule, kind="rest of a damaged shard")
            if task.config.on_error == "stop":
                raise damage from error
            yield next(words), damage
        except (FetchError, OSError) as error:
            if task.table.fetcher is not None:
                task.table.fetcher.cache.require_writable(error)
            if task.config.on_error == "stop":
                raise
            yield next(words), lost_shard(entry.url, error)


def _opened(entry: ShardEntry, fetcher: Fetcher | None) -> BinaryIO:
    if fetcher is None or not is_remote(entry.url):
        return open(entry.url, "rb")
    return fetcher.open(wanted_of(entry))


def _words(task: StreamTask, shard: int) -> Iterator[int]:
    for piece in count():
        yield from seeded_words(_WORDS_AT_ONCE, key=(task.config.seed, task.epoch, "buffer", shard, piece)).tolist()


def _shuffled(task: StreamTask) -> Iterator[Streamed | SampleError]:
    """Draw from a bounded buffer that fills while it serves: until it is full, one sample out for two in."""
    buffer = _ShuffleBuffer(task.config)
    number = 0
    for word, found in _read(task):
        if isinstance(found, SampleError):
            yield found
            continue
        buffer.add(found)
        if buffer.wants_out(number):
            yield buffer.draw(word)
        while buffer.holds_too_much():
            yield buffer.draw(word)
        number += 1
    if buffer.samples:
        rest = seeded_permutation(
            len(buffer.samples), key=(task.config.seed, task.epoch, "drain", buffer.samples[-1].shard)
        )
        yield from (buffer.samples[i] for i in rest.tolist())


class _ShuffleBuffer:
    """The samples that wait: at most ``stream_buffer``, and at most ``buffer_bytes``, whichever is less."""

    def __init__(self, config: LoaderConfig) -> None:
        self.samples: list[Streamed] = []
        self._config = config
        self._initial = min(config.stream_buffer, _INITIAL_SAMPLES)
        self._num_bytes = 0
        self._said = False

    def add(self, found: Streamed) -> None:
        """Hold one sample more."""
        self.samples.append(found)
        self._num_bytes += packed_bytes(found.content)

    def wants_out(self, number: int) -> bool:
        """Tell whether one goes out behind the sample of this number that came in."""
        held = len(self.samples)
        return held > self._config.stream_buffer or (held >= self._initial and bool(number % 2))

    def holds_too_much(self) -> bool:
        """Tell whether more bytes wait than may; the first time, one warning says how many samples fit."""
        if self._num_bytes <= self._config.buffer_bytes or not self.samples:
            return False
        if not self._said:
            self._said = True
            log.warning(
                "buffer_bytes=%d holds %d of the stream_buffer=%d samples: they are mixed less well",
                self._config.buffer_bytes,
                len(self.samples) - 1,
                self._config.stream_buffer,
            )
        return True

    def draw(self, word: int) -> Streamed:
        """Take out one sample at random; the last one takes its place."""
        at = (word * len(self.samples)) >> 64
        self.samples[at], self.samples[-1] = self.samples[-1], self.samples[at]
        drawn = self.samples.pop()
        self._num_bytes -= packed_bytes(drawn.content)
        return drawn
