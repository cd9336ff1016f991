"""What a loader of the comparison is: a function from a task to batches, and what it needs to be there.

A task names a data set and what is to come out of it. Every loader crops as torchvision's ``RandomResizedCrop`` does by
default, mirrors half of the crops, and hands out batches of 64 that are ready to use. A data set is a folder:

* ``pictures/NNNNN/*.jpg`` an image folder; the class of a picture is its number, so a label tells which picture came;
* ``shards/*.tar`` the same bytes; ``crop-ready/*.tar`` with restart markers, the same pixels;
* ``q90/`` all of this again, re-encoded as FFCV does by default: at most 500 pixels, quality 90;
* ``facts.json`` what is in it; further folders hold what loaders make of the pictures for themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["BATCH_SIZE", "MEAN", "STD", "Delivered", "Dtype", "Facts", "Peer", "Task", "no_preparation"]

BATCH_SIZE = 64
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

Dtype = Literal["uint8", "float32"]
# Images (b, 3, size, size) or (b, size, size, 3), or None where a subject makes none; labels (b,). Tensors or arrays.
Delivered = tuple[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a data set holds. ``width`` and ``height``: of a picture, on average; ``mean_rgb``: in 0..255."""

    num_samples: int
    mean_bytes: float
    width: float
    height: float
    mean_rgb: tuple[float, float, float]

    def write(self, data: Path) -> None:
        """Write the facts into the folder of the data set."""
        (data / "facts.json").write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @staticmethod
    def of(data: Path) -> Facts:
        """Read the facts of a data set."""
        return Facts(**json.loads((data / "facts.json").read_text(encoding="utf-8")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a loader is to deliver. ``endless``: epoch after epoch without a pause, else exactly one."""

    data: Path
    dtype: Dtype
    image_size: int
    num_workers: int
    endless: bool

    @property
    def num_samples(self) -> int:
        """How many samples the data set has."""
        return Facts.of(self.data).num_samples

    @property
    def epochs(self) -> int:
        """Return how many epochs to ask for: more than any measuring takes, where the task is endless."""
        return 100 if self.endless else 1

    def to_json(self) -> str:
        """Return the task as one line."""
        return json.dumps(asdict(self) | {"data": str(self.data)})

    @staticmethod
    def from_json(line: str) -> Task:
        """Read what :meth:`to_json` wrote."""
        fields = json.loads(line)
        return Task(**(fields | {"data": Path(fields["data"])}))


def no_preparation(data: Path) -> None:
    """Make nothing: the loader reads pictures or shards as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A loader of the comparison, in one way of using it.

    ``open``: begins to deliver. ``prepare``: makes of the pictures in a data set what the loader reads, in a ``folder``
    of it; called once.
    ``requirements``: what to install for it, pinned; empty: it runs in the environment of this command.
    ``without_kernel``: runs with a copy of wdsloader that lacks the compiled kernel. ``packages``: whose versions to
    report. ``draws``: its samples come with replacement, so an epoch has some twice and some never.
    ``drops``: leaves out what does not fill the last batch of an epoch. ``rate``: images a second to plan time with.
    """

    name: str
    title: str
    dtype: Dtype
    open: Callable[[Task], Iterator[Delivered]]
    prepare: Callable[[Path], None] = no_preparation
    folder: str = ""
    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    without_kernel: bool = False
    draws: bool = False
    drops: bool = False
    rate: int = 600
