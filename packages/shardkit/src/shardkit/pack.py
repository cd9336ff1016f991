"""Pack the samples of a source into shards, with an index beside each and one manifest; in parallel, with equal bytes.

Owns the plan (which sample goes into which shard), its execution over processes, and what happens when a source file is
bad or the output is there. A shard is one task: its bytes depend on the source and the plan, never on who writes it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from collections.abc import Callable, Generator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shardkit.atomic import exclusive, remove_leftovers
from shardkit.errors import OutputExistsError, PackError, SourceError, UnusableSourcesError
from shardkit.index import index_path_of, write_index
from shardkit.manifest import MANIFEST_SUFFIX, Manifest, ShardRecord, write_manifest
from shardkit.processes import process_pool
from shardkit.sources import Source
from shardkit.writer import ShardWriter

__all__ = ["PackConfig", "ShardPlan", "existing_output", "pack", "plan_shards"]


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One shard to write: its file name, and its samples, numbered as the source does."""

    name: str
    samples: range


@dataclass(frozen=True, slots=True, kw_only=True)
class PackConfig:
    """Where and how to pack.

    ``jobs``: processes. ``on_exists``: ``overwrite`` replaces the shards, indexes and manifest of this prefix, and
    nothing else. ``on_error``: ``skip`` leaves unusable sources out, counted and listed in the manifest.
    """

    folder: Path
    prefix: str
    jobs: int = 1
    on_exists: Literal["fail", "overwrite"] = "fail"
    on_error: Literal["stop", "skip"] = "stop"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", self.prefix):
            raise PackError(f"prefix {self.prefix!r}: use letters, digits, '.', '_' and '-' only")
        if self.jobs < 1:
            raise PackError(f"{self.jobs} jobs: at least 1 is needed")

    @property
    def manifest_path(self) -> Path:
        """Where the manifest goes."""
        return self.folder / (self.prefix + MANIFEST_SUFFIX)


def plan_shards(
    num_samples: int, *, prefix: str, num_shards: int | None = None, samples_per_shard: int | None = None
) -> list[ShardPlan]:
    """Cut the samples into shards: so many even ones (sizes differ by at most one), or full ones and a rest.

    Raises: PackError: not exactly one of the two given, or more shards than samples.
    """
    if (num_shards is None) == (samples_per_shard is None):
        raise PackError("give either a number of shards or a number of samples a shard")
    if num_samples < 1:
        raise PackError("no pictures to pack")
    if samples_per_shard is not None:
        if samples_per_shard < 1:
            raise PackError(f"{samples_per_shard} samples a shard: at least 1 is needed")
        cuts = [*range(0, num_samples, samples_per_shard), num_samples]
    else:
        if not num_shards or num_shards < 1:
            raise PackError(f"{num_shards} shards: at least 1 is needed")
        if num_samples < num_shards:
            raise PackError(f"{num_samples} pictures cannot fill {num_shards} shards. Ask for fewer shards")
        cuts = [shard * num_samples // num_shards for shard in range(num_shards + 1)]
    return [
        ShardPlan(f"{prefix}-{number:06d}.tar", range(first, end))
        for number, (first, end) in enumerate(itertools.pairwise(cuts))
    ]


def existing_output(config: PackConfig) -> list[Path]:
    """Return the shards, indexes and manifest of this prefix that are there already, by name."""
    if not config.folder.is_dir():
        return []
    ours = re.compile(re.escape(config.prefix) + r"-\d{6,}\.tar(\.index\.json)?")
    found = [path for path in config.folder.iterdir() if ours.fullmatch(path.name)]
    return sorted(found) + ([config.manifest_path] if config.manifest_path.exists() else [])


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
            options=source.options,
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
                    sample = source.sample(number)
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
