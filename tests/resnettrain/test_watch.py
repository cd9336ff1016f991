from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # theirs; public

from resnettrain import Rank
from resnettrain.watch import Watch
from tests.helpers.cli import wait_until
from tests.helpers.ranks import Died, run_ranks, started_ranks


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a store that outlives every rank, as that of torchrun does."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield store.port
    del store


def watched(place: Rank, port: int, *, every_s: float = 0.02, silent_s: float = 0.5) -> Watch:
    store = TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    watch = Watch(store, place, every_s=every_s, silent_s=silent_s, leave_s=0.1)
    watch.settle()
    return watch


def hang(place: Rank, port: int) -> None:
    """Wait for ever in one call, as in a collective; the second stands still before its first beat is due.

    It neither dies nor closes anything, like one on a host that is lost.
    """
    # So long that no rank falls silent for lack of a core.
    watched(place, port, every_s=600.0 if place.rank == 1 else 0.02, silent_s=5.0)
    if place.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)


def fail(place: Rank, port: int) -> None:
    watch = watched(place, port)
    if place.rank == 0:
        watch.publish("no space left")
        watch.publish("and what follows from it")
        watch.close()
        return
    time.sleep(600)


def end(place: Rank, port: int) -> str | None:
    """The first ends at once; the second works on for three times as long as a silence may last."""
    watch = watched(place, port)
    if place.rank == 1:
        time.sleep(1.5)
    watch.close()
    return watch.news(wait_s=0)


@pytest.mark.slow
def test_a_rank_that_falls_silent_at_once_ends_the_others_with_its_number(tmp_path: Path, port: int) -> None:
    ranks = started_ranks(hang, port, world_size=3, folder=tmp_path)
    assert wait_until(lambda: all("rank 1 has given no sign of life" in log(ranks.folder, rank) for rank in (0, 2)))
    os.kill(ranks.pids[1], signal.SIGKILL)
    assert [result.code for result in ranks.join()] == [1, -signal.SIGKILL, 1]


def test_what_the_first_failing_rank_said_ends_one_that_waits_for_it(tmp_path: Path, port: int) -> None:
    _, second = run_ranks(fail, port, world_size=2, folder=tmp_path)
    assert isinstance(second, Died)
    assert second.code == 1
    assert "rank 0: no space left. This rank waited for it and ends." in second.output


def test_a_rank_that_has_ended_well_is_not_missed(tmp_path: Path, port: int) -> None:
    assert run_ranks(end, port, world_size=2, folder=tmp_path) == [None, None]


def log(folder: Path, rank: int) -> str:
    path = folder / f"{rank}.log"
    return path.read_text() if path.exists() else ""
