"""Memory for batches, as a loader would lend it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wdsloader.config import LoaderConfig
from wdsloader.decode import Uint8s
from wdsloader.encoded import slot_shape

__all__ = ["fresh_slots"]


def fresh_slots(config: LoaderConfig) -> Iterator[Uint8s]:
    """Yield arrays for one batch each, all new, full of what was there before."""
    while True:
        yield np.full(slot_shape(config), 205, np.uint8)
