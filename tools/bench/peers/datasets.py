"""Build the data sets of the comparison once, and again when what they are made of has changed.

``real``: pictures cut from real photos. ``rulers``: pictures that tell how they were cropped, to check the work.
``task`` says what is in the folder of a data set. A set is built beside its place and renamed when it is whole.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from bench.peers.photos import PACKAGES, cut_picture, find_photos, ruler, shrunk
from bench.peers.task import Facts
from shardkit import PackConfig, decode_rgb, open_folder, pack, parse_shard_size, plan_shards
from wdsloader import decode_path, insert_restart_markers

__all__ = ["NUM_RULERS", "build_set", "fill_set", "real_pictures", "rulers"]

# Counts up whenever the pictures or the layout of a data set change.
_VERSION = 1
_MAKERS = 2
NUM_RULERS = 512
_SHARDS = 8


def build_set(folder: Path, pictures: Callable[[], Iterable[bytes]], *, num_pictures: int) -> Path:
    """Return the folder with a data set of these pictures; build it unless it is there already."""
    recipe = {"version": _VERSION, "pictures": num_pictures, "photos": PACKAGES}
    stamp = folder / "recipe.json"
    if stamp.exists() and json.loads(stamp.read_text(encoding="utf-8")) == json.loads(json.dumps(recipe)):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    begun = folder.with_name(folder.name + ".begun")
    shutil.rmtree(begun, ignore_errors=True)
    fill_set(begun, pictures(), jobs=_MAKERS)
    fill_set(
        begun / "q90", (shrunk(path.read_bytes()) for path in sorted(begun.glob("pictures/*/*.jpg"))), jobs=_MAKERS
    )
    (begun / stamp.name).write_text(json.dumps(recipe), encoding="utf-8")
    begun.rename(folder)
    return folder


def real_pictures(installed: Path, *, num_pictures: int) -> Iterator[bytes]:
    """Yield pictures cut from the photos of the packages in the folder, on two processes, as they get done."""
    cut = partial(cut_picture, tuple(find_photos(installed)))
    with ProcessPoolExecutor(_MAKERS, mp_context=get_context("spawn")) as makers:
        yield from makers.map(cut, range(num_pictures), chunksize=16)


def rulers() -> Iterator[bytes]:
    """Yield the pictures that tell how they were cropped."""
    return map(ruler, range(NUM_RULERS))


def fill_set(folder: Path, pictures: Iterable[bytes], *, jobs: int) -> None:
    """Write the pictures as an image folder, as shards and as crop-ready shards, with the facts."""
    sizes, means, num_bytes = [], [], []
    for number, jpeg in enumerate(pictures):
        place = folder / "pictures" / f"{number:05d}"
        place.mkdir(parents=True)
        (place / f"{number:05d}.jpg").write_bytes(jpeg)
        pixels = np.asarray(decode_rgb(jpeg))
        sizes.append(pixels.shape[:2])
        means.append(pixels.mean(axis=(0, 1)))
        num_bytes.append(len(jpeg))
    red, green, blue = np.mean(means, axis=0)
    height, width = np.mean(sizes, axis=0)
    Facts(
        num_samples=len(sizes),
        mean_bytes=float(np.mean(num_bytes)),
        width=float(width),
        height=float(height),
        mean_rgb=(float(red), float(green), float(blue)),
    ).write(folder)
    _pack(folder, "shards", transform=None, jobs=jobs)
    if decode_path().startswith("kernel"):  # what puts the markers in
        _pack(folder, "crop-ready", transform=insert_restart_markers, jobs=jobs)


def _pack(folder: Path, name: str, *, transform: Callable[[bytes], bytes] | None, jobs: int) -> None:
    source = open_folder(folder / "pictures")
    per_shard = str(-(-len(source) // _SHARDS))
    plan = plan_shards(source, prefix="train", size=parse_shard_size(per_shard))
    config = PackConfig(folder=folder / name, prefix="train", jobs=jobs, transform=transform)
    pack(source, plan, config=config, on_shard=lambda _: None)
