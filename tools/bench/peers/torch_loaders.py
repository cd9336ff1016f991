"""torchvision's ImageFolder and webdataset, on torch's DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.peers.crops import CropBytes, CropPicture, crop_of, read_tensor
from bench.peers.task import BATCH_SIZE, Delivered, Peer, Task

__all__ = ["PEERS"]


def image_folder(task: Task) -> Iterator[Delivered]:
    """Deliver from an image folder: as documented for float32, tuned for uint8. Epochs run on without a pause."""
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision.datasets import ImageFolder

    if task.dtype == "uint8":
        crop: Callable[..., Any] = CropBytes(task.image_size).transform
        data = ImageFolder(str(task.data / "pictures"), crop, loader=read_tensor)
    else:
        data = ImageFolder(str(task.data / "pictures"), CropPicture(task.image_size).transform)
    order = RandomSampler(data, num_samples=task.epochs * len(data))
    return iter(DataLoader(data, BATCH_SIZE, sampler=order, num_workers=task.num_workers))


def webdataset(task: Task) -> Iterator[Delivered]:
    """Deliver from shards with webdataset, every sample once an epoch; batches are made in the workers and stay."""
    import webdataset as wds

    shards = [str(path) for path in sorted((task.data / "shards").glob("*.tar"))]
    data = wds.WebDataset(shards, shardshuffle=len(shards), empty_check=False)
    data = data.repeat(task.epochs).shuffle(1000).map(_OfSample(crop_of(task))).batched(BATCH_SIZE)
    return iter(wds.WebLoader(data, batch_size=None, num_workers=task.num_workers))


class _OfSample:
    """A webdataset sample -> image and label. A class, so that it pickles."""

    def __init__(self, crop: Callable[[bytes], Any]) -> None:
        self.crop = crop

    def __call__(self, sample: Mapping[str, bytes]) -> tuple[Any, int]:
        return self.crop(sample["jpg"]), int(sample["cls"])


PEERS = (
    Peer(
        name="imagefolder-float",
        title="ImageFolder as documented",
        dtype="float32",
        open=image_folder,
        packages=("torchvision", "torch", "pillow"),
        rate=420,
    ),
    Peer(
        name="imagefolder",
        title="ImageFolder tuned",
        dtype="uint8",
        open=image_folder,
        packages=("torchvision", "torch"),
        rate=790,
    ),
    Peer(
        name="webdataset",
        title="webdataset tuned",
        dtype="uint8",
        open=webdataset,
        packages=("webdataset", "torchvision", "torch"),
        rate=700,
    ),
)
