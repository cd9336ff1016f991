"""The settings of a run that is there, and its checkpoint: to go on with it, or to evaluate what it has learnt.

The checkpoint is looked for here alone, so that one that is damaged is told of once.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resnettrain import Resume, TrainConfig

__all__ = ["AUTO", "found_in", "found_to_resume"]

# What --resume says to find the checkpoint, or that there is none, by itself.
AUTO = Path("auto")


def found_to_resume(resume: Path | None, *, run_dir: Path | None) -> tuple[Resume, TrainConfig | None]:
    """Return what a run is to go on from, and the settings of the run that made it; without one, torch stays out."""
    if resume is None:
        return None, None
    if resume != AUTO:
        return found_in(resume)
    from resnettrain import ConfigError

    if run_dir is None:
        raise ConfigError("--resume auto goes on in a run folder: name it with --run-dir")
    from resnettrain import AutoFound, list_checkpoints

    if not list_checkpoints(run_dir):
        return "auto", None
    path, settings = found_in(run_dir)
    return AutoFound(path), settings


def found_in(checkpoint: Path) -> tuple[Path, TrainConfig]:
    """Return the checkpoint that is meant, and the settings of its run, but no leave to run commands.

    It may be anybody's.
    Raises: resnettrain.ConfigError: nothing of that name. resnettrain.CheckpointError: damaged, or none.
    """
    from resnettrain import ConfigError

    if not checkpoint.exists():
        raise ConfigError(f"{checkpoint}: there is no such checkpoint or run folder")
    from resnettrain import resume_point

    path, settings = resume_point(checkpoint)
    return path, dataclasses.replace(settings, data=dataclasses.replace(settings.data, allow_commands=False))
