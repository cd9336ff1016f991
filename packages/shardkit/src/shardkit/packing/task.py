"""One shard of a packing as a unit of work: kept where it is there whole, else written, with all that lies beside it.

Owns what of a shard is on disk: the tar, its index, and until the manifest is there the record of what was skipped or
kept as it was (``<shard>.skipped.json``, format ``shardkit-skipped`` version 1). The record comes first and the index
last, so that a shard whose index fits was finished.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shardkit.atomic import write_atomically
from shardkit.errors import IndexFileError, SourceError
from shardkit.index.shard_index import ShardIndex, file_checksum, index_path_of, read_index, write_index
from shardkit.manifest import ShardRecord
from shardkit.packing.config import PackConfig
from shardkit.packing.layout import ShardPlan
from shardkit.packing.recode import recode_sample
from shardkit.packing.writer import ShardWriter
from shardkit.processes import process_pool
from shardkit.sources.source import Source, SourceSample

__all__ = ["Finished", "Task", "finished_shard", "remove_shard", "remove_skip_record", "run_tasks"]

_FORMAT = "shardkit-skipped"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A shard to make, and how. ``keep``: it may be there already, from a packing of the same plan.

    ``check``: find what cannot be used, and write nothing; what would have to be fetched is passed over.
    """

    shard: ShardPlan
    config: PackConfig
    keep: bool = False
    check: bool = False

    @property
    def path(self) -> Path:
        """Where the shard goes."""
        return self.config.folder / self.shard.name


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of a task: the shard, None where there is none, and the sources that could not be used.

    ``kept``: the pictures that stay as they are though somebody may not expect it, counted by reason.
    """

    record: ShardRecord | None
    unusable: tuple[str, ...]
    kept: Mapping[str, int] = field(default_factory=dict)


def run_tasks(source: Source, tasks: Sequence[Task], *, jobs: int) -> Generator[Finished, None, None]:
    """Yield what became of every task, in order; what has begun is finished whatever happens.

    Raises: WorkerDiedError. OSError. PackError: a key that cannot be stored.
    """
    jobs = min(jobs, len(tasks))
    if jobs <= 1:
        for task in tasks:
            yield _run(source, task)
        return
    with process_pool(jobs, prepare=functools.partial(_keep_source, source)) as pool:
        futures = [pool.submit(_run_kept, task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def finished_shard(task: Task, *, verify: bool = True) -> Finished | None:
    """Return what became of a task of an earlier run, None where it was not finished.

    Args: verify: read the shard and compare its checksum with the one on record; else its size alone.
    """
    on_record = _read_skip_record(task)
    if on_record is None:
        return None
    unusable, kept = on_record
    if len(unusable) == len(task.shard.samples) and not task.path.exists():
        return Finished(None, unusable)
    try:
        index = read_index(Path(index_path_of(str(task.path))))
        num_bytes = task.path.stat().st_size
        fits = (index.shard, index.num_bytes) == (task.shard.name, num_bytes)
        fits = fits and index.num_samples + len(unusable) == len(task.shard.samples)
        if not fits or (verify and file_checksum(task.path) != index.checksum):
            return None
    except (OSError, IndexFileError):
        # Not there, or not readable: it is made again, and if that fails too, there is an error that says why.
        return None
    return Finished(_record(index), unusable, kept)


def remove_shard(path: Path) -> None:
    """Remove a shard and all that lies beside it, where it is there."""
    path.unlink(missing_ok=True)
    Path(index_path_of(str(path))).unlink(missing_ok=True)
    remove_skip_record(path)


def remove_skip_record(path: Path) -> None:
    """Remove the record of what a shard leaves out, once the manifest has it."""
    _skip_record_of(path).unlink(missing_ok=True)


# The source of this worker process: sent once when it starts, not with every shard.
_kept: list[Source] = []


def _keep_source(source: Source) -> None:
    _kept[:] = [source]


def _run_kept(task: Task) -> Finished:
    return _run(_kept[0], task)


def _run(source: Source, task: Task) -> Finished:
    if task.check:
        numbers = [number for number in task.shard.samples if source.content_sizes(number) is not None]
        checked = _Samples(source, numbers, config=task.config)
        for _ in checked:
            pass
        return Finished(None, tuple(checked.unusable))
    finished = finished_shard(task) if task.keep else None
    return finished or _write(source, task)


class _Samples:
    """Samples as they go into a shard, and what became of the others: see :class:`Finished`."""

    def __init__(self, source: Source, numbers: Sequence[int], *, config: PackConfig) -> None:
        self._source = source
        self._numbers = numbers
        self._config = config
        self.unusable: list[str] = []
        self.kept: Counter[str] = Counter()

    def __iter__(self) -> Iterator[SourceSample]:
        config = self._config
        for number in self._numbers:
            try:
                yield recode_sample(
                    self._source.sample(number), config.recode, transform=config.transform, on_kept=self._keep
                )
            except SourceError as error:
                self.unusable.append(str(error))

    def _keep(self, reason: str) -> None:
        self.kept[reason] += 1


def _write(source: Source, task: Task) -> Finished:
    """Write one shard and its index; none without a usable sample, or with a bad one that is to stop the packing."""
    path, config = task.path, task.config
    samples = _Samples(source, task.shard.samples, config=config)
    unusable = samples.unusable
    try:
        with ShardWriter(path, replace=task.keep) as writer:
            for sample in samples:
                writer.write_sample(sample.key, sample.members, origin=sample.origin)
            if config.on_error == "skip" or not unusable:
                _write_skip_record(task, unusable, kept=samples.kept)
            if len(unusable) == len(task.shard.samples) or (unusable and config.on_error == "stop"):
                raise _NothingToWrite
    except _NothingToWrite:
        return Finished(None, tuple(unusable))
    try:
        write_index(writer.index, Path(index_path_of(str(path))))
    except BaseException:
        remove_shard(path)
        raise
    return Finished(_record(writer.index), tuple(unusable), samples.kept)


class _NothingToWrite(Exception):  # noqa: N818  # no error: it leaves the writer without publishing the file
    """The shard is not to be published."""


def _record(index: ShardIndex) -> ShardRecord:
    return ShardRecord(index.shard, index.num_samples, index.num_bytes, index.checksum)


def _skip_record_of(path: Path) -> Path:
    return path.with_name(path.name + ".skipped.json")


def _write_skip_record(task: Task, unusable: Sequence[str], *, kept: Mapping[str, int]) -> None:
    """Keep beside the shard what was skipped, and how much was kept as it was; neither, no record."""
    if not unusable and not kept:
        remove_skip_record(task.path)
        return
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "shard": task.shard.name,
        "skipped": list(unusable),
        "kept": dict(kept),
    }
    write_atomically(_skip_record_of(task.path), json.dumps(document, indent=1).encode() + b"\n", replace=True)


def _read_skip_record(task: Task) -> tuple[tuple[str, ...], Mapping[str, int]] | None:
    """Return what an earlier run skipped and kept as it was, None for a record that cannot be read."""
    try:
        document = json.loads(_skip_record_of(task.path).read_bytes())
        skipped, kept = document["skipped"], document.get("kept", {})
    except FileNotFoundError:
        return (), {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    known = document.get("format") == _FORMAT and document.get("version") == _VERSION
    fits = known and isinstance(skipped, list) and all(isinstance(line, str) for line in skipped)
    fits = fits and isinstance(kept, dict) and all(type(count) is int for count in kept.values())
    return (tuple(skipped), kept) if fits else None
