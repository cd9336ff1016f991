"""How one order becomes batches: positions to ranks, workers and rows; tails; the default lanes and block. Pure.

Owns steps 5, 7, 9, 11 and 13 of ORDER.md and its constraint (R divides L, L divides B). A position is a number of
samples of the epoch, counted over all ranks; every batch is a range of positions, so a position is all a resume needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from shardkit import counted
from wdsloader.config import LoaderConfig, Tail
from wdsloader.errors import ConfigError
from wdsloader.order import Int64s
from wdsloader.state import LoaderState

__all__ = ["LISTED", "Plan", "choose_block", "choose_lanes", "first_state"]

# The number of lanes of an order that is no shuffle: samples come as listed.
LISTED = 0
# The default L and W by source kind. Of remote shards the first batch waits for most of L blocks of W samples.
_LOCAL_LANES, _REMOTE_LANES = (16, 64), (4, 8)
_SMALLEST_BLOCK, _BUFFERED_SAMPLES = 32, 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Who delivers which positions of an epoch of ``num_samples``.

    ``batch_size`` is the global one (B); ``lanes`` is L, or ``LISTED``; ``rank`` of ``world_size`` is this process.
    """

    num_samples: int
    batch_size: int
    lanes: int
    tail: Tail
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(f"rank={self.rank}: must be in [0, {self.world_size})")
        if self.batch_size % self.world_size:
            raise ConfigError(
                f"a global batch of {self.batch_size} does not divide over {self.world_size} ranks; "
                f"{_near(self.batch_size, self.world_size)} would"
            )
        if self.num_samples < 1:
            raise ConfigError("no samples: there is nothing to make batches of")
        if self.lanes != LISTED:
            require_lanes(self.lanes, batch_size=self.batch_size, world_size=self.world_size)
        if self.tail == "ragged" and self.world_size > 1:
            raise ConfigError(f"tail='ragged' works with one rank, not {self.world_size}: use 'pad' or 'drop'")
        if self.tail == "drop" and self.num_samples < self.batch_size:
            raise ConfigError(
                f"no whole batch in {counted(self.num_samples, 'sample')}: a global batch has {self.batch_size}. Use a "
                f"batch of at most {self.num_samples} (--batch-size); in Python tail='pad' fills it up instead"
            )

    @property
    def rows_per_rank(self) -> int:
        """The number of rows of this rank in a whole batch."""
        return self.batch_size // self.world_size

    def steps_from(self, position: int) -> int:
        """Return the number of batches from a position to the end of the epoch."""
        left = max(0, self.num_samples - position)
        return left // self.batch_size if self.tail == "drop" else -(-left // self.batch_size)

    def after(self, position: int) -> int:
        """Return the position behind the batch that starts at ``position``."""
        return min(position + self.batch_size, self.num_samples)

    def rows(self, position: int) -> int:
        """Return the number of this rank's rows in the batch that starts at ``position``: fewer only when ragged."""
        return self.after(position) - position if self.tail == "ragged" else self.rows_per_rank

    def positions(self, position: int) -> Int64s:
        """Return the position of every row of this rank in the batch that starts there; from N on: a masked row."""
        rows = np.arange(self.rows(position))
        if self.lanes == LISTED:
            return position + self.rank * self.rows_per_rank + rows
        return position + self.rank + self.world_size * rows

    def usable_workers(self, num_workers: int) -> int:
        """Return how many of the workers have rows to fill: at most one a lane of the rank."""
        return min(num_workers, self.lanes // self.world_size if self.lanes else self.rows_per_rank)

    def rows_of_worker(self, worker: int, *, num_workers: int, position: int) -> Int64s:
        """Return the rows a worker fills in the batch that starts at ``position``, the same lanes in every batch."""
        rows = np.arange(self.rows(position))
        if self.lanes == LISTED:
            # Neighbours in the list lie side by side in the shard.
            return np.array_split(rows, num_workers)[worker]
        mine: Int64s = rows[rows % (self.lanes // self.world_size) % num_workers == worker]
        return mine

    def require_resumable(self, position: int) -> None:
        """Check that batches can restart at a position.

        Raises: ConfigError: outside of the epoch, or inside of a round of the lanes.
        """
        if not 0 <= position <= self.num_samples:
            raise ConfigError(f"position {position} is outside of the epoch's {counted(self.num_samples, 'sample')}")
        if self.lanes and position % self.lanes and position != self.num_samples:
            raise ConfigError(f"position {position} is no multiple of the {self.lanes} lanes: no batch starts there")


def first_state(
    config: LoaderConfig,
    *,
    digest: str | None,
    num_shards: int | None,
    packed_shuffled: bool,
    remote: bool,
    world_size: int,
) -> LoaderState:
    """Return the state at the start of a run: the order, its open settings decided by the default rules.

    Args: num_shards: None in the inexact mode, which has no lanes.
    """
    batch = config.batch_size * world_size
    state = LoaderState(
        digest=digest,
        seed=config.seed,
        epoch=0,
        position=0,
        lanes=LISTED,
        spans_per_lane=1,
        block=1,
        batch=batch,
        resampled=config.epoch_samples,
        cut=config.cut,
    )
    if num_shards is None or not config.shuffle:
        return state
    lanes = config.lanes or choose_lanes(batch, world_size=world_size, remote=remote)
    block = config.block or choose_block(
        lanes=lanes,
        spans_per_lane=config.spans_per_lane,
        num_shards=num_shards,
        packed_shuffled=packed_shuffled,
        remote_batch=batch if remote else None,
    )
    return replace(state, lanes=lanes, spans_per_lane=config.spans_per_lane, block=block)


def choose_lanes(batch_size: int, *, world_size: int, remote: bool = False) -> int:
    """Return the default L: the largest divisor of B in 16..64 that R divides, else the smallest above, else B.

    Remote shards: in 4..8.
    """
    fewest, most = _REMOTE_LANES if remote else _LOCAL_LANES
    fitting = _fitting_lanes(batch_size, world_size)
    middle = [lanes for lanes in fitting if fewest <= lanes <= most]
    above = [lanes for lanes in fitting if lanes > most]
    return middle[-1] if middle else above[0] if above else batch_size


def choose_block(
    *, lanes: int, spans_per_lane: int, num_shards: int, packed_shuffled: bool, remote_batch: int | None = None
) -> int:
    """Return the default W: 1 for many shards packed in shuffled order, else enough to mix few shards.

    Args: remote_batch: B where shards are remote: W is half more than a batch takes of a lane, and odd: a block that
        is one batch, which a last block could be, makes the same batch every epoch.
    """
    if packed_shuffled and num_shards >= lanes * spans_per_lane:
        return 1
    if remote_batch is not None:
        of_lane = remote_batch // lanes
        return max(_SMALLEST_BLOCK, of_lane + of_lane // 2) | 1
    return max(_SMALLEST_BLOCK, _BUFFERED_SAMPLES // lanes)


def require_lanes(lanes: int, *, batch_size: int, world_size: int) -> None:
    """Check ORDER.md's constraint. Raises: ConfigError: it names the nearest values that fit."""
    if lanes % world_size == 0 and batch_size % lanes == 0:
        return
    fitting = _fitting_lanes(batch_size, world_size)
    nearest = [f for f in fitting if f < lanes][-1:] + [f for f in fitting if f > lanes][:1]
    choices = " or ".join(str(f) for f in nearest)
    if lanes % world_size:
        broken = f"{world_size} ranks do not divide {lanes} lanes"
        batches = f"{_near(lanes, world_size)} lanes serve {world_size} ranks"
    else:
        broken = f"{lanes} lanes do not divide the global batch of {batch_size}"
        batches = f"with {lanes} lanes a global batch of {_near(batch_size, lanes)} fits"
    raise ConfigError(f"{broken}. Of the lanes, {choices} fit this batch and these ranks; {batches}")


def _fitting_lanes(batch_size: int, world_size: int) -> list[int]:
    """Return every L that R divides and that divides B, ascending."""
    per_rank = batch_size // world_size
    # Up to the root alone: a huge batch that no dataset fills is refused in no time too.
    small = [d for d in range(1, math.isqrt(per_rank) + 1) if per_rank % d == 0]
    return [world_size * d for d in sorted({*small, *(per_rank // d for d in small)})]


def _near(value: int, divisor: int) -> str:
    """Return the multiples of ``divisor`` on both sides of ``value``, as words."""
    below = value // divisor * divisor
    return f"{below} or {below + divisor}" if below else str(divisor)
