"""Notice that another rank has failed or is gone, while this one waits for it, and end this process with the reason.

A rank that fails says why before it leaves; one that vanishes (a kill, a lost host) stops to beat. Each rank watches
the next one, so that the work is the same for any number of ranks. All of it goes through torch's store.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from datetime import timedelta

from torch.distributed.distributed_c10d import PrefixStore, Store

from resnettrain.rank import Rank

__all__ = ["Watch"]

log = logging.getLogger(__name__)

_FAILED, _DONE = "failed", b"done"


class Watch:
    """The beat of this rank, and the ear for the others.

    Args: begin_s: without a beat for so long a rank is gone, up to `settle`: loading libraries and compiling may keep
    a thread from its turn.  silent_s: the same from then on.  leave_s: how long the main thread, which may hang in a
    collective that nobody will finish, gets to leave by itself. The last two together are below the half minute in
    which the death of one rank has to end the others.
    """

    def __init__(
        self, store: Store, place: Rank, *, every_s: float = 1.0, begin_s: float = 120.0, silent_s: float = 15.0,
        leave_s: float = 5.0,
    ) -> None:  # fmt: skip
        # A connection of its own where torch can: the main thread may wait for the store for minutes.
        self._store = PrefixStore("watch", store.clone() if hasattr(store, "clone") else store)
        self._store.set_timeout(timedelta(seconds=silent_s))
        self._place, self._next = place, (place.rank + 1) % place.world_size
        self._every_s, self._limit_s, self._silent_s, self._leave_s = every_s, begin_s, silent_s, leave_s
        self._ended = threading.Event()
        self._news: str | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        for key in (_FAILED, _beat(place.rank), _beat(self._next)):
            self._store.compare_set(key, "", "")
        self._thread.start()

    def settle(self) -> None:
        """Note that this rank has made a first step, so that all of them are at work."""
        self._limit_s = self._silent_s

    def publish(self, text: str) -> None:
        """Say why this rank leaves; the first word is the one that counts, as the others follow from it."""
        with contextlib.suppress(Exception):  # with the store gone, nobody can be told
            self._store.compare_set(_FAILED, "", f"rank {self._place.rank}: {text}")

    def news(self, *, wait_s: float) -> str | None:
        """Return what the first failing rank said, or None after `wait_s`."""
        end = time.monotonic() + wait_s
        while self._news is None and time.monotonic() < end:
            with contextlib.suppress(Exception):  # with the store gone, there is no news
                self._news = self._store.get(_FAILED).decode() or None
            time.sleep(0.05 if self._news is None else 0)
        return self._news

    def close(self) -> None:
        """Stop beating, for good."""
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(Exception):  # whoever held the store may have ended already
            self._store.set(_beat(self._place.rank), _DONE.decode())

    def _run(self) -> None:
        beat, heard, changed_at = 0, b"", time.monotonic()
        reached_at = changed_at
        while not self._ended.wait(self._every_s):
            beat += 1
            now, limit_s = time.monotonic(), self._limit_s
            try:
                self._store.set(_beat(self._place.rank), str(beat))
                self._news = self._store.get(_FAILED).decode() or None
                next_beat = self._store.get(_beat(self._next))
                reached_at = time.monotonic()
            except Exception:  # noqa: BLE001  # whatever the reason, the store cannot be reached
                if now - reached_at > limit_s:
                    self._news = f"the host of the rendezvous cannot be reached for {limit_s:.0f} s"
            else:
                if next_beat not in (heard, _DONE):
                    heard, changed_at = next_beat, now
                elif next_beat != _DONE and now - changed_at > limit_s:
                    self.publish(f"rank {self._next} has given no sign of life for {limit_s:.0f} s")
            if self._news is not None:
                break
        if self._news is not None and not self._ended.wait(self._leave_s):
            log.critical("%s. This rank waited for it and ends.", self._news)
            logging.shutdown()
            os._exit(1)


def _beat(rank: int) -> str:
    return f"beat-{rank}"
