"""Megatron-Energon: the tar shards themselves, with an index made by `energon prepare`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.peers.crops import CropPicture
from bench.peers.task import BATCH_SIZE, Delivered, Peer, Task

__all__ = ["PEERS"]

_FOLDER = "energon"


def prepare(data: Path) -> None:
    """Link the shards into a folder of their own and have them indexed."""
    folder = data / _FOLDER
    folder.mkdir()
    for shard in sorted((data / "shards").glob("*.tar")):
        (folder / shard.name).hardlink_to(shard)
    command = [str(Path(sys.executable).with_name("energon")), "prepare", str(folder), "--non-interactive"]
    command += ["--no-progress", "--num-workers", "2", "--split-ratio", "1,0,0"]
    command += ["--sample-type", "ImageClassificationSample", "--field-map", '{"image": "jpg", "label": "cls"}']
    subprocess.run(command, check=True, stdout=sys.stderr)


def open_loader(task: Task) -> Iterator[Delivered]:
    """Deliver with its train dataset and loader, Pillow decoding, as its documentation shows."""
    from megatron.energon import (
        DefaultTaskEncoder,
        SampleDecoder,
        WorkerConfig,
        get_loader,
        get_train_dataset,
        stateless,
    )

    crop = CropPicture(task.image_size).transform

    class Encoder(DefaultTaskEncoder):  # type: ignore[misc]  # a base without types
        decoder = SampleDecoder(image_decode="pilrgb")

        @stateless  # type: ignore[untyped-decorator]  # a decorator without types
        def encode_sample(self, sample: Any) -> Any:
            sample.image = crop(sample.image)
            return sample

    data = get_train_dataset(
        str(task.data / _FOLDER),
        split_part="train",
        batch_size=BATCH_SIZE,
        shuffle_buffer_size=1000,
        max_samples_per_sequence=100,
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=task.num_workers),
        task_encoder=Encoder(),
        repeat=task.endless,
    )
    for batch in get_loader(data):
        yield batch.image, batch.label


PEERS = (
    Peer(
        name="energon-float",
        title="Megatron-Energon as documented",
        dtype="float32",
        open=open_loader,
        prepare=prepare,
        folder=_FOLDER,
        requirements=("megatron-energon==7.4.1", "torch", "torchvision"),
        packages=("megatron-energon", "torchvision", "torch"),
        rate=370,
    ),
)
