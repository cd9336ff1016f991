"""How long a loader takes to go on in the middle of an epoch as large as ImageNet's, and how many bytes that reads.

Data: 1,282 shards of 1,000 pictures of about 110 KB, with indexes and a manifest. On the disk they are one shard under
as many names, which lies in the page cache. Timed is what follows the imports: the dataset is opened, the loader takes
the state, the first batch comes. Bytes are those that the process and its workers asked the system for until then.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.paired import machine
from shardkit import (
    FakeImageNet,
    FakeSource,
    Manifest,
    ShardRecord,
    ShardWriter,
    build_index,
    index_path_of,
    write_index,
    write_manifest,
)

__all__ = ["main"]

_BATCH_SIZE = 256
_TOOLS = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> None:
    """Read the arguments, make the data, run the rounds, print the figures."""
    parser = argparse.ArgumentParser(prog="bench resume", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shards", type=int, default=1282)
    parser.add_argument("--per-shard", type=int, default=1000, help="pictures of a shard")
    parser.add_argument("--data", type=Path, help="folder to keep the data in (default: a temporary one)")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.one:
        print(json.dumps(_resumed(chosen.data, num_workers=chosen.workers)))
        return
    with tempfile.TemporaryDirectory() as folder:
        data = chosen.data or Path(folder) / "data"
        _make_data(data, num_shards=chosen.shards, per_shard=chosen.per_shard)
        runs = [_run_alone(data, num_workers=chosen.workers) for _ in range(chosen.rounds)]
    print(machine({name: version(name) for name in ("torch", "numpy")}))
    of_what = f"{chosen.shards} shards of {chosen.per_shard} samples, batch {_BATCH_SIZE}"
    print(f"{of_what}, {chosen.workers} workers, n={chosen.rounds}")
    for name in runs[0]:
        found = sorted(run[name] for run in runs)
        print(f"{name:<24} {statistics.median(found):12,.2f}   {found[0]:,.2f} to {found[-1]:,.2f}")


def _make_data(folder: Path, *, num_shards: int, per_shard: int) -> None:
    """Make one shard, and give it all the names, each with an index and a place in the manifest."""
    if (folder / "t.manifest.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    pictures = FakeSource(FakeImageNet(num_samples=per_shard, num_classes=10))
    first = folder / "t-000000.tar"
    with ShardWriter(first) as writer:
        for number in range(len(pictures)):
            sample = pictures.sample(number)
            writer.write_sample(sample.key, sample.members)
    index = build_index(first)
    names = [f"t-{number:06d}.tar" for number in range(num_shards)]
    for name in names:
        if name != first.name:
            os.link(first, folder / name)
        write_index(replace(index, shard=name), Path(index_path_of(str(folder / name))))
    records = tuple(ShardRecord(name, per_shard, index.num_bytes, index.checksum) for name in names)
    manifest = Manifest(
        name="t", split="train", seed=0, classes=(), class_order="not known", shuffled=False, shards=records
    )
    write_manifest(manifest, folder / "t.manifest.json")


def _run_alone(data: Path, *, num_workers: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench", "resume", "--one", "--data", str(data), "--workers", str(num_workers)]
    ended = subprocess.run(command, cwd=_TOOLS, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _resumed(data: Path, *, num_workers: int) -> dict[str, float]:
    """Go on in the middle of the fourth epoch, and return what it took to the first batch."""
    from wdsloader import AugmentConfig, LoaderConfig, TorchLoader, open_dataset

    config = LoaderConfig(batch_size=_BATCH_SIZE, augment=AugmentConfig(), num_workers=num_workers)
    bytes_before, cpu_before, started = _bytes_read(), _cpu_s(), time.perf_counter()
    with open_dataset([str(data)]) as dataset, TorchLoader(dataset, config) as loader:
        opened_s = time.perf_counter() - started
        middle = _BATCH_SIZE * (len(loader) // 2)
        state: dict[str, Any] = loader.state_dict() | {"epoch": 3, "position": middle}
        loader.load_state_dict(state)
        batch = next(iter(loader))
        wall_s, cpu_s = time.perf_counter() - started, _cpu_s() - cpu_before
        assert batch.position == middle + _BATCH_SIZE  # noqa: S101  # else nothing here means anything
        read = _bytes_read() - bytes_before
        lanes, block = (int(state[name]) for name in ("lanes", "block"))
        mean_bytes = sum(path.stat().st_size for path in data.glob("*.tar")) / (len(loader) * _BATCH_SIZE)
    return {
        "to the dataset, s": opened_s,
        "to the first batch, s": wall_s,
        "CPU of this process, s": cpu_s,
        "read, MB": read / 1e6,
        "the window, MB": lanes * block * mean_bytes / 1e6,
    }


def _bytes_read() -> int:
    """Return the bytes that this process and its workers have asked the system for since they began."""
    pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    texts = [Path(f"/proc/{pid}/io").read_text() for pid in pids if Path(f"/proc/{pid}/io").exists()]
    return sum(int(line.split()[1]) for text in texts for line in text.splitlines() if line.startswith("rchar"))


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
