from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional

from resnettrain.metrics import Meter, Totals, Window

CPU = torch.device("cpu")


class Clock:
    """A clock that goes on only when told."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_meter_counts_all_time_and_the_share_of_waiting() -> None:
    clock = Clock()
    meter = Meter(every_s=5.0, clock=clock)

    def slow() -> Iterator[int]:
        for number in range(2):
            clock.seconds += 1.5
            yield number

    for _ in meter.waiting(slow()):
        clock.seconds += 0.5
        meter.count(10)
    assert meter.read() == (20 / 4.0, 3.0 / 4.0)
    assert (meter.total_images, meter.total_wait_s) == (20, 3.0)


def test_meter_begins_anew_after_a_read() -> None:
    clock = Clock()
    meter = Meter(every_s=5.0, clock=clock)
    clock.seconds = 5.0
    assert meter.due()
    meter.read()
    assert not meter.due()
    clock.seconds = 10.0
    meter.count(5)
    assert meter.read() == (1.0, 0.0)


def test_totals_leave_out_padding_even_where_it_is_not_finite() -> None:
    totals = Totals(device=CPU)
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [float("nan"), 0.0, 0.0]])
    totals.add(logits, torch.tensor([0, 2, 1]), weights_N=torch.tensor([1.0, 1.0, 0.0]))
    loss, correct1, correct5, count = totals.read()
    assert (correct1, correct5, count) == (1, 2, 2)
    assert loss == pytest.approx(functional.cross_entropy(logits[:2], torch.tensor([0, 2]), reduction="sum").item())


def test_window_is_the_mean_of_the_last_steps_and_comes_back_from_its_state() -> None:
    window = Window(2)
    for loss, top1 in ((9.0, 1.0), (1.0, 1.0), (3.0, 0.0)):
        window.add(torch.tensor(loss), top1=torch.tensor(top1))
    assert window.means() == (2.0, 0.5)
    again = Window(2)
    again.load(window.state(), device=CPU)
    assert again.means() == (2.0, 0.5)
