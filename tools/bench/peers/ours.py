"""Our loader in its ways of use, and the source's own pipeline. What is offered is what wdsloader exports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.peers.task import BATCH_SIZE, Delivered, Dtype, Peer, Task

__all__ = ["PEERS"]

_PACKAGES = ("torch", "numpy", "pillow")


def ours(task: Task, *, shards: str = "shards", options: dict[str, Any] | None = None) -> Iterator[Delivered]:
    """Deliver with ``TorchLoader``: uint8 as it comes; float32 as our trainer normalizes for a model on the CPU."""
    from wdsloader import AugmentConfig, LoaderConfig, TorchLoader, open_dataset

    config = LoaderConfig(
        batch_size=BATCH_SIZE,
        image_size=task.image_size,
        augment=AugmentConfig(),
        num_workers=task.num_workers,
        num_epochs=None if task.endless else 1,
        tail="drop" if task.endless else "ragged",
        **(options or {}),
    )
    finished: Callable[[Any], Any] = _as_it_is
    if task.dtype == "float32":
        from resnettrain.gpu_augment import Normalizer

        finished = Normalizer(channels_last=True)
    with open_dataset([str(task.data / shards)]) as dataset, TorchLoader(dataset, config) as loader:
        while True:
            for batch in loader:
                yield finished(batch.images), batch.labels
            if not task.endless:
                return


def source(task: Task) -> Iterator[Delivered]:
    """Deliver with the source's pipeline: without an end, shards drawn with replacement."""
    from wdsloader import SourceConfig, source_loader

    urls = tuple(str(path) for path in sorted((task.data / "shards").glob("*.tar")))
    config = SourceConfig(
        urls=urls,
        batch_size=BATCH_SIZE,
        num_workers=task.num_workers,
        cache_dir=None,
        epoch_batches=task.epochs * task.num_samples // BATCH_SIZE,
        image_size=task.image_size,
    )
    return iter(source_loader(config))


def _as_it_is(images: Any) -> Any:
    return images


def _ours(
    name: str, title: str, *, dtype: Dtype = "uint8", way: Callable[[Task], Iterator[Delivered]] = ours, **settings: Any
) -> Peer:
    return Peer(name=name, title=title, dtype=dtype, open=way, **{"packages": _PACKAGES, "rate": 1400, **settings})


PEERS = (
    _ours("ours", "wdsloader"),
    _ours("ours-float", "wdsloader, normalized", dtype="float32", rate=900),
    _ours(
        "ours-no-kernel",
        "wdsloader without its kernel",
        without_kernel=True,
        rate=750,
        packages=(*_PACKAGES, "simplejpeg"),
    ),
    _ours("ours-crop-ready", "wdsloader, crop-ready shards", way=partial(ours, shards="crop-ready"), rate=1550),
    _ours("ours-q90", "wdsloader, shards re-encoded as FFCV does", way=partial(ours, shards="q90/shards"), rate=1700),
    _ours("ours-dct", "wdsloader with DCT scaling", way=partial(ours, options={"dct_scaling": True})),
    Peer(
        name="source",
        title="the source's pipeline",
        dtype="float32",
        open=source,
        packages=("webdataset", "torchvision", "torch"),
        draws=True,
        rate=250,
    ),
)
