"""The loader under kill -9 and a failing server: three kills and an epoch, or as many seconds as WDS_SOAK_S says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardkit import seeded_words
from tests.e2e.soak_rank import children_of
from tests.helpers.http_server import Server, serve
from tests.helpers.packed import write_packed

COUNTS = [4, 3, 5, 4] * 12
KEYS = sorted(f"{100 * shard + n:06d}" for shard, count in enumerate(COUNTS) for n in range(count))
RANKS, WORKERS, BATCH = 2, 2, 4


class Soak:
    """Two ranks over one cache; killed, and started again behind the last step that both have done."""

    def __init__(self, folder: Path, server: Server, *, limit_bytes: int) -> None:
        self.folder, self._server, self._limit_bytes = folder, server, limit_bytes
        self.runs = 0
        self._ranks: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        state = self._common_state()
        for rank in range(RANKS):
            settings = {
                "folder": str(self.folder),
                "rank": rank,
                "world_size": RANKS,
                "num_workers": WORKERS,
                "batch_size": BATCH,
                "lanes": 4,
                "limit_bytes": self._limit_bytes,
                "manifest": self._server.url + "/t.manifest.json",
                "state": state,
                "run": self.runs,
            }
            script = Path(__file__).with_name("soak_rank.py")
            command = [sys.executable, str(script), json.dumps(settings)]
            log = open(self.folder / f"rank-{rank}.err", "ab")  # noqa: SIM115  # the process has it from now on
            with log:
                self._ranks.append(subprocess.Popen(command, stderr=log, start_new_session=True))
        self.runs += 1

    def kill_one(self, word: int) -> None:
        """Kill one process of all, whichever it is, and then what is left, as a launcher does."""
        pids = [pid for rank in self._ranks for pid in (rank.pid, *children_of(rank.pid))]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[word % len(pids)], signal.SIGKILL)
        self.stop(within_s=1.0)

    def stop(self, *, within_s: float = 0.0) -> None:
        """Kill all processes. Args: within_s: how long they may go on by themselves."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline and any(rank.poll() is None for rank in self._ranks):
            time.sleep(0.02)
        for rank in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()
        self._ranks.clear()

    def lines(self) -> list[list[dict[str, Any]]]:
        """Return what each rank has written."""
        paths = [self.folder / f"rank-{rank}.jsonl" for rank in range(RANKS)]
        return [[json.loads(line) for line in path.read_text().splitlines()] if path.exists() else [] for path in paths]

    def _common_state(self) -> dict[str, Any] | None:
        done = [{(line["epoch"], line["position"]): line["state"] for line in lines} for lines in self.lines()]
        common = set(done[0]).intersection(*done[1:])
        state: dict[str, Any] | None = done[0][max(common)] if common else None
        return state


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    write_packed(tmp_path / "far", COUNTS, size=(1100, 825))
    with serve(tmp_path / "far") as running:
        running.ranges = True
        running.one_fails_in = 20
        yield running


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(7200)
def test_every_key_comes_once_an_epoch_whatever_is_killed_and_fails(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = [path.stat().st_size for path in (tmp_path / "far").glob("*.tar")]
    limit = sum(shards) // 2
    seconds = float(os.environ.get("WDS_SOAK_S", "0"))
    soak = Soak(tmp_path, server, limit_bytes=limit)
    words = iter(seeded_words(10_000, key=(3, "soak")).tolist())
    with most_bytes_in(tmp_path / "cache") as most:
        end = time.monotonic() + seconds
        while time.monotonic() < end if seconds else soak.runs < 3 or not exact_epochs(soak.lines()):
            soak.start()
            # Starting takes some seconds; kills come anywhere in the start and in the run, and later and later, so that
            # a machine on which starting takes long gets somewhere too.
            wait_s = 3.0 + next(words) % 100 / 100 * max(8.0 + 2 * soak.runs, seconds / 20)
            time.sleep(min(wait_s, max(0.0, end - time.monotonic())) if seconds else wait_s)
            soak.kill_one(next(words))
        last = soak.lines()
    epochs = exact_epochs(last)
    resident, files = held_in(last)
    with capsys.disabled():
        print(f"\n{soak.runs} runs, {epochs} exact epochs, {len(server.requests)} requests", end="; ")
        print(f"most in the cache {most[0]} bytes of {limit}", end="; ")
        print(f"resident {resident} MB, open files {files}, in the second and in the last third of the longest run")
    assert epochs >= max(1.0, seconds / 60)
    assert most[0] <= limit + RANKS * WORKERS * max(shards)
    assert resident[1] < 1.15 * resident[0] + 30
    assert files[1] <= files[0] + 20


def exact_epochs(lines: list[list[dict[str, Any]]]) -> int:
    """Return the number of whole epochs; each has every key once, and a step that was repeated came out the same."""
    rows: dict[tuple[int, int], dict[int, list[str]]] = defaultdict(dict)
    for rank, written in enumerate(lines):
        for line in written:
            found = rows[line["epoch"], line["position"]].setdefault(rank, line["keys"])
            assert found == line["keys"], f"rank {rank}: another batch at {line['epoch']}, {line['position']}"
    by_epoch: dict[int, list[str]] = defaultdict(list)
    for (epoch, _), ranks in rows.items():
        if len(ranks) == RANKS:
            by_epoch[epoch] += [key for keys in ranks.values() for key in keys]
    whole = [epoch for epoch, keys in by_epoch.items() if len(keys) == len(KEYS) // (RANKS * BATCH) * RANKS * BATCH]
    for epoch in whole:
        assert len(set(by_epoch[epoch])) == len(by_epoch[epoch])
        assert set(by_epoch[epoch]) <= set(KEYS)
    # All but the one that was cut off at the end.
    assert sorted(whole) == list(range(max(by_epoch, default=0))) or sorted(whole) == list(range(len(by_epoch)))
    return len(whole)


def held_in(lines: list[list[dict[str, Any]]]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (MB, MB) and (files, files): held in the second and in the last third of the longest run of a rank."""
    runs: dict[tuple[int, int], list[dict[str, int]]] = defaultdict(list)
    for rank, written in enumerate(lines):
        for line in written:
            if line["held"] is not None:
                runs[rank, line["run"]].append(line["held"])
    longest = max(runs.values(), key=len)
    third = max(1, len(longest) // 3)
    early, late = longest[third : 2 * third] or longest, longest[-third:]
    megabytes = [max(held["bytes"] for held in part) // 1_000_000 for part in (early, late)]
    files = [max(held["files"] for held in part) for part in (early, late)]
    return (megabytes[0], megabytes[1]), (files[0], files[1])


@contextlib.contextmanager
def most_bytes_in(folder: Path) -> Iterator[list[int]]:
    """Watch a folder, and keep the most bytes of files that it has held."""
    most, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            total = 0
            for path in folder.glob("*") if folder.is_dir() else ():
                with contextlib.suppress(FileNotFoundError):
                    total += path.stat().st_size
            most[0] = max(most[0], total)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        done.set()
        watcher.join()
