"""A hook that tells which libraries its process has, in a module that imports no torch."""

from __future__ import annotations

import sys

import numpy as np
import threadpoolctl

from wdsloader.decode import Uint8s
from wdsloader.hooks import SampleView

__all__ = ["tell_of_libraries"]


def tell_of_libraries(sample: SampleView, generator: np.random.Generator) -> Uint8s:
    """Return pixels that begin with: whether torch is there; the most threads of any library; whether there is one."""
    pools = threadpoolctl.threadpool_info()
    assert sample.image is not None
    image = sample.image.copy()
    image[0, 0] = "torch" in sys.modules, max((pool["num_threads"] for pool in pools), default=0), bool(pools)
    return image
