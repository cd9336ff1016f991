"""Pack the samples of a source into shards, with an index beside each and one manifest; in parallel, with equal bytes.

Owns the plan (which sample goes into which shard), its execution over processes, and what happens when a source file is
bad or the output is there. A shard is one task: its bytes depend on the source and the plan, never on who writes it.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from shardkit.atomic import exclusive, remove_leftovers
from shardkit.errors import OutputExistsError, PackError, SourceError, UnusableSourcesError
from shardkit.index import index_path_of, write_index
from shardkit.layout import ShardPlan
from shardkit.manifest import Manifest, ShardRecord, write_manifest
from shardkit.pack_config import PackConfig, existing_output
from shardkit.processes import process_pool
from shardkit.recode import recode_sample
from shardkit.sources import Source
from shardkit.writer import ShardWriter

__all__ = ["pack"]


def pack(
    source: Source, plan: Sequence[ShardPlan], *, config: PackConfig, on_shard: Callable[[ShardRecord], None]
) -> Manifest:
    """Write the shards of the plan, their indexes, and last of all the manifest, which says that all is there.

    Whatever fails, what this call has published is taken back, and an error says why.
    Args: on_shard: called with each finished shard, in order.
    Raises: OutputExistsError: output is there and is not to be replaced, or another process is packing it now.
        PackError: an empty plan, unusable sources. WorkerDiedError. OSError.
    """
    if not plan:
        raise PackError("no shards to pack")
    if config.folder.exists() and not config.folder.is_dir():
        raise PackError(f"{config.folder}: not a folder. Name a folder for the shards")
    config.folder.mkdir(parents=True, exist_ok=True)
    with exclusive(config.folder, name=config.prefix):
        _clear_output(config)
        return _pack(source, plan, config=config, on_shard=on_shard)


def _pack(
    source: Source, plan: Sequence[ShardPlan], *, config: PackConfig, on_shard: Callable[[ShardRecord], None]
) -> Manifest:
    """Pack into a folder that has room for it and is ours alone."""
    published: list[Path] = []
    records: list[ShardRecord] = []
    unusable: list[str] = []
    try:
        with contextlib.closing(_run(source, plan, config=config, published=published)) as shards:
            for written in shards:
                unusable.extend(written.unusable)
                if written.record is not None:
                    records.append(written.record)
                    on_shard(written.record)
        if unusable and config.on_error == "stop":
            raise UnusableSourcesError(_describe(unusable))
        if not records:
            raise UnusableSourcesError(f"no usable picture in {len(source)} samples. {_describe(unusable)}")
        manifest = Manifest(
            name=config.prefix,
            split=source.split,
            seed=source.seed,
            classes=source.classes,
            class_order=source.class_order,
            shuffled=source.shuffled,
            shards=tuple(records),
            options={**source.options, **config.options},
            skipped=tuple(unusable),
        )
        write_manifest(manifest, config.manifest_path)
    except BaseException:
        for path in published:
            path.unlink(missing_ok=True)
            Path(index_path_of(str(path))).unlink(missing_ok=True)
        raise
    return manifest


@dataclass(frozen=True, slots=True)
class _Task:
    """What a process needs to write one shard."""

    plan: ShardPlan
    config: PackConfig


@dataclass(frozen=True, slots=True)
class _Written:
    """What became of a task: the shard, None where none was published, and the sources that could not be used."""

    record: ShardRecord | None
    unusable: list[str]


def _run(
    source: Source, plan: Sequence[ShardPlan], *, config: PackConfig, published: list[Path]
) -> Generator[_Written, None, None]:
    """Yield what became of every shard, in order; enter in ``published`` the shards that have got their names."""
    tasks = [_Task(shard, config) for shard in plan]
    jobs = min(config.jobs, len(tasks))
    if jobs == 1:
        for task in tasks:
            written = _write_shard(source, task)
            published += _paths(written, config)
            yield written
        return
    with process_pool(jobs, prepare=functools.partial(_keep_source, source)) as pool:
        futures = [pool.submit(_write_kept, task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            for task, future in zip(tasks, futures, strict=True):
                if future.cancelled():
                    continue
                if future.exception() is None:
                    published += _paths(future.result(), config)
                elif isinstance(future.exception(), BrokenProcessPool):
                    # A process that was killed may have published its shard; the name was free before.
                    published.append(config.folder / task.plan.name)


def _paths(written: _Written, config: PackConfig) -> list[Path]:
    return [] if written.record is None else [config.folder / written.record.name]


# The source of this worker process: sent once when it starts, not with every shard.
_kept: list[Source] = []


def _keep_source(source: Source) -> None:
    _kept[:] = [source]


def _write_kept(task: _Task) -> _Written:
    return _write_shard(_kept[0], task)


def _write_shard(source: Source, task: _Task) -> _Written:
    """Write one shard and its index; none without a usable sample, or with a bad one that is to stop the packing."""
    path = task.config.folder / task.plan.name
    unusable: list[str] = []
    try:
        with ShardWriter(path) as writer:
            for number in task.plan.samples:
                try:
                    sample = recode_sample(source.sample(number), task.config.recode, transform=task.config.transform)
                except SourceError as error:
                    unusable.append(str(error))
                    continue
                writer.write_sample(sample.key, sample.members, origin=sample.origin)
            if len(unusable) == len(task.plan.samples) or (unusable and task.config.on_error == "stop"):
                raise _NothingToWrite
    except _NothingToWrite:
        return _Written(None, unusable)
    index = writer.index
    try:
        write_index(index, Path(index_path_of(str(path))))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return _Written(ShardRecord(path.name, index.num_samples, index.num_bytes, index.checksum), unusable)


class _NothingToWrite(Exception):  # noqa: N818  # no error: it leaves the writer without publishing the file
    """The shard is not to be published."""


def _clear_output(config: PackConfig) -> None:
    """Make room: unfinished files of killed runs always, finished ones only where told."""
    remove_leftovers(config.folder, name_prefix=config.prefix)
    existing = existing_output(config)
    if not existing:
        return
    if config.on_exists == "fail":
        names = ", ".join(path.name for path in existing[:20]) + (", .." if len(existing) > 20 else "")
        raise OutputExistsError(
            f"{config.folder}: {len(existing)} files of '{config.prefix}' are there already ({names}). "
            "Choose another folder or prefix, or overwrite them (--on-exists overwrite)"
        )
    # The manifest goes first: without it nobody takes what is left for a whole dataset.
    for path in reversed(existing):
        os.unlink(path)


def _describe(unusable: Sequence[str]) -> str:
    """List what could not be used, the first ten by name."""
    more = f"; and {len(unusable) - 10} more" if len(unusable) > 10 else ""
    return (
        f"{len(unusable)} sources cannot be packed: {'; '.join(unusable[:10])}{more}. "
        "Mend or remove them, or pack without them (--on-error skip)"
    )
