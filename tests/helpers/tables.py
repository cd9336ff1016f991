"""Write the table of some shards, as ``wds index --table`` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shardkit import PictureLooks, build_index, sample_rows, table_writer

__all__ = ["write_table"]


def write_table(path: Path, shards: Sequence[Path]) -> Path:
    """Write the table and return its path. Needs pyarrow."""
    with table_writer(path) as table:
        for shard in shards:
            looks = PictureLooks()
            table.write(sample_rows(build_index(shard, on_sample=looks), looks))
    return path
