"""Python's cycle collector under control: it looks at all objects at moments of our choice, the same on every rank.

Left alone it stops one rank at a time for tens of milliseconds, and all others wait for that one. Source: torchtitan.
"""

from __future__ import annotations

import gc
from typing import Self

__all__ = ["Collector"]


class Collector:
    """Collect every so many updates and not in between; inside `with`, and as it was before afterwards."""

    def __init__(self, *, every: int) -> None:
        self._every = every
        self._was_enabled = False
        self._frozen = False

    def __enter__(self) -> Self:
        self._was_enabled = gc.isenabled()
        if self._every:
            gc.disable()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._frozen:
            gc.unfreeze()
            self._frozen = False
        if self._was_enabled:
            gc.enable()

    def after_update(self, updates: int) -> None:
        """Collect where it is due. What is there after the first update stays, and is not looked at again."""
        if not self._every:
            return
        if not self._frozen:
            gc.collect()
            gc.freeze()
            self._frozen = True
        elif updates % self._every == 0:
            gc.collect()
