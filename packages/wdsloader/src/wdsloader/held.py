"""How many bytes of packed samples wait in the lanes of a reader, and what is said when more would.

Past the limit a lane holds nothing more: it reads a sample when its turn comes, so the order stays what it is.
"""

from __future__ import annotations

import logging

from shardkit import Sample

__all__ = ["HeldBytes", "packed_bytes"]

log = logging.getLogger(__name__)


def packed_bytes(content: Sample) -> int:
    """Return the bytes of a sample's members."""
    return sum(map(len, content.members.values()))


class HeldBytes:
    """The bytes that the lanes of one reader hold, at most one sample more than ``limit_bytes``.

    ``num_bytes``: how many there are now.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._num_samples = self.num_bytes = 0
        self._num_lanes = 1
        self._said = False

    def begin(self, *, num_lanes: int) -> None:
        """Begin an epoch, of which so many lanes are read here."""
        self._num_samples = self.num_bytes = 0
        self._num_lanes = num_lanes

    def has_room(self, *, block: int) -> bool:
        """Tell whether one more sample may be held; the first time not, one warning names the block that would fit."""
        if self.num_bytes < self._limit_bytes:
            return True
        if not self._said:
            self._said = True
            sample_bytes = self.num_bytes / self._num_samples
            fitting = max(1, int(self._limit_bytes / sample_bytes / self._num_lanes))
            log.warning(
                "%d lanes with block=%d hold more than buffer_bytes=%d allows (%.1f MiB a sample): the rest "
                "is read when it is due, out of order in its shard, which is slower. "
                "block=%d would fit, or buffer_bytes=%d",
                self._num_lanes,
                block,
                self._limit_bytes,
                sample_bytes / 2**20,
                min(fitting, block),
                int(sample_bytes * self._num_lanes * block) + 1,
            )
        return False

    def add(self, num_bytes: int) -> None:
        """Count a sample that is held from now on."""
        self._num_samples += 1
        self.num_bytes += num_bytes

    def remove(self, num_bytes: int) -> None:
        """Count one that is handed out."""
        self._num_samples -= 1
        self.num_bytes -= num_bytes
