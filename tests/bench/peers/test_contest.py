"""Loaders are compared on the same work: it is counted and looked at, and one that does other work is out.

What is measured decides no test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.peers.contest import WrongWork, require_work
from bench.peers.datasets import fill_set
from bench.peers.photos import ruler
from bench.peers.registry import PEERS
from bench.peers.runner import Loader
from bench.peers.session import PeerFailed, Session
from bench.peers.task import BATCH_SIZE, Delivered, Peer, Task
from bench.peers.work import measure_work

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
SOME = 16


@pytest.fixture(autouse=True)
def _the_same_crops_every_time() -> None:
    """ImageFolder draws them from torch's own generator: of 16, some are by chance not about what they should be."""
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rulers")
    fill_set(folder, (ruler(number) for number in range(SOME)), jobs=1)
    return folder


def _task(data: Path, peer: Peer) -> Task:
    return Task(data=data, dtype=peer.dtype, image_size=32, num_workers=0, endless=False)


@pytest.mark.parametrize("name", ["ours", "ours-float", "imagefolder", "imagefolder-float"])
def test_a_loader_delivers_every_sample_once_and_the_crops_that_were_asked_for(data: Path, name: str) -> None:
    peer = PEERS[name]
    task = _task(data, peer)
    work = measure_work(peer.open(task))
    require_work(work, peer, task=task)
    assert (work.samples, work.labels, work.repeated) == (SOME, SOME, 0)


def _without_the_last(task: Task) -> Iterator[Delivered]:
    for images, labels in PEERS["imagefolder"].open(task):
        yield images[:-1], labels[:-1]


def _first_label_twice(task: Task) -> Iterator[Delivered]:
    for images, labels in PEERS["imagefolder"].open(task):
        labels[1] = labels[0]
        yield images, labels


def _red_for_blue(task: Task) -> Iterator[Delivered]:
    for images, labels in PEERS["imagefolder"].open(task):
        yield images.flip(1), labels


def _scaled_to_1(task: Task) -> Iterator[Delivered]:
    for images, labels in PEERS["imagefolder"].open(task):
        yield images / 255, labels


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (_without_the_last, "15 samples came, not 16"),
        (_first_label_twice, "1 samples came more than once"),
        (_red_for_blue, "crops are off a square"),
        (_scaled_to_1, "arrays are float32 3x32x32, not one of"),
    ],
)
def test_a_loader_that_does_other_work_is_out(
    data: Path, way: Callable[[Task], Iterator[Delivered]], said: str
) -> None:
    peer = replace(PEERS["imagefolder"], open=way)
    task = _task(data, peer)
    with pytest.raises(WrongWork, match=said):
        require_work(measure_work(peer.open(task)), peer, task=task)


def _batches(crop: tuple[int, int, int, int] | None) -> Iterator[Delivered]:
    """Yield 512 rulers, each cut to the box and not resized; without a box, whole."""
    from shardkit import decode_rgb

    whole = np.asarray(decode_rgb(ruler(0)))
    x, y, width, height = crop or (0, 0, whole.shape[1], whole.shape[0])
    cut = whole[y : y + height, x : x + width]
    images = np.broadcast_to(cut, (BATCH_SIZE, *cut.shape))
    for number in range(0, 512, BATCH_SIZE):
        yield images, np.arange(number, number + BATCH_SIZE)


def test_crops_are_read_off_the_pixels() -> None:
    work = measure_work(_batches((40, 60, 200, 150)))
    assert work.areas == pytest.approx([0.25] * 5, abs=0.005)
    assert work.ratio == pytest.approx(np.log(4 / 3), abs=0.02)
    assert work.flipped == 0


def test_a_loader_that_crops_by_another_law_is_out(data: Path) -> None:
    whole = list(_batches(None))
    square = [(images[:, :300, :300], labels) for images, labels in whole]
    work = measure_work(square)
    task = replace(_task(data, PEERS["ours"]), image_size=300)
    with pytest.raises(WrongWork, match=r"of the crops are smaller than 0.7.* of the crops are mirrored, not half"):
        require_work(work, PEERS["ours"], task=task)


def test_a_window_counts_what_was_taken_after_the_uncounted(tmp_path: Path) -> None:
    fill_set(tmp_path, (ruler(number) for number in range(BATCH_SIZE)), jobs=1)
    for name in ("ours", "imagefolder"):
        task = replace(_task(tmp_path, PEERS[name]), endless=True)
        window = Loader(PEERS[name], task).window(uncounted=BATCH_SIZE, samples=BATCH_SIZE + 1)
        assert window.items == 2 * BATCH_SIZE
        assert window.labels == (0, BATCH_SIZE - 1)
        assert len(window.mean_rgb) == 3


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are measured in /proc")
def test_a_loader_in_a_process_of_its_own_is_measured_with_all_its_workers(data: Path) -> None:
    task = replace(_task(data, PEERS["floor"]), num_workers=1, endless=True)
    with Session(PEERS["floor"], python=Path(sys.executable), search_path=[Path(p) for p in sys.path if p]) as session:
        assert set(session.versions()) == {"numpy"}
        try:
            session.open(task)
        except PeerFailed as reason:
            pytest.skip(f"no C compiler or no headers of libjpeg-turbo: {reason}")
        windows = [session.window(uncounted=128, samples=640) for _ in range(2)]
    window = windows[-1]
    assert window.items == 640
    assert window.pss_bytes <= window.peak_bytes


def test_a_loader_that_fails_says_why(tmp_path: Path) -> None:
    peer = PEERS["floor"]
    task = Task(data=tmp_path / "absent", dtype="uint8", image_size=32, num_workers=1, endless=True)
    with Session(peer, python=Path(sys.executable), search_path=[Path(p) for p in sys.path if p]) as session:
        with pytest.raises(PeerFailed, match="nothing is open"):
            session.window(uncounted=0, samples=1)
        with pytest.raises(PeerFailed, match=r"FileNotFoundError: .*absent: no pictures in it"):
            session.open(task)
