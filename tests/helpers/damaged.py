"""Build shards in which some samples, or all, are damaged."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tests.helpers.shards import sample_members, write_shard

__all__ = ["write_with_bad_pictures"]


def write_with_bad_pictures(path: Path, count: int, *, bad: Collection[int], first: int = 0) -> Path:
    """Write a shard as ``write_samples`` does, the pictures of the samples with these numbers cut short."""
    members = [
        (name, content[:-40] if name.endswith(".jpg") and int(name[:6]) in bad else content)
        for name, content in sample_members(count, first=first)
    ]
    return write_shard(path, members)
