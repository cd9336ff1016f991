"""`python -m bench gpu`: does the loader keep a GPU busy? Images/s of the loader alone, the model alone, and both.

The model trains on synthetic batches that stay on the device, then on the loader's; forward, backward and SGD in
bfloat16, channels last. The wait share is the part of the time of both together in which the loop has no batch. All
figures come in one run, round by round in turns. A row more is of the loader that leaves decoding to the device, where
"loader alone" is the device's work too. ``--smoke`` runs all of it on the CPU with the tiny model, to test it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from bench.paired import machine
from bench.peers.task import MEAN, STD
from shardkit import FakeImageNet, FakeSource, PackConfig, pack, parse_shard_size, plan_shards

__all__ = ["Figures", "main", "measure"]

_NUM_CLASSES = 1000
_NUM_SHARDS = 32
# Batches in front of a window: more than the loader keeps ready, and the first steps of a model are its slowest.
_UNCOUNTED = 8
# Steps that the device may be behind the host, with some to spare: below the batches that the loader lends at a time.
_HELD = 6
# Whether the model is compiled, and who decodes.
_WAYS: tuple[tuple[bool, Literal["cpu", "gpu"]], ...] = ((False, "cpu"), (True, "cpu"), (False, "gpu"))
_SMOKE_WAYS = (_WAYS[0], _WAYS[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure. ``batches``: of one window, after some that are ``uncounted``; ``workers``: of the loader."""

    shards: Path
    model: str
    device: str
    image_size: int
    batch_size: int
    uncounted: int
    batches: int
    rounds: int
    workers: int
    compiled: bool
    decode: Literal["cpu", "gpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Images a second, one figure a round, and the share of the loop's time that it waited for a batch."""

    image_size: int
    compiled: bool
    decode: Literal["cpu", "gpu"]
    loader: list[float]
    model: list[float]
    both: list[float]
    wait_share: list[float]


def measure(plan: Plan) -> Figures:
    """Measure one size and one way of running the model."""
    import torch

    from wdsloader import AugmentConfig, LoaderConfig, TorchLoader, open_dataset

    step = _training_step(plan)
    device = torch.device(plan.device)
    shape = (plan.batch_size, plan.image_size, plan.image_size, 3)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device=device)
    labels = torch.randint(0, _NUM_CLASSES, (plan.batch_size,), device=device)
    config = LoaderConfig(
        batch_size=plan.batch_size,
        image_size=plan.image_size,
        augment=AugmentConfig(),
        num_workers=plan.workers,
        tail="drop",
        pin_memory=plan.device == "cuda" and plan.decode == "cpu",
        decode=plan.decode,
    )
    found: dict[str, list[float]] = {"loader": [], "model": [], "both": [], "wait_share": []}
    with open_dataset([str(plan.shards)]) as dataset, TorchLoader(dataset, config, device=device) as loader:
        batches = _endless(loader)
        for _ in range(plan.rounds):
            found["loader"].append(_rate(plan, lambda: next(batches), device=device)[0])
            found["model"].append(_rate(plan, lambda: step(images, labels), device=device)[0])
            fed = _FedStep(batches, step)
            both, seconds = _rate(plan, fed, device=device)
            found["both"].append(both)
            found["wait_share"].append(sum(fed.waits_s[-plan.batches :]) / seconds)
    return Figures(image_size=plan.image_size, compiled=plan.compiled, decode=plan.decode, **found)


def _rate(plan: Plan, work: Callable[[], object], *, device: Any) -> tuple[float, float]:
    """Return images a second of the work, one batch a call, and the seconds; the first calls are not counted."""
    import torch

    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(plan.uncounted):
        work()
    finish()
    began = time.perf_counter()
    for _ in range(plan.batches):
        work()
    finish()
    seconds = time.perf_counter() - began
    return plan.batches * plan.batch_size / seconds, seconds


class _FedStep:
    """One step on the loader's next batch; ``waits_s``: how long each step waited for it."""

    def __init__(self, batches: Iterator[Any], step: Callable[[Any, Any], None]) -> None:
        self.batches, self.step = batches, step
        self.waits_s: list[float] = []

    def __call__(self) -> None:
        began = time.perf_counter()
        batch = next(self.batches)
        self.waits_s.append(time.perf_counter() - began)
        self.step(batch.images, batch.labels)


def _training_step(plan: Plan) -> Callable[[Any, Any], None]:
    """Return one step of training on a batch of uint8 images (b, size, size, 3) from host or device."""
    import torch

    from resnettrain import build_model

    device = torch.device(plan.device)
    model: Any = build_model(plan.model, num_classes=_NUM_CLASSES, seed=0)
    model = model.to(device=device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    loss_of = torch.nn.CrossEntropyLoss()
    shift = torch.tensor(MEAN, device=device).mul(255)
    scale = torch.tensor(STD, device=device).mul(255).reciprocal()
    # One program a size, as the trainer has it: left to itself, torch makes one for all from the second size on.
    run = torch.compile(model, dynamic=False) if plan.compiled else model
    # A batch is filled anew when it is let go, and the device is some steps behind the host.
    held: deque[Any] = deque(maxlen=_HELD)

    def step(images: Any, labels: Any) -> None:
        moved = images.to(device, non_blocking=True)
        held.append((images, labels))
        normalized = moved.to(torch.float32).sub_(shift).mul_(scale).permute(0, 3, 1, 2)
        with torch.autocast(device.type, torch.bfloat16):
            loss = loss_of(run(normalized), labels.to(device, non_blocking=True))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def main(arguments: Sequence[str]) -> None:
    """Measure what the arguments ask for and print a table."""
    chosen = _parser().parse_args(arguments)
    import torch

    if not chosen.smoke and not torch.cuda.is_available():
        sys.exit("bench gpu: no CUDA device here; --smoke tries the script on the CPU")
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        shards = chosen.shards or _fake_shards(Path(folder), num_pictures=chosen.pictures, jobs=cores)
        figures = []
        for size in chosen.size or ([32] if chosen.smoke else [224, 160]):
            for compiled, decode in _SMOKE_WAYS if chosen.smoke else _WAYS:
                plan = Plan(
                    shards=shards,
                    model="tiny" if chosen.smoke else "resnet50",
                    device="cpu" if chosen.smoke else "cuda",
                    image_size=size,
                    batch_size=8 if chosen.smoke else chosen.batch_size,
                    uncounted=1 if chosen.smoke else _UNCOUNTED,
                    batches=2 if chosen.smoke else chosen.batches,
                    rounds=chosen.rounds,
                    workers=cores if chosen.workers is None else chosen.workers,
                    compiled=compiled,
                    decode=decode,
                )
                figures.append(measure(plan))
                print(f"{size} px, {_way(figures[-1])}: done", file=sys.stderr, flush=True)
    name = "the CPU" if chosen.smoke else torch.cuda.get_device_name()
    print(
        f"{name}; {machine({package: version(package) for package in ('torch', 'torchvision', 'numpy')})}", "", sep="\n"
    )
    print(_table(figures))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(one) for one in figures], indent=1), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench gpu", description="Does the loader keep a GPU busy?")
    add = parser.add_argument
    add("--shards", type=Path, help="folder of shards (default: of a fake ImageNet, made for the run)")
    add("--pictures", type=int, default=4000, help="pictures of the fake ImageNet")
    add("--size", action="append", type=int, default=[], help="pixels a side; again for more (default: 224 and 160)")
    add("--batch-size", type=int, default=256)
    add("--batches", type=int, default=40, help="batches in a window")
    add("--rounds", type=int, default=3)
    add("--workers", type=int, help="workers of the loader (default: all cores)")
    add("--json", type=Path, help="where all figures go")
    add("--smoke", action="store_true", help="on the CPU, the tiny model, a few small batches: does the script run?")
    return parser


def _fake_shards(folder: Path, *, num_pictures: int, jobs: int) -> Path:
    source = FakeSource(FakeImageNet(num_samples=num_pictures, num_classes=_NUM_CLASSES))
    plan = plan_shards(source, prefix="train", size=parse_shard_size(str(-(-num_pictures // _NUM_SHARDS))))
    pack(source, plan, config=PackConfig(folder=folder, prefix="train", jobs=jobs), on_shard=lambda _: None)
    return folder


def _table(figures: Sequence[Figures]) -> str:
    lines = ["| px | model | loader alone | model alone | both | wait share | n |", "|---|---|---|---|---|---|---|"]
    for one in figures:
        rates = " | ".join(
            f"{statistics.median(found):,.0f} ({min(found):,.0f}-{max(found):,.0f})"
            for found in (one.loader, one.model, one.both)
        )
        wait = statistics.median(one.wait_share)
        lines.append(f"| {one.image_size} | {_way(one)} | {rates} | {wait:.1%} | {len(one.both)} |")
    return "\n".join(lines)


def _way(one: Figures) -> str:
    return ("compiled" if one.compiled else "eager") + (", decode on the device" if one.decode == "gpu" else "")
