"""What a run tells while it goes on: typed events, handed to one callable. How they look is the command's business."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = [
    "CheckpointSaved",
    "Event",
    "Progress",
    "RunEnded",
    "RunStarted",
    "TrainReport",
    "ValProgress",
    "ValReport",
    "silent",
    "source_line",
    "without_waiting",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run begins or goes on. `total_samples` and `epoch_batches` are None where the length is unknown.

    `batch_size` is that of each of the `world_size` ranks. Of the `dataset_samples` an epoch leaves out `left_out`, the
    last of its order, which fill no batch; None where that is not known, or no epochs of a dataset are made.
    """

    run_dir: Path
    recipe: str
    model: str
    num_classes: int
    num_parameters: int
    device: str
    precision: str
    batch_size: int
    world_size: int
    epochs: int
    epoch_batches: int | None
    dataset_samples: int | None
    left_out: int | None
    total_samples: int | None
    start_samples: int
    resumed_from: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """The mean of the last steps. `batch` counts from 1 in its epoch, `epoch` from 0, `updates` over the whole run.

    `images_per_s` is total (waiting included) and `wait_share` the part of the time spent waiting for data, both since
    the report before. `eta_s` is None where the length of the run is unknown; `memory_bytes` the most that the CUDA
    device had to hold so far, None without one. `mfu`: the part of what the devices can compute that the model's own
    operations came to, None where that is not known.
    """

    epoch: int
    batch: int
    samples: int
    updates: int
    loss: float
    top1: float
    lr: float
    images_per_s: float
    wait_share: float
    eta_s: float | None
    memory_bytes: int | None = None
    mfu: float | None = None

    @property
    def compute_images_per_s(self) -> float:
        """Return how many there would have been without waiting for data."""
        return without_waiting(self.images_per_s, wait_share=self.wait_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValProgress:
    """An evaluation goes on: `count` of `total` samples are done."""

    count: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ValReport:
    """A validation is done; `is_best` says whether its top-1 is the highest of the run so far."""

    epoch: int
    samples: int
    count: int
    top1: float
    top5: float
    loss: float
    seconds: float
    is_best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    """A checkpoint stands complete at `path`."""

    path: Path
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The run is over; `outcome` as in `TrainResult`."""

    outcome: str
    samples: int
    updates: int
    seconds: float


Event = RunStarted | TrainReport | ValProgress | ValReport | CheckpointSaved | RunEnded


class Progress(Protocol):
    """Takes each event as it happens, on the thread of the loop; it should be quick."""

    def __call__(self, event: Event, /) -> None: ...


def without_waiting(images_per_s: float, *, wait_share: float) -> float:
    """Return images a second of the time that was not spent waiting for data; 0 where all of it was."""
    return images_per_s / (1 - wait_share) if wait_share < 1 else 0.0


def silent(event: Event, /) -> None:
    """Take an event and do nothing."""


def source_line(report: TrainReport) -> str:
    """Return a report in the source's own words."""
    return f"[{report.epoch + 1}, {report.batch}] loss: {report.loss:.5f} correct: {report.top1:.5f}"
