"""The inexact mode, for shards whose sample counts are not known: split by shard, shuffled in a bounded buffer.

Openly weaker than the exact order: ranks and workers enter it through the split, epochs have no known length, ranks may
make different numbers of steps, and there is no resume inside an epoch. What is left: every sample of the shards once
an epoch (with tail="drop" less what fills no batch of its worker), equal order for equal seed and layout, and a new
order each epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import BinaryIO

import numpy as np

from shardkit import Sample, ShardkitError, iter_samples, parse_label, seeded_permutation, seeded_words
from wdsloader.config import LoaderConfig
from wdsloader.errors import SampleError
from wdsloader.fetch import Fetcher, is_remote, mask_url
from wdsloader.order import Int64s
from wdsloader.pipeline import Part, decode_sample, empty_part
from wdsloader.shards import ShardEntry, ShardTable, wanted_of

__all__ = ["StreamTask", "stream_parts"]

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
class _Streamed:
    shard: int
    content: Sample


def stream_parts(task: StreamTask) -> Iterator[Part]:
    """Yield the worker's own whole batches of one epoch; ``position`` counts this worker's samples.

    Raises: SampleError: a damaged shard or sample. FetchError.
    """
    config = task.config
    samples = _shuffled(task) if config.shuffle else (streamed for _, streamed in _read(task))
    waiting: list[_Streamed] = []
    position = 0
    for streamed in samples:
        waiting.append(streamed)
        if len(waiting) == config.batch_size:
            yield _decode(waiting, task, position=position, num_rows=config.batch_size)
            position += len(waiting)
            waiting = []
    if waiting and config.tail != "drop":
        num_rows = config.batch_size if config.tail == "pad" else len(waiting)
        yield _decode(waiting, task, position=position, num_rows=num_rows)


def _shards_of(task: StreamTask) -> Int64s:
    """Return the worker's share of the shards, in the epoch's order."""
    num_shards = len(task.table.entries)
    order = np.arange(num_shards)
    if task.config.shuffle:
        order = seeded_permutation(num_shards, key=(task.config.seed, task.epoch, "shards"))
    return order[task.rank + task.world_size * task.worker :: task.world_size * task.num_workers]


def _read(task: StreamTask) -> Iterator[tuple[int, _Streamed]]:
    """Yield (a random word, a sample) for every sample of the worker's shards, read forward."""
    for shard in _shards_of(task).tolist():
        entry = task.table.entries[shard]
        url, words = entry.url, _words(task, shard)
        with _opened(entry, task.table.fetcher) as stream:
            try:
                for content in iter_samples(stream, shard=mask_url(url)):
                    yield next(words), _Streamed(shard, content)
            except ShardkitError as error:
                raise SampleError(mask_url(url), str(error), offset=getattr(error, "offset", None)) from error


def _opened(entry: ShardEntry, fetcher: Fetcher | None) -> BinaryIO:
    if fetcher is None or not is_remote(entry.url):
        return open(entry.url, "rb")
    return fetcher.open(wanted_of(entry))


def _words(task: StreamTask, shard: int) -> Iterator[int]:
    for piece in count():
        yield from seeded_words(_WORDS_AT_ONCE, key=(task.config.seed, task.epoch, "buffer", shard, piece)).tolist()


def _shuffled(task: StreamTask) -> Iterator[_Streamed]:
    """Draw from a bounded buffer that fills while it serves: until it is full, one sample out for two in."""
    buffer: list[_Streamed] = []
    initial = min(task.config.stream_buffer, _INITIAL_SAMPLES)
    for number, (word, streamed) in enumerate(_read(task)):
        buffer.append(streamed)
        if len(buffer) > task.config.stream_buffer or (len(buffer) >= initial and number % 2):
            yield _draw(buffer, word)
    if buffer:
        rest = seeded_permutation(len(buffer), key=(task.config.seed, task.epoch, "drain", buffer[-1].shard))
        yield from (buffer[i] for i in rest.tolist())


def _draw(buffer: list[_Streamed], word: int) -> _Streamed:
    """Take out one element at random; the last one takes its place."""
    at = (word * len(buffer)) >> 64
    buffer[at], buffer[-1] = buffer[-1], buffer[at]
    return buffer.pop()


def _decode(waiting: list[_Streamed], task: StreamTask, *, position: int, num_rows: int) -> Part:
    """Decode a batch; rows beyond the samples are masked and repeat row 0."""
    part = empty_part(num_rows, size=task.config.image_size, epoch=task.epoch, position=position)
    for row, streamed in enumerate(waiting):
        content = streamed.content
        shard = mask_url(task.table.entries[streamed.shard].url)
        name = f"{streamed.shard}:{content.key}"
        decode_sample(content, name, shard=shard, config=task.config, epoch=task.epoch, out=part.images[row])
        label = parse_label(content.members.get("cls", b""))
        part.labels[row] = -1 if label is None else label
        part.weights[row] = 1
    part.images[len(waiting) :] = part.images[0]
    part.labels[len(waiting) :] = part.labels[0]
    return replace(part, keys=tuple(s.content.key for s in waiting) + (None,) * (num_rows - len(waiting)))
