"""A trace of some updates by torch.profiler, as `trace.json` in the run folder; Perfetto and Chrome show it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Self

import torch

from resnettrain.errors import RunFolderError

__all__ = ["Profiler"]

log = logging.getLogger(__name__)

# The first updates have compilation, allocation and the start of the workers in them.
_SKIPPED = 3


class Profiler:
    """Records `num_updates` updates after the first few, then writes the trace; with None it does nothing.

    Args: device: that of the run; what it does is recorded beside what the host does.
    """

    def __init__(self, num_updates: int | None, *, folder: Path, device: torch.device) -> None:
        self._wanted, self._path, self._done = num_updates, folder / "trace.json", 0
        self._device = device
        self._profile: torch.profiler.profile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        """Write what there is of a run that was shorter; of one that failed, that error is the one to be heard."""
        try:
            self._finish()
        except (OSError, RuntimeError) as error:
            if failure[0] is None:
                raise
            log.warning("%s", error)

    def after_update(self) -> None:
        """Count an update; begin or end the recording where it is time."""
        if self._wanted is None:
            return
        self._done += 1
        if self._done == _SKIPPED:
            activities = [torch.profiler.ProfilerActivity.CPU]
            activities += [torch.profiler.ProfilerActivity.CUDA] if self._device.type == "cuda" else []
            self._profile = torch.profiler.profile(activities=activities)
            self._profile.start()
        elif self._done == _SKIPPED + self._wanted:
            self._finish()

    def _finish(self) -> None:
        if self._profile is None:
            return
        self._profile.stop()
        self._profile.export_chrome_trace(str(self._path))
        # torch leaves what goes wrong there to a log of its own.
        if not self._path.is_file() or not self._path.stat().st_size:
            raise RunFolderError(f"{self._path}: the trace could not be written. Is there room on the disk?")
        log.info("wrote %s: %d updates; open it in ui.perfetto.dev", self._path, self._done - _SKIPPED)
        self._profile = None
