from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch

from wdsloader.decode import Uint8s
from wdsloader.slots import Slot, SlotPool, map_slot

SHAPE = (6, 2, 2, 3)


def lent(pool: SlotPool, value: int) -> Uint8s:
    slot = pool.take()
    slot.images[:] = value
    return pool.lend(slot)


VIEWS: dict[str, Callable[[Uint8s], object]] = {
    "the array": lambda images: images,
    "a row of it": lambda images: images[2],
    "a view of views": lambda images: images[1:].reshape(5, -1).T[3:],
    "a tensor": torch.from_numpy,
    "rows of a tensor": lambda images: torch.from_numpy(images[:5])[3:5].permute(0, 3, 1, 2),
    "an array of a tensor": lambda images: torch.from_numpy(images).flatten().numpy()[9:],
    "a memoryview": lambda images: images.data[3:],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_slot_is_used_again_when_the_last_view_of_it_is_gone_and_not_before(name: str) -> None:
    pool = SlotPool(SHAPE)
    kept = VIEWS[name](lent(pool, 7))
    for value in (1, 2, 3):
        other = lent(pool, value)
        assert (np.asarray(kept) == 7).all()
        assert (other == value).all()
        del other
    address = np.asarray(kept).ctypes.data
    del kept
    again = lent(pool, 8)
    assert again.ctypes.data <= address < again.ctypes.data + again.nbytes


def test_whoever_keeps_many_batches_gets_copies_of_the_later_ones() -> None:
    pool = SlotPool(SHAPE, most_lent=2)
    kept = [lent(pool, value) for value in range(9)]
    assert [int(images[0, 0, 0, 0]) for images in kept] == list(range(9))
    assert [images.flags.owndata for images in kept] == [False] * 2 + [True] * 7
    assert all((images == value).all() for value, images in enumerate(kept))
    kept.clear()
    assert not lent(pool, 1).flags.owndata


def test_memory_that_a_forked_process_may_still_read_is_not_used_again() -> None:
    pool = SlotPool(SHAPE)
    read = lent(pool, 7)
    number = pool.lend(pool.take())  # not the last that is free
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of libraries' threads: the child uses none
        child = os.fork()
    if not child:
        signal.alarm(60)
        signal.pause()
    try:
        address = read.ctypes.data
        del read, number
        kept = [lent(pool, value) for value in range(5)]
        with open(f"/proc/{child}/mem", "rb", 0) as memory:
            assert os.pread(memory.fileno(), 4, address) == bytes([7] * 4)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert [int(images[0, 0, 0, 0]) for images in kept] == list(range(5))


def test_what_another_process_writes_is_there() -> None:
    slot = Slot(0, SHAPE)
    descriptor = slot.descriptor
    assert descriptor is not None
    theirs = map_slot(descriptor, SHAPE)
    slot.close_descriptor()
    assert slot.descriptor is None
    theirs[4] = 9
    assert slot.images[:, 0, 0, 0].tolist() == [0, 0, 0, 0, 9, 0]


def test_the_memory_of_a_dropped_pool_goes_with_the_last_view() -> None:
    before = len(os.listdir("/proc/self/fd")), mapped()
    pool = SlotPool(SHAPE)
    view = lent(pool, 5)[1]
    del pool
    assert (view == 5).all()
    assert mapped() == before[1] + 1
    del view
    assert (len(os.listdir("/proc/self/fd")), mapped()) == before


def mapped() -> int:
    with open("/proc/self/maps") as lines:
        return sum("wdsloader batch" in line for line in lines)


def test_pinned_memory_is_released_by_the_driver_before_it_is_unmapped() -> None:
    told: list[object] = []

    def pin(address: int, *, num_bytes: int) -> Callable[[], None]:
        told.append(num_bytes)
        return lambda: told.append(mapped())

    before = mapped()
    images = lent(SlotPool(SHAPE, pin=pin), 3)
    assert told == [72]
    del images
    assert told == [72, before + 1]
    assert mapped() == before


LIMITED = """
import resource
from wdsloader.slots import Slot

def make(limit, allowed):
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (allowed, before[1]))
    try:
        Slot(0, (64, 100, 100, 3))
    except Exception as error:
        print(type(error).__name__, error)
    resource.setrlimit(limit, before)

make(resource.RLIMIT_FSIZE, 1 << 20)
make(resource.RLIMIT_NOFILE, 3)  # no file more
make(resource.RLIMIT_NOFILE, 4)  # one; to map it takes a second
"""


def test_memory_that_cannot_be_had_is_an_error_and_no_bus_error() -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, env=env, check=False)
    too_large, *too_many = ended.stdout.splitlines()
    assert too_large.startswith("WorkerError no memory for a batch of 2 MiB: File too large. Use smaller batches")
    files = "Too many open files. Let this process have more of them (ulimit -n)"
    assert too_many == [f"WorkerError no memory for a batch of 2 MiB: {files}"] * 2
    assert ended.returncode == 0
