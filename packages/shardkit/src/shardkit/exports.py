"""The index in the formats of other tools: DALI's ``.idx``, wids' JSON, ``sizes.json``. Pure: indexes in, bytes out.

DALI: a line ``v1.2 N``, then a line a sample with ``extension offset size name`` of each member, offsets of contents.
wids: one JSON object of kind ``wids-shard-index-v1``. ``sizes.json``: shard name -> number of samples.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from shardkit.errors import ExportError, printable
from shardkit.index import ShardIndex, shard_name
from shardkit.locations import is_url

__all__ = ["WidsShard", "dali_index", "dali_name", "read_sizes", "sizes_json", "wids_json", "wids_url"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WidsShard:
    """What a wids index says of one shard; ``url`` is relative to the index file, or absolute."""

    url: str
    md5: str
    num_samples: int
    num_bytes: int


def dali_name(shard: str) -> str:
    """Return the name that DALI's own tool gives to a shard's index: ``a-0.tar`` has ``a-0.idx``."""
    stem = shard.partition(".")[0] if not shard.startswith(".") else "." + shard[1:].partition(".")[0]
    return stem + ".idx"


def dali_index(index: ShardIndex) -> bytes:
    """Return the shard's index for DALI's webdataset reader, version 1.2.

    Members that belong to no sample are left out, and extensions are in lower case, as everywhere here.
    Raises: ExportError: no samples, or a name with white space: that format cannot hold either.
    """
    if not index.num_samples:
        raise ExportError(f"{index.shard}: no samples, and DALI refuses an index without any")
    lines = [f"v1.2 {index.num_samples}"]
    for row, key in enumerate(index.keys):
        parts = []
        # As they lie in the shard.
        for column in np.argsort(index.member_offsets[row], kind="stable").tolist():
            offset, size = int(index.member_offsets[row, column]), int(index.member_sizes[row, column])
            if offset < 0:
                continue
            name = f"{key}.{index.extensions[column]}"
            if len(name.split()) != 1 or name.strip() != name:
                what = f"'{printable(name)}' has white space in its name, which DALI's index cannot hold"
                raise ExportError(f"{index.shard}: {what}. Rename the members: pack the shard again")
            parts.append(f"{index.extensions[column]} {offset} {size} {name}")
        lines.append(" ".join(parts))
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def wids_json(shards: Iterable[WidsShard], *, name: str) -> bytes:
    """Return the index of a dataset for wids, version 1."""
    document = {
        "__kind__": "wids-shard-index-v1",
        "wids_version": 1,
        "name": name,
        "shardlist": [
            {"url": s.url, "md5sum": s.md5, "nsamples": s.num_samples, "filesize": s.num_bytes} for s in shards
        ],
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def wids_url(location: str) -> str:
    """Return a shard's place for wids: its name, beside the index; or its URL, without user, password and signature."""
    if not is_url(location):
        return shard_name(location)
    scheme, _, rest = re.split("[?#]", location, maxsplit=1)[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def sizes_json(sizes: Mapping[str, int]) -> bytes:
    """Return ``sizes.json``: the number of samples of each shard by its file name, sorted."""
    return json.dumps(dict(sorted(sizes.items())), indent=1).encode() + b"\n"


def read_sizes(data: bytes) -> dict[str, int]:
    """Return what a ``sizes.json`` says. Raises: ExportError: it is none."""
    try:
        sizes = json.loads(data)
        if not isinstance(sizes, dict) or not all(type(count) is int for count in sizes.values()):
            raise ValueError("it is no object of numbers")
    except (ValueError, RecursionError) as error:
        raise ExportError(f"not a sizes.json ({error})") from error
    return sizes
