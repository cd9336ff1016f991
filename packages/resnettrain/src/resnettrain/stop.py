"""Signals that ask a run to stop: a flag only, read by the loop between two steps.

The handlers are in place inside `with StopRequest()` and the earlier ones come back after it.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

__all__ = ["StopRequest"]

log = logging.getLogger(__name__)

# A second press within this time means the first one; after it, it means "now".
_PATIENCE_S = 2.0


class StopRequest:
    """The flag that SIGINT and SIGTERM raise; `signal` is the number of the first one, None before.

    A signal that comes more than two seconds after the first raises KeyboardInterrupt, so that a hanging read can be
    left. Handlers can be set in the main thread only; elsewhere the flag is raised with `ask`.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.signal: int | None = None
        self._clock = clock
        self._asked_at = 0.0
        self._earlier: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
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
