"""Write the samples of shards into other shards: split, merge, filter, sample, relabel, convert, shuffle.

Resharding is packing with shards as the source; here is only what must be refused because input and output are alike.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from shardkit.errors import PackError
from shardkit.pack_config import PackConfig

__all__ = ["require_apart"]


def require_apart(paths: Sequence[str], config: PackConfig) -> None:
    """Raise PackError if an input lies in the output folder under the output's prefix: it would be overwritten."""
    ours = re.compile(re.escape(config.prefix) + r"-\d{6,}\.tar")
    folder = os.path.realpath(config.folder)
    for path in paths:
        # The name as it is given and the file that a link leads to: neither may be replaced.
        for place in (Path(os.path.abspath(path)), Path(os.path.realpath(path))):
            if os.path.realpath(place.parent) == folder and ours.fullmatch(place.name):
                raise PackError(
                    f"{path}: an input in the folder of the output, under the same prefix '{config.prefix}'. "
                    "Choose another folder or prefix"
                )
