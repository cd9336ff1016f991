"""Pack the samples of a source into shards, with an index beside each and one manifest; in parallel, with equal bytes.

Owns the execution of a plan, alone or together with others, and what happens when a source file is bad, the output is
there, or an earlier packing was killed. A shard is one task: its bytes depend on the source and the plan, never on who
writes it or when. The written plan comes first and the manifest last; between the two, the packing can be resumed.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from shardkit.atomic import exclusive, remove_leftovers, shared
from shardkit.errors import (
    ManifestError,
    OutputExistsError,
    PackError,
    PlanFileError,
    SourceError,
    UnfinishedPackingError,
    UnusableSourcesError,
    counted,
)
from shardkit.manifest import Manifest, ShardRecord, read_manifest, write_manifest
from shardkit.packing.config import PackConfig, existing_output, require_outside
from shardkit.packing.layout import ShardPlan
from shardkit.packing.plan import Slice, WrittenPlan, plan_of, read_plan, write_plan
from shardkit.packing.task import Finished, Task, finished_shard, remove_shard, remove_skip_record, run_tasks
from shardkit.sources import Source

__all__ = ["pack", "prepare", "run_plan"]

log = logging.getLogger(__name__)
# So many pictures take a second or two to read.
_QUICKLY_READ = 10_000


def pack(
    source: Source, plan: Sequence[ShardPlan], *, config: PackConfig, on_shard: Callable[[ShardRecord], None]
) -> Manifest:
    """Write the shards of the plan, their indexes, and last of all the manifest, which says that all is there.

    Where it ends early, finished shards stay with the plan, to go on from with ``on_exists="resume"``; with bad sources
    that are not to be skipped, nothing stays.
    Args: on_shard: called with each finished shard, in order, those of an earlier run too.
    Raises: OutputExistsError: output is there and is not to be replaced, or another process is packing it now;
        UnfinishedPackingError where it could be resumed. UnusableSourcesError: naming them. PackError: an empty plan,
        or output that cannot be resumed. WorkerDiedError. OSError.
    """
    _require_shards(plan)
    require_outside(source, config)
    _require_good(source, plan, config=config)
    _make_folder(config)
    with exclusive(config.folder, name=config.prefix):
        written = plan_of(source, plan, config=config)
        began_before = _make_room(config, written)
        if (manifest := _finished_before(config, written)) is not None:
            return manifest
        write_plan(written, config.plan_path)
        tasks = [Task(shard=shard, config=config, keep=began_before) for shard in plan]
        try:
            finished = _run(source, tasks, on_shard=on_shard)
        except BaseException:
            if existing_output(config) == [config.plan_path] and not began_before:
                config.plan_path.unlink()
            raise
        try:
            _require_usable(finished, config=config)
        except UnusableSourcesError:
            # Where a shard of a finished dataset had gone missing, its manifest is there still.
            config.manifest_path.unlink(missing_ok=True)
            for task in tasks:
                remove_shard(task.path)
            config.plan_path.unlink()
            raise
        return _finish(source, tasks, config=config, finished=finished)


def prepare(source: Source, plan: Sequence[ShardPlan], *, config: PackConfig) -> Path:
    """Write the plan down, for :func:`run_plan`, and return where it lies.

    Raises: OutputExistsError: output is there, as for :func:`pack`. PackError: an empty plan. OSError.
    """
    _require_shards(plan)
    require_outside(source, config)
    _require_good(source, plan, config=config)
    _make_folder(config)
    with exclusive(config.folder, name=config.prefix):
        written = plan_of(source, plan, config=config)
        _make_room(config, written)
        if _finished_before(config, written) is None:
            write_plan(written, config.plan_path)
    return config.plan_path


def run_plan(
    source: Source,
    plan: WrittenPlan,
    *,
    config: PackConfig,
    part: Slice = Slice(),  # noqa: B008  # frozen
    on_shard: Callable[[ShardRecord], None],
) -> Manifest | None:
    """Make the shards of one part of a written plan, together with whoever makes the others in the same folder.

    Whoever finds all shards there writes the manifest. Finished shards are kept, also where sources are bad.
    Args: config: of :meth:`WrittenPlan.config`.
    Returns: the manifest, or None while shards of other parts are missing.
    Raises: PlanFileError: the source or the encoder is not what the plan was made for. OutputExistsError: what lies
        there is of another plan, or a process that works alone is busy there. Others as :func:`pack`.
    """
    if differences := plan.differences(plan_of(source, plan.shards, config=config)):
        raise PlanFileError(f"changed since the plan was written: {'; '.join(differences)}. Write the plan again")
    require_outside(source, config)
    _require_good(source, part.shards(plan), config=config)
    _make_folder(config)
    with shared(config.folder, name=config.prefix):
        with _one_at_a_time(config):
            if (manifest := _finished_before(config, plan)) is not None:
                return manifest
            if not config.plan_path.exists():
                _make_room(config, plan)
                write_plan(plan, config.plan_path)
            _require_same(config, plan)
        tasks = [Task(shard=shard, config=config, keep=True) for shard in part.shards(plan)]
        unusable = [line for shard in _run(source, tasks, on_shard=on_shard) for line in shard.unusable]
        if unusable and config.on_error == "stop":
            raise UnusableSourcesError(_describe(unusable))
        with _one_at_a_time(config):
            if (manifest := _finished_before(config, plan)) is not None:
                # Somebody else had this part too, and was first.
                for task in tasks:
                    remove_skip_record(task.path)
                return manifest
            everything = [Task(shard=shard, config=config, keep=True) for shard in plan.shards]
            finished = [finished_shard(task, verify=False) for task in everything]
            there = [shard for shard in finished if shard is not None]
            if len(there) < len(finished):
                return None
            _require_usable(there, config=config)
            remove_leftovers(config.folder, name_prefix=config.prefix)
            return _finish(source, everything, config=config, finished=there)


def _require_shards(plan: Sequence[ShardPlan]) -> None:
    if not plan:
        raise PackError("no shards to pack")


def _require_good(source: Source, plan: Sequence[ShardPlan], *, config: PackConfig) -> None:
    """Raise UnusableSourcesError for sources that are bad already when they are listed, where such are to stop it.

    They are told before anything is packed, and with them what reading the others finds, so that all can be mended at
    once. Where the listing finds nothing, packing reads them anyway.
    """
    if config.on_error == "skip" or not any(_is_bad(source, number) for shard in plan for number in shard.samples):
        return
    if (num_samples := sum(len(shard.samples) for shard in plan)) > _QUICKLY_READ:
        log.info("some sources cannot be packed; reading all %d, to name every bad one", num_samples)
    tasks = [Task(shard=shard, config=config, check=True) for shard in plan]
    unusable = [line for shard in _run(source, tasks, on_shard=lambda _: None) for line in shard.unusable]
    if unusable:
        raise UnusableSourcesError(_describe(unusable))


def _is_bad(source: Source, number: int) -> bool:
    """Tell whether a sample is known to be unusable without reading much: a bad row, a file that is gone or empty."""
    sizes = source.content_sizes(number)
    if sizes is None or (sizes and 0 not in sizes):
        return False
    try:
        source.sample(number)
    except SourceError:
        return True
    return False


def _make_folder(config: PackConfig) -> None:
    if config.folder.exists() and not config.folder.is_dir():
        raise PackError(f"{config.folder}: not a folder. Name a folder for the shards")
    config.folder.mkdir(parents=True, exist_ok=True)


def _one_at_a_time(config: PackConfig) -> contextlib.AbstractContextManager[None]:
    """Wait until no other part looks at the whole; '+' is in no prefix."""
    return exclusive(config.folder, name=f"{config.prefix}+whole", wait=True)


def _run(source: Source, tasks: Sequence[Task], *, on_shard: Callable[[ShardRecord], None]) -> list[Finished]:
    finished = []
    with contextlib.closing(run_tasks(source, tasks, jobs=tasks[0].config.jobs if tasks else 1)) as results:
        for result in results:
            finished.append(result)
            if result.record is not None:
                on_shard(result.record)
    return finished


def _require_usable(finished: Iterable[Finished], *, config: PackConfig) -> None:
    """Raise UnusableSourcesError where bad sources are to stop the packing, or nothing is left to pack."""
    unusable = [line for shard in finished for line in shard.unusable]
    if unusable and config.on_error == "stop":
        raise UnusableSourcesError(_describe(unusable))
    if not any(shard.record is not None for shard in finished):
        raise UnusableSourcesError(f"no usable picture in {counted(len(unusable), 'sample')}. {_describe(unusable)}")


def _finish(source: Source, tasks: Sequence[Task], *, config: PackConfig, finished: Sequence[Finished]) -> Manifest:
    """Publish the manifest; then what only a packing that goes on needs is removed, the plan last."""
    manifest = Manifest(
        name=config.prefix,
        split=source.split,
        seed=source.seed,
        classes=source.classes,
        class_order=source.class_order,
        shuffled=source.shuffled,
        shards=tuple(shard.record for shard in finished if shard.record is not None),
        options={**source.options, "fingerprint": source.fingerprint, **config.options},
        skipped=tuple(line for shard in finished for line in shard.unusable),
        kept=_added(shard.kept for shard in finished),
        num_classes=source.num_classes,
    )
    write_manifest(manifest, config.manifest_path, replace=tasks[0].keep)
    for task in tasks:
        remove_skip_record(task.path)
    config.plan_path.unlink(missing_ok=True)
    return manifest


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums by reason, by name of the reason: the same whoever counted first."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def _make_room(config: PackConfig, plan: WrittenPlan) -> bool:
    """Make room: unfinished files of killed runs always, finished ones only where told.

    Returns: whether shards of this very plan may be there.
    """
    remove_leftovers(config.folder, name_prefix=config.prefix)
    existing = existing_output(config)
    if not existing:
        return False
    if config.on_exists == "overwrite":
        # The manifest goes first: without it nobody takes what is left for a whole dataset.
        for path in reversed(existing):
            os.unlink(path)
        return False
    if config.on_exists == "resume":
        _require_same(config, plan)
        return True
    if config.plan_path in existing and not _differences(config, plan):
        there = sum(path.name.endswith(".tar") for path in existing)
        raise UnfinishedPackingError(
            f"{config.folder}: an unfinished packing of '{config.prefix}' lies there, {there} of {len(plan.shards)} "
            "shards. Go on with it (--on-exists resume), or begin again (--on-exists overwrite)"
        )
    standing = counted(len(existing), f"file of '{config.prefix}' is/files of '{config.prefix}' are")
    names = ", ".join(path.name for path in existing[:20]) + (", .." if len(existing) > 20 else "")
    raise OutputExistsError(
        f"{config.folder}: {standing} there already ({names}). "
        "Choose another folder or prefix, or overwrite them (--on-exists overwrite)"
    )


def _require_same(config: PackConfig, plan: WrittenPlan) -> None:
    """Raise OutputExistsError unless what is there is of this very plan, finished or not."""
    if not config.plan_path.exists() and _manifest_of(config, plan) is not None:
        return
    where = f"{config.folder}: '{config.prefix}' there is not what was asked for"
    remedy = "Overwrite it (--on-exists overwrite), or choose another folder or prefix"
    if differences := _differences(config, plan):
        raise OutputExistsError(f"{where}: {'; '.join(differences)}. {remedy}")
    ours = {shard.name for shard in plan.shards}
    others = [
        path.name for path in config.folder.glob(f"{config.prefix}-*.tar") if path in set(existing_output(config))
    ]
    if strange := sorted(set(others) - ours):
        raise OutputExistsError(f"{where}: {', '.join(strange[:20])} are in no plan. {remedy}")


def _differences(config: PackConfig, plan: WrittenPlan) -> list[str]:
    """Return in words what the plan that lies there differs in from this one."""
    if not config.plan_path.exists():
        finished = "a finished dataset of another source or other options" if config.manifest_path.exists() else None
        return [finished or "shards without a plan, which nobody can go on with"]
    try:
        return [f"other than planned: {words}" for words in plan.differences(read_plan(config.plan_path))]
    except PlanFileError as error:
        return [str(error)]


def _finished_before(config: PackConfig, plan: WrittenPlan) -> Manifest | None:
    """Return the manifest where this very plan was finished, and its shards are there still, by their sizes."""
    manifest = None if config.plan_path.exists() else _manifest_of(config, plan)
    if manifest is None:
        return None
    paths = {config.folder / shard.name: shard.num_bytes for shard in manifest.shards}
    there = all(path.exists() and path.stat().st_size == num_bytes for path, num_bytes in paths.items())
    return manifest if there else None


def _manifest_of(config: PackConfig, plan: WrittenPlan) -> Manifest | None:
    """Return the manifest that is there, if it is that of this very plan."""
    try:
        manifest = read_manifest(config.manifest_path)
    except (ManifestError, FileNotFoundError):
        return None
    return manifest if plan.made(manifest) else None


def _describe(unusable: Sequence[str]) -> str:
    """List what could not be used, the first ten by name."""
    more = f"; and {len(unusable) - 10} more" if len(unusable) > 10 else ""
    return (
        f"{counted(len(unusable), 'source')} cannot be packed: {'; '.join(unusable[:10])}{more}. "
        "Mend or remove them, or pack without them (--on-error skip), which lists all in the manifest"
    )
