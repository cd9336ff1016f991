"""What the trainer adds to a training step: our step beside a minimal loop in plain torch, on the CPU.

Both learn the same model from the same uint8 batch, step by turns in one process, so that what the machine does
meanwhile happens to both. CPU seconds are those of this process alone: they hold on a machine that does other work too.
With `--pictures N` also a whole run from shards, beside the model alone and the loader alone.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from bench.paired import machine
from bench.peers.task import MEAN, STD
from bench.shard_tools import make_data
from resnettrain import Event, TrainConfig, TrainReport, build_model, resolve_config, train
from resnettrain.feed import DeviceBatch
from resnettrain.numerics import Numerics
from resnettrain.state import TrainState
from resnettrain.step import make_step
from wdsloader import AugmentConfig, LoaderConfig, TorchLoader, open_dataset

__all__ = ["main"]

_CLASSES = 100
# Updates of a run that its workers' start is in.
_STARTING = 3


def main(arguments: list[str]) -> None:
    """Read the arguments, run the rounds, print the figures."""
    parser = argparse.ArgumentParser(prog="bench step", description=__doc__)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=20, help="pairs of steps, after two that are not counted")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pictures", type=int, default=0, help="also train on so many pictures from shards")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    flags = {
        "model.name": chosen.model,
        "model.image_size": chosen.image_size,
        "model.num_classes": _CLASSES,
        "data.batch_size": chosen.batch_size,
        "optim.lr": 0.01,
        "runtime.device": "cpu",
        "runtime.threads": chosen.threads,
    }
    versions = {name: version(name) for name in ("torch", "torchvision")}
    print(machine(versions), f"{chosen.model}, {chosen.image_size} px, batch {chosen.batch_size}", sep="\n")
    _print_pairs(resolve_config(flags=flags), rounds=chosen.rounds)
    if chosen.pictures:
        _print_with_data(flags, num_pictures=chosen.pictures)


def _print_pairs(config: TrainConfig, *, rounds: int) -> None:
    plain, ours, batch = _plain_step(config), _our_step(config), _batch(config)
    pairs: list[tuple[float, float, float, float]] = []
    for number in range(rounds + 2):
        # Each goes first in every other round.
        first, second = (plain, ours) if number % 2 else (ours, plain)
        times = {step: _timed(step, batch) for step in (first, second)}
        if number >= 2:
            pairs.append((*times[plain], *times[ours]))
    for name, i in (("CPU", 0), ("wall", 1)):
        ratios = sorted(pair[i + 2] / pair[i] for pair in pairs)
        medians = [1000 * statistics.median(pair[j] for pair in pairs) for j in (i, i + 2)]
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        print(
            f"{name}: plain {medians[0]:.1f} ms, ours {medians[1]:.1f} ms a step; "
            f"ratio {statistics.median(ratios):.3f}, middle half {low:.3f}-{high:.3f}, n={len(ratios)}"
        )


def _timed(step: Callable[[DeviceBatch], None], batch: DeviceBatch) -> tuple[float, float]:
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    step(batch)
    return time.process_time() - cpu_s, time.perf_counter() - wall_s


def _model(config: TrainConfig) -> nn.Module:
    return build_model(config.model.name, num_classes=_CLASSES, seed=0).train()


def _plain_step(config: TrainConfig) -> Callable[[DeviceBatch], None]:
    """Return the loop that anyone would write: normalize, forward, loss, backward, step."""
    model = _model(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, nesterov=True, fused=True)
    mean, std = (torch.tensor(values).mul(255) for values in (MEAN, STD))

    def step(batch: DeviceBatch) -> None:
        images = batch.images.float().sub_(mean).div_(std).permute(0, 3, 1, 2).contiguous()
        loss = functional.cross_entropy(model(images), batch.labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _our_step(config: TrainConfig) -> Callable[[DeviceBatch], None]:
    step, state = make_step(config, _model(config), numerics=Numerics.of(config.runtime)), TrainState()
    step.train()
    return lambda batch: step.run(batch, lr=0.01, state=state)


def _batch(config: TrainConfig) -> DeviceBatch:
    count, side = config.data.batch_size, config.model.image_size
    return DeviceBatch(
        images=torch.randint(0, 256, (count, side, side, 3), dtype=torch.uint8),
        labels=torch.randint(0, _CLASSES, (count,)),
        weights=torch.ones(count),
        keys=tuple(map(str, range(count))),
        size=count,
        state=None,
    )


def _print_with_data(flags: dict[str, object], *, num_pictures: int) -> None:
    """Train on shards, and set that beside the model alone and the loader alone for as many batches.

    The first batches are not counted: with them the workers start.
    """
    reported_s: list[float] = []

    def note(event: Event) -> None:
        if isinstance(event, TrainReport):
            reported_s.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        make_data(Path(folder) / "data", num_pictures=num_pictures)
        urls = [str(Path(folder) / "data" / "shards")]
        own = {"data.urls": urls, "schedule.epochs": 1, "log.every_s": 0.0, "run_dir": Path(folder) / "run"}
        config = resolve_config(flags={**flags, **own, "model.num_classes": None})
        train(config, progress=note)
        num_updates = len(reported_s) - 1 - _STARTING
        loader_s = _loader_cpu_s(config, urls=urls, num_batches=num_updates)
    step, batch = _our_step(config), _batch(config)
    step(batch)
    model_s = sum(_timed(step, batch)[1] for _ in range(num_updates))
    whole_s, bound_s = reported_s[-1] - reported_s[_STARTING], model_s + loader_s / 2
    print(
        f"from shards: {whole_s:.1f} s for {num_updates} updates; "
        f"model alone {model_s:.1f} s, loader {loader_s:.1f} CPU s; "
        f"ratio to model + loader / 2: {whole_s / bound_s:.3f}"
    )


def _loader_cpu_s(config: TrainConfig, *, urls: list[str], num_batches: int) -> float:
    """Return the CPU seconds that the batches of a run take, worked out in this process."""
    settings = LoaderConfig(
        batch_size=config.data.batch_size,
        image_size=config.model.image_size,
        augment=AugmentConfig(),
        num_workers=0,
    )
    with open_dataset(urls) as dataset, TorchLoader(dataset, settings) as loader:
        batches = iter(loader)
        before = time.process_time()
        for _ in range(num_batches):
            next(batches)
        return time.process_time() - before
