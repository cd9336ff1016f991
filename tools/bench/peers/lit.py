"""litdata: samples in chunks of its own, made by its `optimize`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.peers.crops import crop_of
from bench.peers.task import BATCH_SIZE, Delivered, Peer, Task

__all__ = ["PEERS"]

_FOLDER = "litdata"


def prepare(data: Path) -> None:
    """Write the chunks."""
    import litdata

    paths = sorted((data / "pictures").glob("*/*.jpg"))
    litdata.optimize(_sample, paths, str(data / _FOLDER), num_workers=1, chunk_bytes="64MB")


def open_loader(task: Task) -> Iterator[Delivered]:
    """Deliver with its dataset and its DataLoader. An endless task asks for the samples a hundred times over."""
    import litdata

    transform = partial(_cropped, crop_of(task))
    data = litdata.StreamingDataset(
        str(task.data / _FOLDER), shuffle=True, drop_last=False, subsample=float(task.epochs), transform=transform
    )
    return iter(litdata.StreamingDataLoader(data, batch_size=BATCH_SIZE, num_workers=task.num_workers))


def _sample(path: Path) -> dict[str, Any]:
    return {"image": path.read_bytes(), "label": int(path.parent.name)}


def _cropped(crop: Callable[[bytes], Any], sample: dict[str, Any]) -> tuple[Any, int]:
    return crop(sample["image"]), sample["label"]


_COMMON: dict[str, Any] = {
    "open": open_loader,
    "prepare": prepare,
    "folder": _FOLDER,
    "requirements": ("litdata==0.2.76", "torch", "torchvision"),
    "packages": ("litdata", "torchvision", "torch"),
}
PEERS = (
    Peer(name="litdata-float", title="litdata as documented", dtype="float32", rate=400, **_COMMON),
    Peer(name="litdata", title="litdata tuned", dtype="uint8", rate=745, **_COMMON),
)
