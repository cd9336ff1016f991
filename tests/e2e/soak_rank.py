"""One rank of the soak: it reads batches until it is killed, and writes down what came and how much it holds open."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from wdsloader import AugmentConfig, CacheConfig, LoaderConfig, TorchLoader, open_dataset


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    folder, rank = Path(settings["folder"]), settings["rank"]
    config = LoaderConfig(
        batch_size=settings["batch_size"],
        image_size=16,
        seed=7,
        num_workers=settings["num_workers"],
        augment=AugmentConfig(),
        lanes=settings["lanes"],
        block=8,
    )
    cache = CacheConfig(folder=folder / "cache", limit_bytes=settings["limit_bytes"])
    log = os.open(folder / f"rank-{rank}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    with (
        open_dataset([settings["manifest"]], cache=cache) as dataset,
        TorchLoader(dataset, config, rank=rank, world_size=settings["world_size"]) as loader,
    ):
        if settings["state"] is not None:
            loader.load_state_dict(settings["state"])
        step = 0
        while True:
            for batch in loader:
                line = {
                    "run": settings["run"],
                    "epoch": batch.epoch,
                    "position": batch.position,
                    "keys": [key for key in batch.keys if key is not None],
                    "state": batch.state,
                    "held": held() if step % 20 == 0 else None,
                }
                # One write: a kill leaves a line whole or not at all.
                os.write(log, json.dumps(line).encode() + b"\n")
                step += 1


def held() -> dict[str, int]:
    """Return resident bytes and open files of this process and its children together, and how many those are."""
    pids = [os.getpid(), *children_of(os.getpid())]
    total = {"bytes": 0, "files": 0, "processes": len(pids)}
    for pid in pids:
        try:
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            total["files"] += len(os.listdir(f"/proc/{pid}/fd"))
        except (FileNotFoundError, ProcessLookupError):
            continue
        total["bytes"] += resident * os.sysconf("SC_PAGE_SIZE")
    return total


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += [int(child), *children_of(int(child))]
    return found


if __name__ == "__main__":
    main()
