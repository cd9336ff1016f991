"""FFCV: pictures re-encoded into a file of its own (at most 500 pixels, JPEG quality 90), in its mode "jpg"."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.peers.task import BATCH_SIZE, Delivered, Peer, Task

__all__ = ["PEERS"]

_FOLDER = "ffcv"


def prepare(data: Path) -> None:
    """Write the file."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from torchvision.datasets import ImageFolder

    (data / _FOLDER).mkdir()
    image = RGBImageField(write_mode="jpg", max_resolution=500, jpeg_quality=90)
    writer = DatasetWriter(str(data / _FOLDER / "q90.beton"), {"image": image, "label": IntField()}, num_workers=2)
    writer.from_indexed_dataset(ImageFolder(str(data / "pictures")))


def open_loader(task: Task) -> Iterator[Delivered]:
    """Deliver with its loader, the file in the page cache; its threads are the workers."""
    import numpy as np
    from ffcv.fields.decoders import IntDecoder
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, Squeeze, ToTensor

    size = (task.image_size, task.image_size)
    loader = Loader(
        str(task.data / _FOLDER / "q90.beton"),
        batch_size=BATCH_SIZE,
        num_workers=task.num_workers,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        indices=np.tile(np.arange(task.num_samples), task.epochs),
        pipelines={
            "image": [RandomResizedCropRGBImageDecoder(size), RandomHorizontalFlip(), ToTensor()],
            "label": [IntDecoder(), ToTensor(), Squeeze()],
        },
    )
    return iter(loader)


PEERS = (
    Peer(
        name="ffcv",
        title='FFCV, mode "jpg", on its own file',
        dtype="uint8",
        open=open_loader,
        prepare=prepare,
        folder=_FOLDER,
        requirements=("ffcv==1.0.2", "torch", "torchvision"),
        packages=("ffcv", "numba", "torch"),
        rate=1000,
    ),
)
