from __future__ import annotations

import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from resnettrain.ring import DeviceRing

CPU = torch.device("cpu")
SIZES = (4, 4, 4, 4, 4, 2)


class Source:
    """Stands for a batch of the loader: whoever holds it keeps its memory."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.tensors = [torch.full((size, 3), number, dtype=torch.uint8), torch.arange(size) + number]


def sources() -> Iterator[tuple[Source, list[Tensor]]]:
    for number, size in enumerate(SIZES):
        source = Source(number, size)
        yield source, source.tensors


@pytest.mark.parametrize("copying", [False, True])
def test_batches_come_whole_and_in_order_with_the_last_short_one(copying: bool) -> None:
    ring = DeviceRing(CPU, copying=copying)
    for _ in range(2):
        seen = [(source.number, [tensor.clone() for tensor in moved]) for source, moved in ring.stream(sources())]
        assert [number for number, _ in seen] == list(range(len(SIZES)))
        for (number, moved), size in zip(seen, SIZES, strict=True):
            assert torch.equal(moved[0], torch.full((size, 3), number, dtype=torch.uint8))
            assert torch.equal(moved[1], torch.arange(size) + number)


def test_where_the_device_is_the_host_nothing_is_copied() -> None:
    for source, moved in DeviceRing(CPU).stream(sources()):
        assert all(one is other for one, other in zip(moved, source.tensors, strict=True))


def test_what_is_on_a_device_already_is_handed_on_as_it_is() -> None:
    there = torch.empty((4, 3), device="meta")  # any device but the host
    ring = DeviceRing(CPU, copying=True)
    for number, (moved, labels) in ring.stream((n, [there, torch.full((4,), n)]) for n in range(5)):
        assert moved is there
        assert labels.tolist() == [number] * 4


def test_a_ring_has_buffers_of_its_own_and_not_one_a_batch() -> None:
    places = [moved[0].data_ptr() for _, moved in DeviceRing(CPU, copying=True).stream(sources())]
    assert len(set(places)) == 3


def test_pictures_of_another_size_get_other_buffers() -> None:
    ring = DeviceRing(CPU, copying=True)
    for side in (2, 5, 3):
        items = [(number, [torch.full((4, side, side), number)]) for number in range(4)]
        assert [int(moved[0].sum()) for _, moved in ring.stream(items)] == [0, 4 * side**2, 8 * side**2, 12 * side**2]


def test_the_memory_of_a_batch_is_let_go_when_the_next_is_asked_for() -> None:
    held: list[weakref.ref[Source]] = []
    stream = DeviceRing(CPU, copying=True).stream(sources())
    for source, _ in stream:
        held.append(weakref.ref(source))
        del source
        assert sum(ref() is not None for ref in held) <= 1


def test_a_stream_that_is_left_early_can_be_followed_by_another() -> None:
    ring = DeviceRing(CPU, copying=True)
    for source, _ in ring.stream(sources()):
        if source.number == 1:
            break
    assert [source.number for source, _ in ring.stream(sources())] == list(range(len(SIZES)))


@pytest.mark.cuda
@pytest.mark.parametrize("pinned", [False, True])
def test_a_slow_consumer_on_the_device_never_sees_a_buffer_that_is_written_again(pinned: bool) -> None:
    """Nor memory of a source: it is written again as soon as the ring lets go of it."""
    device = torch.device("cuda")
    ring = DeviceRing(device)
    size = (64, 512, 512)

    def items() -> Iterator[tuple[Source, list[Tensor]]]:
        for number in range(40):
            source = Source(number % 251, 4)
            images, labels = torch.full(size, number % 251, dtype=torch.uint8), source.tensors[1]
            images = images.pin_memory() if pinned else images
            weakref.finalize(source, images.fill_, 255)
            yield source, [images, labels]
            del source

    sums = []
    for _, (images, labels) in ring.stream(items()):
        # The device is busy long after the host has gone on to the next batches.
        torch.cuda._sleep(20_000_000)  # noqa: SLF001  # torch's own way to keep a device busy
        sums.append(torch.stack([images.to(torch.int64).sum(), labels[0]]))
    expected = [[number % 251 * size[0] * size[1] * size[2], number % 251] for number in range(40)]
    assert [total.tolist() for total in sums] == expected
