"""Random numbers of training beyond the loader's: drawn on the host from explicit keys, the same on every device.

A key holds the seed, what the numbers are for, and the samples consumed: a resume needs no state of a generator, and
no rank or worker shows in them. Rows of a batch are counted over all ranks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shardkit import Key, seeded_words

__all__ = ["beta", "row_uniforms", "uniforms"]

_FRACTION_BITS = 53
# Of a pair of words one half or more is accepted (Jöhnk with alpha <= 1): all of them fail once in 2**64.
_TRIES = 64


def uniforms(count: int, *, key: Key) -> npt.NDArray[np.float64]:
    """Return float64 (count,), uniform in [0, 1)."""
    words = seeded_words(count, key=key) >> np.uint64(64 - _FRACTION_BITS)
    return words.astype(np.float64) * 2.0**-_FRACTION_BITS


def row_uniforms(num_rows: int, count: int, *, key: Key, rank: int, world_size: int) -> npt.NDArray[np.float64]:
    """Return float64 (num_rows, count) for a rank's rows: every `world_size`-th of the global batch, from `rank`."""
    drawn = uniforms(num_rows * world_size * count, key=key).reshape(num_rows * world_size, count)
    return drawn[rank::world_size]


def beta(alpha: float, *, key: Key) -> float:
    """Return a number of the Beta(alpha, alpha) distribution, in [0, 1].

    Args: alpha: in (0, 1].
    Source: Jöhnk 1964, in logarithms, since u ** (1 / 0.1) underflows.
    """
    logs = np.log1p(-uniforms(2 * _TRIES, key=key)).reshape(_TRIES, 2) / alpha
    sums = np.logaddexp(logs[:, 0], logs[:, 1])
    accepted = np.flatnonzero(sums <= 0)
    if not len(accepted):
        return 0.5
    return float(np.exp(logs[accepted[0], 0] - sums[accepted[0]]))
