"""What workers do besides filling batches, seen from a loader: what they import, and what an interruption costs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import forkserver
from types import FrameType

import numpy as np
import pytest
import torch

from tests.helpers.libraries import tell_of_libraries
from tests.helpers.shards import write_samples
from wdsloader import (
    AugmentConfig,
    Batch,
    ConfigError,
    LoaderConfig,
    SampleView,
    TorchLoader,
    WorkerError,
    open_dataset,
)
from wdsloader.decode import Uint8s
from wdsloader.hooks import Transform

CONFIG = LoaderConfig(batch_size=4, image_size=8, augment=AugmentConfig(), num_workers=2, lanes=4, block=4)


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_samples(tmp_path_factory.mktemp("shards") / "s.tar", 40))


def contents(batch: Batch) -> tuple[object, ...]:
    return batch.epoch, batch.position, batch.keys, batch.images.numpy().tobytes(), batch.labels.tolist()


def tell_of_torch(sample: SampleView, generator: np.random.Generator) -> Uint8s:
    """A hook of a module that imports torch, as this one does: the first values are what a worker sees."""
    image = tell_of_libraries(sample, generator)
    image[0, 1] = torch.get_num_threads()
    return image


@pytest.mark.parametrize(
    ("transform", "has_torch"), [(tell_of_libraries, False), pytest.param(tell_of_torch, True, marks=pytest.mark.slow)]
)
def test_workers_import_no_torch_unless_a_hook_does_and_libraries_work_in_one_thread(
    shard: str, transform: Transform, has_torch: bool
) -> None:
    with TorchLoader(open_dataset([shard]), replace(CONFIG, transform=transform, num_workers=1)) as loader:
        _, second, *_ = (batch.images.numpy() for batch in loader)  # the first is made here
    assert second[:, 0, 0].tolist() == [[has_torch, 1, True]] * 4
    assert not has_torch or (second[:, 0, 1] == 1).all()


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_batches_and_views_that_are_kept_stay_as_they_were(shard: str, num_workers: int) -> None:
    kept, copies = [], []
    with TorchLoader(open_dataset([shard]), replace(CONFIG, num_workers=num_workers, num_epochs=3)) as loader:
        for _ in range(3):
            for number, batch in enumerate(loader):
                copies.append(batch.images[1:3].numpy().copy())
                kept.append((batch.images, batch.images[1:3], batch.images.numpy()[1:3])[number % 3])
    assert len(kept) == 30
    for view, copy in zip(kept, copies, strict=True):
        assert np.array_equal(np.asarray(view)[1:3] if len(view) == 4 else np.asarray(view), copy)


class _InterruptedError(BaseException):
    pass


class InterruptOnce:
    """A transform that is interrupted at a sample, as by Ctrl-C, the first time it comes there."""

    def __init__(self) -> None:
        self.left = 6

    def __call__(self, sample: SampleView, generator: np.random.Generator) -> Uint8s:
        self.left -= 1
        if not self.left:
            raise _InterruptedError
        assert sample.image is not None
        return sample.image


def test_an_interruption_in_the_middle_of_a_batch_that_is_made_here_loses_nothing(shard: str) -> None:
    dataset, config = open_dataset([shard]), replace(CONFIG, num_workers=0)
    with TorchLoader(dataset, config) as loader:
        whole = [contents(batch) for batch in loader]
    with TorchLoader(dataset, replace(config, transform=InterruptOnce())) as loader:
        assert list(until_interrupted(loader)) == whole


def test_an_interruption_while_workers_are_waited_for_loses_nothing(shard: str) -> None:
    dataset = open_dataset([shard])
    with TorchLoader(dataset, CONFIG) as loader:
        whole = [contents(batch) for batch in loader]
    before = set(multiprocessing.active_children())
    with TorchLoader(dataset, CONFIG) as loader:
        batches = iter(loader)
        found = [contents(next(batches)), contents(next(batches))]
        workers = set(multiprocessing.active_children()) - before
        assert len(workers) == 2
        with interrupted_while_waiting([worker.pid or 0 for worker in workers]):
            found += list(until_interrupted(loader))
    assert found == whole


def test_a_fork_server_that_ends_while_workers_start_is_a_worker_error_and_the_next_one_goes_on(shard: str) -> None:
    with TorchLoader(open_dataset([shard]), CONFIG) as loader:
        whole = [contents(batch) for batch in loader]
    with TorchLoader(open_dataset([shard]), CONFIG) as loader:
        batches = iter(loader)
        found = [contents(next(batches))]
        with (
            fork_server_killed_while_starting(),
            pytest.raises(WorkerError, match="cannot be started: the fork server"),
        ):
            next(batches)
        assert found + [contents(batch) for batch in loader] == whole


@contextmanager
def fork_server_killed_while_starting() -> Iterator[None]:
    """Have the fork server sleep, and die once this thread waits for it."""
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]  # noqa: SLF001  # told nowhere else
    main, done = threading.get_ident(), threading.Event()

    def kill() -> None:
        while not done.wait(0.001):
            frame = sys._current_frames().get(main)  # noqa: SLF001  # the public way to see where a thread is
            if frame is not None and frame.f_code.co_name == "read_signed":
                break
        os.kill(server, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    os.kill(server, signal.SIGSTOP)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def interrupted_while_waiting(workers: list[int]) -> Iterator[None]:
    """Have the workers sleep, and this thread interrupted once it waits for them; then they go on."""
    done = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_name != "_receive":
            frame = frame.f_back
        if frame is not None and not done.is_set():
            done.set()
            tell(workers, signal.SIGCONT)
            raise _InterruptedError

    def insist() -> None:
        while not done.wait(0.01):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, interrupt)
    tell(workers, signal.SIGSTOP)
    thread = threading.Thread(target=insist)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGUSR1, previous)


def tell(workers: list[int], number: int) -> None:
    for worker in workers:
        os.kill(worker, number)


def until_interrupted(loader: TorchLoader) -> Iterator[tuple[object, ...]]:
    """The rest of the epoch, gone on with after an interruption."""
    try:
        for batch in loader:
            yield contents(batch)
    except _InterruptedError:
        yield from (contents(batch) for batch in loader)


@pytest.mark.cuda
def test_batches_lie_in_pinned_memory_and_reach_the_device_as_they_are(shard: str) -> None:
    dataset = open_dataset([shard])
    with TorchLoader(dataset, CONFIG) as plain, TorchLoader(dataset, replace(CONFIG, pin_memory=True)) as pinned:
        for ours, theirs in zip(plain, pinned, strict=True):
            assert theirs.images.is_pinned()
            assert theirs.images.pin_memory().data_ptr() == theirs.images.data_ptr()
            moved = theirs.images.to("cuda", non_blocking=True)
            torch.cuda.synchronize()
            assert torch.equal(moved.cpu(), ours.images)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_pinned_memory_without_a_cuda_device_is_refused(shard: str) -> None:
    with pytest.raises(ConfigError, match="pin_memory=True is for a CUDA device, and torch finds none"):
        TorchLoader(open_dataset([shard]), replace(CONFIG, pin_memory=True))
