"""Write a damaged shard anew: its whole samples, byte for byte, in one that validates clean; the rest in quarantine.

Owns where the new shard goes and what else must change with it. What is found is in ``salvage``, what becomes of it in
``mending``. What is only wrong between samples (one picture under two labels, classes in runs) stays: nobody can say
which one is right. Two passes over the file; memory is a few hundred bytes a member and one sample.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import BinaryIO, Literal

from shardkit.atomic import atomic_file, exclusive
from shardkit.errors import OutputExistsError, PackError
from shardkit.index.shard_index import build_index, file_checksum, index_path_of, write_index
from shardkit.manifest import Manifest, ShardRecord, read_manifest, readable_manifests_in, write_manifest
from shardkit.pictures import MAX_PIXELS
from shardkit.processes import map_in_order
from shardkit.repair.judgement import Judge
from shardkit.repair.mending import Change, Doubles, Mending, plan_mending
from shardkit.repair.quarantine import quarantine_path, write_member, write_quarantine
from shardkit.repair.salvage import salvage
from shardkit.tar.gunzip import GZIP_MAGIC
from shardkit.tar.header import BLOCK_BYTES
from shardkit.tar.scratch import scratch_file, unpack

__all__ = ["RepairConfig", "RepairReport", "carry_manifests", "repair_shards"]

_GZIP_SUFFIXES = {".tar.gz": ".tar", ".tgz": ".tar"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairConfig:
    """How to repair.

    ``folder``: where new shards go, under the names of the old; None: in place of the old. ``doubles``: what becomes of
    a whole sample whose key is taken. ``num_classes``: labels must be below it (None: as a manifest beside the shard
    says). ``decode``: unpack every picture. ``copy_good``: write shards too that need no repair.
    """

    folder: Path | None
    doubles: Doubles = "drop"
    num_classes: int | None = None
    max_pixels: int = MAX_PIXELS
    decode: bool = True
    on_exists: Literal["fail", "overwrite"] = "fail"
    copy_good: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """What was (in a dry run: would be) done to one shard.

    ``output``, ``quarantine``: paths of what was written, None where nothing was. ``num_samples``: whole ones in the
    repaired shard. ``changes``: in the order of the file; none where there was nothing to repair. ``error``: why the
    file could not be read or the new one not written; all is as it was then.
    """

    shard: str
    output: str | None
    quarantine: str | None
    num_samples: int
    changes: tuple[Change, ...]
    error: str | None = None

    @property
    def saved(self) -> bool:
        """Whether there is a whole sample; without one nothing is written."""
        return self.num_samples > 0


def repair_shards(paths: Sequence[str], config: RepairConfig, *, jobs: int = 1) -> Iterator[RepairReport]:
    """Repair shards (local paths, or ``-``) and yield a report of each, in the order given.

    Raises: PackError: two shards would become one, a gzip's name in place, or (OutputExistsError) output is there; all
        before the first is touched. WorkerDiedError.
    """
    targets = _targets(paths, config)
    tasks = [(path, target, config) for path, target in zip(paths, targets, strict=True)]
    # Another process has no standard input of ours. Manifests are this one's: two shards may be in the same.
    yield from map(_with_manifest, map_in_order(_repair_one, tasks, jobs=1 if "-" in paths else jobs))


def _targets(paths: Sequence[str], config: RepairConfig) -> list[Path]:
    """Return where each repaired shard goes. Raises: PackError: as :func:`repair_shards`."""
    targets = [_target(path, config) for path in paths]
    for path, target in zip(paths, targets, strict=True):
        if config.folder is not None:
            _require_room(path, target, config=config)
    for target in {target for target in targets if targets.count(target) > 1}:
        sharing = [path for path, other in zip(paths, targets, strict=True) if other == target]
        written = [path for path in sharing if _is_written(path, target, config=config)]
        if len(written) > 1:
            reason = f"{written[0]} and {written[1]} would both become {target}"
            raise PackError(f"{reason}. Repair one of them alone, into another folder")
    return targets


def _is_written(path: str, target: Path, *, config: RepairConfig) -> bool:
    """Tell whether there will be a new shard: reads it, as a dry run does."""
    if path == "-" or config.copy_good:
        return True
    report = _repair_one((path, target, replace(config, dry_run=True)))
    return report.saved and bool(report.changes)


def _target(path: str, config: RepairConfig) -> Path:
    name = "stdin.tar" if path == "-" else os.path.basename(path)
    plain = next((name.removesuffix(old) + new for old, new in _GZIP_SUFFIXES.items() if name.endswith(old)), name)
    if config.folder is not None:
        return config.folder / plain
    if path == "-":
        raise PackError("standard input cannot be repaired in place. Name a folder for the new shard")
    if plain != name:
        raise PackError(
            f"{path}: a repaired shard is a plain tar, which this name denies. Name a folder for it (--out)"
        )
    return Path(path)


def _require_room(path: str, target: Path, *, config: RepairConfig) -> None:
    """Raise OutputExistsError if the target is the shard itself, or there and not to be overwritten."""
    if path != "-" and target.exists() and os.path.samefile(path, target):
        raise OutputExistsError(f"{path}: the new shard would take its place. Choose another folder, or say --in-place")
    taken = [str(name) for name in (target, quarantine_path(target)) if name.exists()]
    if taken and config.on_exists == "fail":
        reason = f"{', '.join(taken)}: there already and not overwritten unless told"
        raise OutputExistsError(f"{reason}. Choose another folder, or say --on-exists overwrite")


def _repair_one(task: tuple[str, Path, RepairConfig]) -> RepairReport:
    """Repair one shard; what is wrong with this one keeps no other from being repaired."""
    path, target, config = task
    try:
        return _repair(path, target, config=config)
    except OSError as error:
        reason = f"{error.filename or path}: {error.strerror}" if error.strerror else str(error)
        return RepairReport(shard=path, output=None, quarantine=None, num_samples=0, changes=(), error=reason)


def _repair(path: str, target: Path, *, config: RepairConfig) -> RepairReport:
    folder = target.parent
    if not config.dry_run:
        folder.mkdir(parents=True, exist_ok=True)
    num_classes = config.num_classes or next((m.num_classes for _, m in _manifests_of(path)), None)
    with ExitStack() as stack:
        plain, changes = _plain(path, folder=None if config.dry_run else folder, name=target.name, stack=stack)
        file = stack.enter_context(open(plain, "rb"))
        judge = Judge(file, shard=path, num_classes=num_classes, max_pixels=config.max_pixels, decode=config.decode)
        plan = plan_mending(salvage(plain, shard=path), judge=judge, doubles=config.doubles)
        # The entry of a folder alone is no damage.
        needed = bool(changes) or any(change.action != "left out" for change in plan.changes)
        plan.changes[:0] = changes
        report = RepairReport(
            shard=path,
            output=None,
            quarantine=None,
            num_samples=len(plan.samples),
            changes=tuple(plan.changes) if needed else (),
        )
        if config.dry_run or not report.saved or not (needed or config.copy_good):
            return report
        return _write(report, plan, file=file, target=target, config=config)


def _write(report: RepairReport, plan: Mending, *, file: BinaryIO, target: Path, config: RepairConfig) -> RepairReport:
    """Write the quarantine first: whatever happens then, every byte is in a file with a name."""
    quarantine: Path | None = None
    if plan.dropped:
        quarantine = quarantine_path(target)
        if config.folder is None:
            # In place, the quarantine of an earlier repair holds what is nowhere else.
            name = quarantine.name.removesuffix(".tar")
            others = (quarantine.with_name(f"{name}-{number}.tar") for number in count(2))
            quarantine = quarantine if not quarantine.exists() else next(path for path in others if not path.exists())
        write_quarantine(
            quarantine,
            file,
            shard=report.shard,
            dropped=plan.dropped,
            changes=plan.changes,
            replace=config.folder is not None and config.on_exists == "overwrite",
        )
    replaced = config.folder is None or config.on_exists == "overwrite"
    try:
        with atomic_file(target, replace=replaced) as shard:
            for sample in plan.samples:
                for piece in sample.pieces:
                    write_member(shard, piece.name, file=file, offset=piece.offset, size=piece.size, shard=report.shard)
            shard.write(bytes(2 * BLOCK_BYTES))
    except BaseException:
        # The shard is as it was: all is there still, and the next try must not find its place taken.
        if quarantine is not None:
            quarantine.unlink(missing_ok=True)
        raise
    index = Path(index_path_of(str(target)))
    if index.exists():
        write_index(build_index(target), index)
    return replace(report, output=str(target), quarantine=None if quarantine is None else str(quarantine))


def _plain(path: str, *, folder: Path | None, name: str, stack: ExitStack) -> tuple[Path, list[Change]]:
    """Return the shard as a plain file, unpacked for the time of the repair where it is not, and what that changes.

    Args: folder: where to unpack to; None: where the system has temporary files.
    """
    if path != "-":
        with open(path, "rb") as file:
            if file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
                return Path(path), []
    if folder is None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    plain, target = stack.enter_context(scratch_file(folder, name=f"{name}-unpacked"))
    with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as stream:
        head = stream.read(len(GZIP_MAGIC))
        reason = unpack(stream, target, ahead=head)
    target.flush()
    changes = [Change("unpacked", "WDS012", "gzip: written as a plain tar")] if head == GZIP_MAGIC else []
    if reason is not None:
        changes.append(Change("unpacked", "WDS002", f"{reason}: only what could be unpacked is there"))
    return plain, changes


def carry_manifests(reports: Sequence[RepairReport], config: RepairConfig) -> tuple[Path, ...]:
    """Write the manifests of sets that are whole in the new folder now, and return their paths.

    A set is whole where each shard that the manifest beside the old ones lists was written anew, or copied. One that is
    there stays, unless told to overwrite.
    Args: reports: of all shards that were repaired together.
    Raises: OSError.
    """
    if config.folder is None or config.dry_run:
        return ()
    written = {report.shard: report for report in reports if report.output is not None}
    carried = []
    for folder in sorted({Path(shard).parent for shard in written if shard != "-"}):
        for place, manifest in readable_manifests_in(folder)[0]:
            new = [written.get(str(folder / shard.name)) for shard in manifest.shards]
            mended = [report for report in new if report is not None]
            target = config.folder / place.name
            if len(mended) < len(new) or (target.exists() and config.on_exists == "fail"):
                continue
            lost = [line for report in mended for line in _lost(report)]
            shards = tuple(_record_of(report) for report in mended)
            whole = replace(manifest, shards=shards, skipped=(*manifest.skipped, *lost))
            write_manifest(whole, target, replace=True)
            carried.append(target)
    return tuple(carried)


def _record_of(report: RepairReport) -> ShardRecord:
    path = Path(report.output or "")
    return ShardRecord(path.name, report.num_samples, path.stat().st_size, file_checksum(path))


def _lost(report: RepairReport) -> list[str]:
    """Return in words what a manifest is to say of the members that the repaired shard is without."""
    return [
        f"{Path(report.output or '').name}: {change.member or 'bytes'} at byte {change.offset}: {change.message} "
        f"({change.rule})"
        for change in report.changes
        if change.action == "quarantined"
    ]


def _with_manifest(report: RepairReport) -> RepairReport:
    """Bring manifests that list the repaired shard up to date; they name what it has lost."""
    if report.output is None:
        return report
    record, lost = _record_of(report), _lost(report)
    for place, _ in _manifests_of(report.output):
        # Another process may repair another shard of the same manifest: what it wrote meanwhile is read again.
        with exclusive(place.parent, name=place.name, wait=True):
            manifest = read_manifest(place)
            shards = tuple(record if shard.name == record.name else shard for shard in manifest.shards)
            write_manifest(replace(manifest, shards=shards, skipped=(*manifest.skipped, *lost)), place, replace=True)
    return report


def _manifests_of(path: str) -> list[tuple[Path, Manifest]]:
    """Return the manifests beside a shard that list it; one that cannot be read says nothing here."""
    manifests, _ = ([], ()) if path == "-" else readable_manifests_in(Path(path).parent)
    name = os.path.basename(path)
    return [(place, manifest) for place, manifest in manifests if any(shard.name == name for shard in manifest.shards)]
