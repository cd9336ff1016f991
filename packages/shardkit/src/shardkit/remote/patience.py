"""How long and how often to try again when something elsewhere does not answer: each wait longer, none equal."""

from __future__ import annotations

import logging
import secrets
import threading
from dataclasses import dataclass

from shardkit.errors import RemoteError, counted
from shardkit.locations import mask_url

__all__ = ["PassingError", "Patience", "RemoteLimits"]

log = logging.getLogger(__name__)

# Workers that were turned away together must not come back together.
_JITTER = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLimits:
    """How long to wait, in seconds, and how often to try again before a body must have gone on."""

    connect_s: float = 10.0
    read_s: float = 60.0
    retries: int = 5
    backoff_s: float = 0.5
    longest_wait_s: float = 60.0


class PassingError(Exception):
    """Something that may be gone at the next try, in words; ``wait_s``: the pause that the server asks for."""

    def __init__(self, reason: str, *, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class Patience:
    """The tries that are left for one body. Args: ended: once it is set, nobody waits any more."""

    def __init__(self, url: str, limits: RemoteLimits, *, ended: threading.Event | None = None) -> None:
        self._url, self._limits = url, limits
        self._ended = ended or threading.Event()
        self._left = limits.retries

    def renew(self) -> None:
        """Begin to count anew: it has gone on."""
        self._left = self._limits.retries

    def wait(self, trouble: PassingError, *, got: str = "") -> None:
        """Say what happened in one log line, and wait before the next try.

        Args: got: what came before, to be said in front of it.
        Raises: RemoteError: that was the last try, or nobody waits any more.
        """
        if self._ended.is_set():
            raise RemoteError(self._url, f"{got}{trouble}; it is wanted no more")
        if not self._left:
            raise RemoteError(
                self._url, f"{got}{trouble} (gave up after {counted(self._limits.retries + 1, 'try/tries')})"
            )
        log.warning(
            "%s: %s%s; trying again (%s left)", mask_url(self._url), got, trouble, counted(self._left, "try/tries")
        )
        longer = 2.0 ** (self._limits.retries - self._left) * (1 + _JITTER * secrets.randbelow(1 << 16) / (1 << 16))
        self._left -= 1
        wait_s = self._limits.backoff_s * longer if trouble.wait_s is None else trouble.wait_s
        if self._ended.wait(min(wait_s, self._limits.longest_wait_s)):
            raise RemoteError(self._url, f"{got}{trouble}; it is wanted no more")
