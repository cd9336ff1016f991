"""Where a run begins: afresh, or at a checkpoint that fits it. The first rank looks; what it found is sent to the rest.

So only the first rank's host needs to see the run folder, and no two ranks can begin at different checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from resnettrain.checkpoint import find_checkpoint, latest, list_checkpoints, load_checkpoint
from resnettrain.config import TrainConfig
from resnettrain.distributed import Ranks
from resnettrain.errors import CheckpointError, ConfigError
from resnettrain.schedule import reached_cap
from resnettrain.state import Identity, identity_of
from shardkit import counted

__all__ = [
    "AUTO",
    "AutoFound",
    "Resume",
    "Start",
    "find_start",
    "fitted_batch",
    "require_left",
    "require_resumable",
    "require_same_run",
]

log = logging.getLogger(__name__)

AUTO: Literal["auto"] = "auto"


@dataclass(frozen=True, slots=True)
class AutoFound:
    """What AUTO has found before the run is opened, by `resume_point`; else it is as AUTO."""

    path: Path


Resume = Path | AutoFound | Literal["auto"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A checkpoint to go on from. `home` is the run folder that it lies in, None where it has been moved elsewhere."""

    path: Path
    content: Mapping[str, Any]
    identity: Identity

    @property
    def home(self) -> Path | None:
        """Return the run folder of the checkpoint."""
        return self.path.parent.parent if self.path.parent.name == "checkpoints" else None

    @property
    def world_size(self) -> int:
        """Return the number of ranks it was made by."""
        return int(self.content["ranks"]["world_size"])


def find_start(resume: Resume, *, run_dir: Path | None, ranks: Ranks) -> Start | None:
    """Return the checkpoint to go on from, the same on all ranks; None to begin afresh.

    Args: resume: a file, a run folder, what AUTO has found, or AUTO: the newest in `run_dir`, if there is one.
    Raises: CheckpointError: nothing there, damaged, or unsafe. ConfigError: AUTO without a run folder.
    """
    found = _find(resume, run_dir=run_dir) if ranks.is_first else None
    path = ranks.from_first(found[0] if found is not None else None)
    if path is None:
        return None
    if not ranks.is_alone:
        file = ranks.bytes_from_first(path.read_bytes() if ranks.is_first else b"")
        found = found or (path, load_checkpoint(file, path=path))
    if found is None:
        raise CheckpointError(f"{path}: was not received from the first rank.")
    return Start(path=path, content=found[1], identity=identity_of(found[1], path=path))


def _find(resume: Resume, *, run_dir: Path | None) -> tuple[Path, dict[str, Any]] | None:
    if resume is None:
        return None
    if isinstance(resume, AutoFound):
        return find_checkpoint(resume.path)
    if resume != AUTO:
        return find_checkpoint(resume)
    if run_dir is None:
        raise ConfigError("run_dir: to go on by itself a run needs a folder that is known. Give --run-dir.")
    return latest(run_dir) if list_checkpoints(run_dir) else None


def fitted_batch(config: TrainConfig, start: Start | None, *, world_size: int) -> TrainConfig:
    """Return the settings with the batch of each rank and the peak learning rate worked out.

    A resume keeps the one of all ranks; on another number of ranks each has another share of it.
    Raises: ConfigError: the ranks do not divide it, or a resume asks for another one.
    """
    data = config.data
    whole = data.global_batch_size or data.batch_size * world_size
    if start is not None:
        saved = start.identity.global_batch
        moved = start.world_size != world_size
        if not moved and data.batch_size * world_size != saved:
            raise ConfigError(
                f"data.batch_size: {data.batch_size}, but {start.path} was made with {saved // world_size}. "
                f"A resume keeps it: give --batch-size {saved // world_size}."
            )
        if data.global_batch_size not in (None, saved):
            raise ConfigError(
                f"data.global_batch_size: {data.global_batch_size}, but {start.path} was made with {saved}. A resume "
                f"keeps it: give --global-batch-size {saved}."
            )
        whole = saved
    if whole % world_size:
        raise ConfigError(
            f"data.global_batch_size: {world_size} ranks do not divide a batch of {whole}. Use another number of ranks."
        )
    if start is not None and start.world_size != world_size:
        log.info("a batch is still %d: %s with %d each", whole, counted(world_size, "rank"), whole // world_size)
    peak_lr = replace(config, data=replace(data, global_batch_size=whole)).peak_lr
    return replace(
        config,
        data=replace(data, batch_size=whole // world_size, global_batch_size=None),
        optim=replace(config.optim, lr=peak_lr),
    )


def require_resumable(config: TrainConfig, start: Start) -> None:
    """Refuse a run that has no position to go on from. Raises: ConfigError."""
    if config.data.pipeline == "synthetic" or config.data.one_batch:
        raise ConfigError(f"{start.path}: made-up pictures, or one batch over and over, are not resumed: start anew.")
    if config.data.pipeline == "source":
        raise ConfigError(
            f"{start.path}: a run of the recipe '{config.recipe}' cannot be resumed: it draws with replacement and has "
            "no position. The checkpoint can be evaluated."
        )


def require_left(config: TrainConfig, start: Start, *, resume: Resume) -> None:
    """Refuse a run that has nothing left to do; of AUTO, which is given again and again, it is said alone.

    Raises: ConfigError: naming the setting that ends it, and how to go on.
    """
    schedule, done = config.schedule, start.content["progress"]
    cap = reached_cap(schedule, samples=done["samples"], updates=done["updates"])
    if cap is not None:
        flag = "--max-updates" if cap == "max_updates" else "--max-steps"
        reason = (
            f"is at its cap already: schedule.{cap} ({flag}) is {getattr(schedule, cap)}. To go on give {flag} above "
            f"{done[cap.removeprefix('max_')]}, or --set schedule.{cap}=none for no cap."
        )
    elif done["epoch"] >= schedule.epochs:
        reason = f"has all of its epochs already: schedule.epochs (--epochs) is {schedule.epochs}. To go on give more."
    else:
        return
    if resume != AUTO and not isinstance(resume, AutoFound):
        raise ConfigError(f"{start.path}: the run {reason}")
    log.warning("%s: the run %s", start.path, reason)


def require_same_run(identity: Identity, start: Start) -> None:
    """Refuse a checkpoint of another model or other shards. Raises: CheckpointError."""
    for name in ("model", "num_classes", "digest"):
        ours, theirs = getattr(identity, name), getattr(start.identity, name)
        if ours != theirs:
            what = "training shards (by their digest)" if name == "digest" else name
            raise CheckpointError(
                f"{start.path}: made with another {what}: {theirs} there, {ours} here. Nothing was loaded."
            )
