"""The floor under every loader: processes that unpack crops in C and do nothing else (floor.c).

The bytes are in memory before, the boxes drawn before; only numbers cross between processes. Crops are drawn as
torchvision's ``RandomResizedCrop`` draws them. Needs a C compiler and libjpeg-turbo's headers.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np

from bench.peers.task import BATCH_SIZE, Delivered, Peer, Task

__all__ = ["PEERS", "draw_box"]

_SOURCE = Path(__file__).with_name("floor.c")
_WAITING = 1  # batches that a worker may be ahead
_DRAWS = 4  # boxes of every picture, one after the other


def draw_box(random: np.random.Generator, *, width: int, height: int) -> tuple[int, int, int, int]:
    """Return x, y, width and height of a crop: 8 to 100 % of the area, ratio 3/4 to 4/3."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return int(random.integers(width - wide + 1)), int(random.integers(height - high + 1)), wide, high
    wide, high = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - wide) // 2, (height - high) // 2, wide, high


def floor(task: Task) -> Iterator[Delivered]:
    """Say after every 64 crops that they are done. Endless; there are no images, and no labels."""
    paths = sorted((task.data / "pictures").glob("*/*.jpg"))
    if not paths:
        raise FileNotFoundError(f"{task.data}: no pictures in it")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "floor.so"
        compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
        command = [*compiler, "-O3", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ljpeg"]
        subprocess.run(command, check=True)
        context = multiprocessing.get_context("spawn")
        done: Queue[int] = context.Queue(_WAITING * task.num_workers)
        shares = [paths[number :: task.num_workers] for number in range(task.num_workers)]
        workers = [
            context.Process(target=_work, args=(library, share), kwargs={"done": done}, daemon=True) for share in shares
        ]
        for worker in workers:
            worker.start()
        try:
            while True:
                yield None, np.zeros(done.get(timeout=60), np.int64)
        finally:
            for worker in workers:
                worker.kill()
                worker.join()


def _work(library: Path, paths: list[Path], *, done: Queue[int]) -> None:
    from PIL import Image

    unpack = ctypes.CDLL(str(library)).unpack_crop
    unpack.argtypes = [ctypes.c_char_p, ctypes.c_ulong, *[ctypes.c_int] * 4]
    random = np.random.Generator(np.random.PCG64(0))
    jpegs = [path.read_bytes() for path in paths]
    sizes = [Image.open(path).size for path in paths]
    boxes = [[draw_box(random, width=width, height=height) for width, height in sizes] for _ in range(_DRAWS)]
    unpacked = 0
    while True:
        for drawn in boxes:
            for jpeg, box in zip(jpegs, drawn, strict=True):
                if unpack(jpeg, len(jpeg), *box):
                    raise RuntimeError("the floor met a JPEG that it cannot unpack")
                unpacked += 1
                if unpacked == BATCH_SIZE:
                    done.put(unpacked)
                    unpacked = 0


PEERS = (
    Peer(
        name="floor",
        title="floor: crops unpacked in C, not resized",
        dtype="uint8",
        open=floor,
        packages=("numpy",),
        rate=1750,
    ),
)
