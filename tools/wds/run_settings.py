"""The settings of a run that is there: to go on with it, or to evaluate what it has learnt."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resnettrain import TrainConfig

__all__ = ["AUTO", "settings_in", "settings_to_resume"]

# What --resume says to find the checkpoint, or that there is none, by itself.
AUTO = Path("auto")


def settings_to_resume(resume: Path | None, *, run_dir: Path | None) -> TrainConfig | None:
    """Return the settings of the run that is to go on; without one, torch stays out."""
    if resume is None:
        return None
    if resume != AUTO:
        return settings_in(resume)
    from resnettrain import ConfigError, list_checkpoints

    if run_dir is None:
        raise ConfigError("--resume auto goes on in a run folder: name it with --run-dir")
    return settings_in(run_dir) if list_checkpoints(run_dir) else None


def settings_in(checkpoint: Path) -> TrainConfig:
    """Return the settings of a run, but no leave to run commands: the checkpoint may be anybody's.

    Raises: resnettrain.ConfigError: nothing of that name. resnettrain.CheckpointError: damaged, or none.
    """
    from resnettrain import ConfigError

    if not checkpoint.exists():
        raise ConfigError(f"{checkpoint}: there is no such checkpoint or run folder")
    from resnettrain import resume_config

    settings = resume_config(checkpoint)
    return dataclasses.replace(settings, data=dataclasses.replace(settings.data, allow_commands=False))
