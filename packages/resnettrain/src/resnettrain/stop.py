"""Requests to stop, and how the ranks agree on the step at which they heed one.

A signal raises a flag only, read by the loop between two steps; the handlers are in place inside `with StopRequest()`
and the earlier ones come back after it.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

from resnettrain.distributed import PendingMax, Ranks

__all__ = ["LOOK", "SAVE", "TIME_IS_UP", "Agreement", "StopRequest"]

log = logging.getLogger(__name__)

# What a rank may ask the others for beside a signal's number. The largest is heeded. So nothing is lost where SAVE, the
# least, is not: whatever else is asked ends the run with a checkpoint, or with an error.
SAVE, TIME_IS_UP, LOOK = -2, -1, 1000
_NOTHING = -3
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
# A second press within this time means the first one; after it, it means "now".
_PATIENCE_S = 2.0


class StopRequest:
    """The flag that SIGINT, SIGTERM and SIGUSR1 raise; `signal` is the number of the first one, None before.

    A signal that comes more than two seconds after the first raises KeyboardInterrupt, so that a hanging read can be
    left. Handlers can be set in the main thread only; elsewhere the flag is raised with `ask`.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.signal: int | None = None
        self._clock = clock
        self._made_at = clock()
        self._asked_at = 0.0
        self._earlier: dict[int, object] = {}

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since this was made."""
        return self._clock() - self._made_at

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._earlier[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal returned
        self._earlier.clear()

    def ask(self, number: int) -> None:
        """Raise the flag as signal `number` would; a later, impatient one raises KeyboardInterrupt."""
        if self.signal is None:
            self.signal, self._asked_at = number, self._clock()
        elif self._clock() - self._asked_at > _PATIENCE_S:
            raise KeyboardInterrupt

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.ask(number)


class Agreement:
    """One answer on all ranks, at the same step of each, to what any of them asks for.

    The question of one step is read `every` steps later, when all ranks have answered it, so that no step waits.
    """

    def __init__(self, ranks: Ranks, *, every: int) -> None:
        self._ranks, self._every = ranks, every
        self._polls = 0
        self._pending: PendingMax | None = None

    def poll(self, asked: int | None) -> int | None:
        """Return what is to be done at this step boundary: a signal's number, TIME_IS_UP, LOOK, SAVE, or None.

        Every rank calls it equally often. Args: asked: what this rank asks for.
        """
        if self._ranks.is_alone:
            return asked
        self._polls += 1
        if self._polls % self._every:
            return None
        agreed = _NOTHING if self._pending is None else self._pending.read()
        self._pending = None
        if agreed == _NOTHING:
            self._pending = self._ranks.start_max(_NOTHING if asked is None else asked)
            return None
        return agreed

    def close(self) -> None:
        """Read the last answer, so that no rank leaves while another one waits for it."""
        if self._pending is not None:
            self._pending.read()
            self._pending = None
