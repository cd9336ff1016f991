"""Run pairs of loaders against each other: both processes stay, and windows alternate between them.

One is at work at a time; the other is stopped. What it had ready is used up in front of its window. Machines drift by a
fifth within minutes; windows that follow each other within seconds can be compared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.environments import NotInstalled, environment
from bench.peers.matrix import Pair
from bench.peers.registry import PEERS
from bench.peers.runner import Window
from bench.peers.session import PeerFailed, Session, without_kernel
from bench.peers.task import Facts, Peer, Task
from bench.peers.work import Asked, Work, wrongs

__all__ = ["Contest", "Result", "WrongWork", "require_work"]

# In front of a window: more than any loader keeps ready (DataLoader: 2 batches a worker).
_UNCOUNTED = 512
_AT_FIRST = 640
# Two processes start, and one epoch of rulers is checked.
_START_S = 16.0
# Of the mean colour of a few pixels of every batch from that of the whole set, in 0..255.
_COLOUR_TOLERANCE = 15.0


class WrongWork(Exception):  # noqa: N818  # it is what has happened, and no fault of this program
    """A loader did other work than was asked for; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The windows of a pair, round by round; or, where there are none, the reason."""

    pair: Pair
    first: tuple[Window, ...] = ()
    second: tuple[Window, ...] = ()
    reason: str = ""


@dataclass(kw_only=True)
class Contest:
    """Where the data sets are, and how much to measure. ``versions`` and ``works`` fill as pairs are run."""

    data: Path
    environments: Path
    rounds: int
    samples: int
    say: Callable[[str], None]
    versions: dict[str, str] = field(default_factory=dict)
    works: dict[str, Work] = field(default_factory=dict)

    def expected_s(self, pair: Pair) -> float:
        """Return about how many seconds the pair will take, at the rates seen when this was written."""
        slower = {1: 2.0}
        cost = slower.get(pair.cell.num_workers, 1.0) / PEERS[pair.first].rate
        cost += slower.get(pair.second_workers or pair.cell.num_workers, 1.0) / PEERS[pair.second].rate
        return _START_S + self.rounds * (self.samples + _UNCOUNTED) * cost

    def run(self, pair: Pair) -> Result:
        """Measure one pair; a loader that is not there, fails or does other work is a result with a reason."""
        try:
            with ExitStack() as ends:
                return self._run(pair, ends)
        except (NotInstalled, PeerFailed, WrongWork) as reason:
            return Result(pair=pair, reason=str(reason))

    def _run(self, pair: Pair, ends: ExitStack) -> Result:
        peers = (PEERS[pair.first], PEERS[pair.second])
        workers = (pair.cell.num_workers, pair.second_workers or pair.cell.num_workers)
        sessions = [ends.enter_context(self._start(peer)) for peer in peers]
        for session in sessions:
            self.versions.update(session.versions())
        tasks = []
        for session, num_workers in zip(sessions, workers, strict=True):
            for name in ("rulers", "real"):
                session.prepare(self.data / name)
            self._check(session, image_size=pair.cell.image_size, num_workers=num_workers)
            tasks.append(self._task("real", session.peer, image_size=pair.cell.image_size, num_workers=num_workers))
        for session, task in zip(sessions, tasks, strict=True):
            session.open(task)
            session.window(uncounted=_AT_FIRST, samples=1)
        facts = Facts.of(self.data / "real")
        windows: tuple[list[Window], list[Window]] = ([], [])
        for number in range(self.rounds):
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                window = sessions[side].window(uncounted=_UNCOUNTED, samples=self.samples)
                _require_window(window, peers[side], facts=facts)
                windows[side].append(window)
        return Result(pair=pair, first=tuple(windows[0]), second=tuple(windows[1]))

    def _start(self, peer: Peer) -> Session:
        if peer.requirements:
            python = environment(self.environments, peer.requirements, say=self.say)
            return Session(peer, python=python, search_path=())
        ours = [Path(entry) for entry in sys.path if entry]
        if peer.without_kernel:
            ours.insert(0, without_kernel(self.data / "without-kernel"))
        return Session(peer, python=Path(sys.executable), search_path=ours)

    def _check(self, session: Session, *, image_size: int, num_workers: int) -> None:
        """Have the peer deliver the rulers once, unless it has been checked at this size and with these workers."""
        peer = session.peer
        key = f"{peer.name} {image_size} px {num_workers} workers"
        if key in self.works or peer.name == "floor":
            return
        task = self._task("rulers", peer, image_size=image_size, num_workers=num_workers, endless=False)
        self.works[key] = work = session.work(task)
        require_work(work, peer, task=task)

    def _task(self, name: str, peer: Peer, *, image_size: int, num_workers: int, endless: bool = True) -> Task:
        data = self.data / name
        return Task(data=data, dtype=peer.dtype, image_size=image_size, num_workers=num_workers, endless=endless)


def require_work(work: Work, peer: Peer, *, task: Task) -> None:
    """Raises: WrongWork: it is not one epoch of what the task asks for, each sample once."""
    asked = Asked(
        num_samples=task.num_samples,
        image_size=task.image_size,
        dtype=task.dtype,
        draws=peer.draws,
        drops=peer.drops,
    )
    found = wrongs(work, asked)
    if found:
        raise WrongWork(f"{peer.title}: other work than was asked for: {'; '.join(found)}")


def _require_window(window: Window, peer: Peer, *, facts: Facts) -> None:
    low, high = window.labels
    if not 0 <= low <= high < facts.num_samples:
        raise WrongWork(f"{peer.title}: labels {low} to {high} of {facts.num_samples} samples")
    pairs = zip(window.mean_rgb, facts.mean_rgb, strict=True) if window.mean_rgb else ()
    if any(abs(mean - expected) > _COLOUR_TOLERANCE for mean, expected in pairs):
        shown = [round(value) for value in window.mean_rgb]
        raise WrongWork(f"{peer.title}: mean colour {shown}, of the set {[round(value) for value in facts.mean_rgb]}")
