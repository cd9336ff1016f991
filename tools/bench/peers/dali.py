"""NVIDIA DALI on the CPU: the tar shards themselves, with an index made by its `wds2idx`. Needs no GPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.task import BATCH_SIZE, MEAN, STD, Delivered, Peer, Task

__all__ = ["PEERS"]

_FOLDER = "dali"


def prepare(data: Path) -> None:
    """Write the indexes."""
    (data / _FOLDER).mkdir()
    for shard in sorted((data / "shards").glob("*.tar")):
        index = data / _FOLDER / f"{shard.stem}.idx"
        tool = Path(sys.executable).with_name("wds2idx")
        subprocess.run([str(tool), str(shard), str(index)], check=True, stdout=sys.stderr)


def open_loader(task: Task) -> Iterator[Delivered]:
    """Deliver with a pipeline of as many threads as the others have workers; it runs ahead by two batches."""
    pipeline = _pipeline(task)
    pipeline.build()
    done = 0
    while task.endless or done + BATCH_SIZE <= task.num_samples:
        images, labels = (output.as_array() for output in pipeline.run())
        done += BATCH_SIZE
        yield images, np.array([int(bytes(label).rstrip(b"\0")) for label in labels])


def _pipeline(task: Task) -> Any:
    from nvidia.dali import fn, pipeline_def, types

    shards = sorted((task.data / "shards").glob("*.tar"))
    indexes = [str(task.data / _FOLDER / f"{shard.stem}.idx") for shard in shards]

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=task.num_workers, device_id=None, prefetch_queue_depth=2)  # type: ignore[untyped-decorator]  # no types
    def crops() -> tuple[Any, Any]:
        jpegs, labels = fn.readers.webdataset(
            paths=[str(shard) for shard in shards],
            index_paths=indexes,
            ext=["jpg", "cls"],
            dtypes=[types.UINT8, types.UINT8],
            missing_component_behavior="error",
            random_shuffle=True,
            initial_fill=1000,
        )
        images = fn.decoders.image_random_crop(
            jpegs, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
        )
        size = {"resize_x": task.image_size, "resize_y": task.image_size}
        images = fn.resize(images, **size, device="cpu", interp_type=types.INTERP_LINEAR, antialias=True)
        mirror = fn.random.coin_flip()
        if task.dtype == "uint8":
            return fn.flip(images, horizontal=mirror), fn.pad(labels)
        mean, std = ([255 * value for value in values] for values in (MEAN, STD))
        normalized = fn.crop_mirror_normalize(
            images, dtype=types.FLOAT, output_layout="CHW", mean=mean, std=std, mirror=mirror
        )
        return normalized, fn.pad(labels)

    return crops()


_COMMON: dict[str, Any] = {
    "open": open_loader,
    "prepare": prepare,
    "folder": _FOLDER,
    "requirements": ("nvidia-dali-cuda130==2.4.0",),
    "packages": ("nvidia-dali-cuda130",),
    "drops": True,
}
PEERS = (
    Peer(name="dali", title="DALI on the CPU", dtype="uint8", rate=780, **_COMMON),
    Peer(name="dali-float", title="DALI on the CPU, normalized", dtype="float32", rate=650, **_COMMON),
)
