"""The records of a run as events that TensorBoard reads, beside metrics.jsonl, which stays the truth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["EventWriter"]

# What places a record and is no figure of it.
_PLACES = {"samples", "batch", "updates"}


class EventWriter:
    """Writes to `tensorboard/` in the run folder; the step of an event is the number of samples.

    Args: start_samples: of a run that goes on: events from there on, of work that is done again, are hidden.
    """

    def __init__(self, run_dir: Path, *, start_samples: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run_dir / "tensorboard"), purge_step=start_samples)

    def write(self, kind: str, figures: Mapping[str, object]) -> None:
        """Write the numbers of a record as `kind/name`."""
        samples = figures.get("samples")
        if kind == "end" or not isinstance(samples, int):
            return
        for name, value in figures.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and name not in _PLACES:
                self._writer.add_scalar(f"{kind}/{name}", value, samples)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
