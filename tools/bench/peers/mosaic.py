"""mosaicml-streaming: samples in MDS shards, made by its `MDSWriter`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.peers.crops import crop_of
from bench.peers.task import BATCH_SIZE, Delivered, Peer, Task

__all__ = ["PEERS"]

_FOLDER = "mds"


def prepare(data: Path) -> None:
    """Write the MDS shards."""
    from streaming import MDSWriter

    columns = {"image": "bytes", "label": "int"}
    with MDSWriter(out=str(data / _FOLDER), columns=columns, size_limit="64mb") as writer:
        for path in sorted((data / "pictures").glob("*/*.jpg")):
            writer.write({"image": path.read_bytes(), "label": int(path.parent.name)})


def open_loader(task: Task) -> Iterator[Delivered]:
    """Deliver with its dataset, and torch's DataLoader as its documentation does."""
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    crop = crop_of(task)

    class Cropped(StreamingDataset):  # type: ignore[misc]  # a base without types
        def __getitem__(self, at: int) -> tuple[Any, int]:
            sample = super().__getitem__(at)
            return crop(sample["image"]), sample["label"]

    clean_stale_shared_memory()
    num_samples = task.epochs * task.num_samples
    data = Cropped(local=str(task.data / _FOLDER), shuffle=True, batch_size=BATCH_SIZE, epoch_size=num_samples)
    return iter(DataLoader(data, BATCH_SIZE, num_workers=task.num_workers))


_COMMON: dict[str, Any] = {
    "open": open_loader,
    "prepare": prepare,
    "folder": _FOLDER,
    "requirements": ("mosaicml-streaming==0.13.0", "torch", "torchvision"),
    "packages": ("mosaicml-streaming", "torchvision", "torch"),
}
PEERS = (
    Peer(name="streaming-float", title="mosaicml-streaming as documented", dtype="float32", rate=350, **_COMMON),
    Peer(name="streaming", title="mosaicml-streaming tuned", dtype="uint8", rate=630, **_COMMON),
)
