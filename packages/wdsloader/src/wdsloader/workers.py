"""The worker processes of one loader: batches are ordered ahead, into shared memory, and handed out in turn.

Pixels stay where a worker has written them; what crosses a pipe are numbers of slots, and labels and keys. Whoever is
interrupted in the middle closes this and starts anew from the state. Numpy, no torch.
"""

from __future__ import annotations

import math
import pickle
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from wdsloader.assembly import Part
from wdsloader.decode import Uint8s
from wdsloader.encoded import slot_shape
from wdsloader.errors import ConfigError, WorkerError
from wdsloader.pipeline import WorkerTask
from wdsloader.processes import (
    WorkerProcess,
    describe_death,
    end_processes,
    main_can_be_run_again,
    needs_main,
    require_own,
    start_process,
    this_process,
    warn_of_little_memory,
    worker_context,
)
from wdsloader.slots import Pin, Shape, Slot, SlotPool
from wdsloader.worker_process import Answer, Ended, Job, Task, end_orders, order_part, parts_of, work

__all__ = ["Filled", "Task", "Workers"]

# So many batches are ordered of a worker, the one that is waited for among them.
_AHEAD = 3


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """A batch as the workers left it.

    ``memory``: uint8 of ``slot_shape``, lent. ``parts``: what each worker says of the rows it has filled.
    """

    memory: Uint8s
    parts: list[Part]


class Workers:
    """The batches of one task, from worker processes or (none) from this one.

    The first batch of local shards is made in this process, while the fork server starts; the second waits for workers.
    Args: pin: registers the memory of batches with a device.
    """

    def __init__(self, task: Task, num_workers: int, *, pin: Pin | None = None) -> None:
        self._task, self._num_workers, self._pin = task, num_workers, pin
        self._shape: Shape = slot_shape(task.config)
        self._pool = SlotPool(self._shape, pin=pin)
        self._here: _Here | None = None
        self._members: list[_Member] = []
        self._teams: deque[_Team] | None = None
        self._has_worked = self._is_closed = False
        self._owner = this_process()
        if not num_workers:
            self._here = _Here(task, self._pool)
            return
        self._needs_main = _needs_main(task)
        # Of one batch each worker fills its rows; in the inexact mode each makes whole batches.
        batches = (_AHEAD + 1) * (1 if isinstance(task, WorkerTask) else num_workers)
        warn_of_little_memory(needed_bytes=math.prod(self._shape) * batches)
        self._context = worker_context()
        if isinstance(task, WorkerTask) and task.table.fetcher is None:
            self._here = _Here(task, self._pool)
            self._task = replace(task, state=replace(task.state, position=task.plan.after(task.state.position)))

    def take(self) -> Filled | None:
        """Return the next batch, None at the end. Raises: what ended a worker; WorkerError."""
        if self._is_closed:
            raise WorkerError("the loader was closed, or began another epoch, while this one was read: iterate again")
        if self._num_workers:
            require_own(self._owner)
        if self._here is not None:
            filled = self._here.take()
            if self._num_workers:
                self._here.close()
                self._here = None
            return filled
        if self._teams is None:
            self._teams = self._start()
        while self._teams:
            for team in self._teams:
                self._order(team)
            while not self._teams[0].is_ready:
                self._receive(self._teams)
            filled = self._teams[0].take()
            if filled is not None:
                self._teams.rotate(-1)
                return filled
            self._teams.popleft()
        return None

    def close(self) -> None:
        """End the processes, unless they are those of the process that this one was forked from; once."""
        self._is_closed = True
        if self._here is not None:
            self._here.close()
        if self._owner == this_process():
            for member in self._members:
                end_orders(member.pipe)
            end_processes([member.process for member in self._members])
        self._here, self._members, self._teams = None, [], deque()

    def _start(self) -> deque[_Team]:
        pickled = pickle.dumps(self._task)
        kind = self._context.Process if self._needs_main else WorkerProcess
        for worker in range(self._num_workers):
            ours, theirs = self._context.Pipe()
            job = Job(
                pickled=pickled, worker=worker, num_workers=self._num_workers, shape=self._shape, owner=self._owner
            )
            process = kind(target=work, args=(theirs, job), name=f"loader worker {worker}", daemon=True)
            start_process(process)
            self._members.append(_Member(process, ours))
            theirs.close()
        if isinstance(self._task, WorkerTask):
            return deque([_Team(self._members, self._pool)])
        return deque(_Team([member], SlotPool(self._shape, pin=self._pin)) for member in self._members)

    def _order(self, team: _Team) -> None:
        try:
            team.order()
        except OSError as error:
            raise self._death(error) from error

    def _receive(self, teams: deque[_Team]) -> None:
        """Wait for an answer, or a death, and take in what has come."""
        members = [member for team in teams for member in team.members]
        ready = wait([member.pipe for member in members] + [member.process.sentinel for member in members])
        for member in members:
            if member.pipe in ready:
                try:
                    answer: Answer = member.pipe.recv()
                except Exception as error:  # one that is gone breaks the exchange in many ways; none of them is its own
                    raise self._death(error) from error
                member.note(answer)
                self._has_worked = True
            elif member.process.sentinel in ready:
                raise self._death(None)

    def _death(self, cause: Exception | None) -> WorkerError:
        processes = [member.process for member in self._members]
        return WorkerError(describe_death(processes, cause=str(cause), has_worked=self._has_worked))


@dataclass(slots=True, eq=False)
class _Order:
    """A batch that was ordered: where to, and what those who fill it have answered."""

    slot: Slot
    answers: dict[_Member, Answer] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Member:
    """A worker: its process, the way to it, and what it has not answered yet, in order."""

    process: BaseProcess
    pipe: Connection
    unanswered: deque[_Order] = field(default_factory=deque)
    ended: Ended | None = None

    def order(self, order: _Order) -> None:
        """Have it answer an order. Raises: OSError: it is gone."""
        if self.ended is not None:
            order.answers[self] = self.ended
            return
        self.unanswered.append(order)
        order_part(self.pipe, order.slot)

    def note(self, answer: Answer) -> None:
        """Take note of an answer: a part is that to the oldest order, an end that to all."""
        if isinstance(answer, Part):
            self.unanswered.popleft().answers[self] = answer
            return
        self.ended = answer
        while self.unanswered:
            self.unanswered.popleft().answers[self] = answer


@dataclass(slots=True, eq=False)
class _Team:
    """Workers that fill the same batches, each its rows."""

    members: list[_Member]
    pool: SlotPool
    orders: deque[_Order] = field(default_factory=deque)

    @property
    def is_ready(self) -> bool:
        """Whether the next batch is filled."""
        return len(self.orders[0].answers) == len(self.members)

    def order(self) -> None:
        """Order as many batches as there shall be. Raises: OSError: a worker is gone."""
        while len(self.orders) < _AHEAD:
            order = _Order(self.pool.take())
            self.orders.append(order)
            for member in self.members:
                member.order(order)
            order.slot.close_descriptor()

    def take(self) -> Filled | None:
        """Return the next batch, None at the end. Raises: what ended a worker."""
        order = self.orders[0]
        parts: list[Part] = []
        for member in self.members:
            answer = order.answers[member]
            if isinstance(answer, Ended):
                if answer.error is not None:
                    raise answer.error
                return None
            parts.append(answer)
        self.orders.popleft()
        return Filled(self.pool.lend(order.slot), parts)


class _Here:
    """Batches that are made in this process."""

    def __init__(self, task: Task, pool: SlotPool) -> None:
        self._pool = pool
        self._taken: deque[Slot] = deque()
        self._parts = parts_of(task, _slots(pool, self._taken))

    def take(self) -> Filled | None:
        """Return the next batch, None at the end."""
        part = next(self._parts, None)
        return None if part is None else Filled(self._pool.lend(self._taken.popleft()), [part])

    def close(self) -> None:
        """Close every file."""
        self._parts.close()


def _slots(pool: SlotPool, taken: deque[Slot]) -> Iterator[Uint8s]:
    """Yield the pixels of one slot after another, and take note of which they are."""
    while True:
        taken.append(pool.take())
        yield taken[-1].images


def _needs_main(task: Task) -> bool:
    """Tell whether the hooks are the main module's. Raises: ConfigError: they cannot reach another process."""
    found = False
    for name in ("keep", "transform"):
        hook = getattr(task.config, name)
        try:
            found = needs_main(hook) or found
        except Exception as error:
            raise ConfigError(
                f"{name}={hook!r} cannot be sent to the loader's processes ({error}). Use a function defined in a "
                "module, or an object of a class, in place of a lambda; or num_workers=0"
            ) from error
    if found and not main_can_be_run_again():
        raise ConfigError(
            "keep or transform is of a program that is no file (a notebook, python -c, standard input), which workers "
            "cannot run again. Put it into a module and import it; or use num_workers=0"
        )
    return found
