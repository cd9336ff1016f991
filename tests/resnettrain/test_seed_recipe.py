from __future__ import annotations

import re
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn, optim

from resnettrain import (
    Event,
    TrainReport,
    build_model,
    feed,
    resolve_config,
    source_line,
    train,
)
from tests.helpers.picture_sets import PictureSet
from wdsloader import SourceConfig, source_loader


def source_lines(batches: list[tuple[Tensor, Tensor]], *, model: nn.Module, max_steps: int) -> list[str]:
    """Return what the source's loop prints over these batches with a report at every step, statement by statement."""
    printed: list[str] = []
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    losses: deque[float] = deque(maxlen=100)
    accuracies: deque[float] = deque(maxlen=100)
    steps = 0
    for i, (inputs, labels) in enumerate(batches):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        pred = outputs.cpu().detach().argmax(dim=1, keepdim=True)
        correct = pred.eq(labels.cpu().view_as(pred)).sum().item()
        losses.append(loss.item())
        accuracies.append(correct / float(len(labels)))
        steps += len(inputs)
        if len(losses) > 5:
            printed.append(f"[1, {i + 1}] loss: {np.mean(losses):.5f} correct: {np.mean(accuracies):.5f}")
        if steps > max_steps:
            break
    return printed


def in_words(line: str) -> str:
    """Return a printed line with its figures replaced by the number of their digits behind the point."""
    return re.sub(r"\d+\.(\d+)", lambda figure: f"<{len(figure[1])} digits>", line)


def figures(line: str) -> list[float]:
    """Return the figures of a printed line."""
    return [float(figure) for figure in re.findall(r"\d+\.\d+", line)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*shardshuffle")
def test_the_seed_recipe_prints_what_the_source_prints(
    train_set: PictureSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = tuple(map(str, train_set.shards))
    source = SourceConfig(urls=urls, batch_size=8, num_workers=0, cache_dir=None, epoch_batches=9, image_size=32)
    # The source draws anew each time, so one drawing is recorded and given to both loops.
    batches = list(source_loader(source))
    monkeypatch.setattr(feed, "source_loader", lambda config: batches)
    flags = {"data.urls": list(urls), "data.batch_size": 8, "model.name": "tiny", "model.image_size": 32}
    never = {"data.cache_dir": tmp_path, "run_dir": tmp_path / "run", "log.every_s": 0.0, "schedule.max_samples": 56}
    events: list[Event] = []
    result = train(resolve_config(recipe_name="seed", flags={**flags, **never}), progress=events.append)
    model = build_model("tiny", num_classes=1000, seed=0)
    expected = source_lines(batches, model=model, max_steps=56)
    printed = [source_line(event) for event in events if isinstance(event, TrainReport)]
    assert [in_words(line) for line in printed] == [in_words(line) for line in expected]
    # The mean over a batch is summed in another order, which can tip the last digit.
    assert [figures(line) for line in printed] == [pytest.approx(figures(line), abs=1.5e-5) for line in expected]
    assert (len(expected), result.samples) == (3, 64)
