"""The settings of the cache of remote shards: frozen, validated once, the same in every process."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from wdsloader.errors import ConfigError

__all__ = ["CacheCheck", "CacheConfig", "cache_config", "temporary_cache"]

_UNITS = {"": 1, "B": 1, **{f"{k}B": 1000**n for n, k in enumerate("KMGT", 1)}}
_UNITS |= {f"{k}IB": 1024**n for n, k in enumerate("KMGT", 1)}
_LIMIT = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*|%)", re.ASCII)

CacheCheck = Literal["size", "checksum"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """Where remote shards are kept, and how many.

    ``limit_bytes``, or ``limit_share_of_disk`` in (0, 1]: files used longest ago make room; without either it grows.
    ``ignore_query``: names of a URL's query that do not tell one shard from another (``X-Amz-*``), so that a link
    signed anew finds the file of the old one. ``check``: a kept file is known by its size and the time it was written,
    at no cost; "checksum" also reads each file once a run before its first use. ``ahead_bytes``: how much each process
    fetches before it is asked for.
    """

    folder: Path
    limit_bytes: int | None = None
    limit_share_of_disk: float | None = None
    ignore_query: tuple[str, ...] = ()
    check: CacheCheck = "size"
    ahead_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if self.limit_bytes is not None and self.limit_share_of_disk is not None:
            raise ConfigError("limit_bytes and limit_share_of_disk: give one of the two")
        for name in ("limit_bytes", "ahead_bytes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise ConfigError(f"{name}={value!r}: must be a number of bytes, at least 0")
        share = self.limit_share_of_disk
        if share is not None and not (math.isfinite(share) and 0 < share <= 1):
            raise ConfigError(f"limit_share_of_disk={share!r}: must be above 0 and at most 1")
        names: object = self.ignore_query
        if not isinstance(names, tuple) or not all(names):
            raise ConfigError(f"ignore_query={self.ignore_query!r}: must be names, such as ('X-Amz-*',)")
        if self.check not in get_args(CacheCheck):
            raise ConfigError(f"check={self.check!r}: choose one of {', '.join(get_args(CacheCheck))}")

    def limit(self) -> int | None:
        """Return the limit in bytes, of the disk as it is now; None without one. Raises: OSError: no such folder."""
        if self.limit_share_of_disk is None:
            return self.limit_bytes
        return int(shutil.disk_usage(self.folder).total * self.limit_share_of_disk)


def cache_config(folder: Path, *, limit: str | None = None, ignore_query: tuple[str, ...] = ()) -> CacheConfig:
    """Return the settings with a limit as people write it: ``200GiB``, ``500 MB``, or a share of the disk, ``30%``.

    Raises: ConfigError: no such limit.
    """
    if limit is None:
        return CacheConfig(folder=folder, ignore_query=ignore_query)
    match = _LIMIT.fullmatch(limit.strip())
    if match is not None and match[2] == "%":
        return CacheConfig(folder=folder, limit_share_of_disk=float(match[1]) / 100, ignore_query=ignore_query)
    if match is None or match[2].upper() not in _UNITS:
        raise ConfigError(f"cache limit {limit!r}: write it like 200GiB, 500MB or 30%")
    num_bytes = int(float(match[1]) * _UNITS[match[2].upper()])
    return CacheConfig(folder=folder, limit_bytes=num_bytes, ignore_query=ignore_query)


def temporary_cache(folder: Path) -> CacheConfig:
    """Return the settings of a cache that nobody asked for: it takes up no more than half of what is free now."""
    return CacheConfig(folder=folder, limit_bytes=shutil.disk_usage(folder).free // 2)
