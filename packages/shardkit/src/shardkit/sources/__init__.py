"""Where samples to pack come from. Each source numbers its samples and makes any of them alone; it writes nothing."""

from __future__ import annotations

from shardkit.sources.fake import FakeSource
from shardkit.sources.folder import FolderSource, open_folder
from shardkit.sources.ilsvrc import IlsvrcSource, open_ilsvrc_train, open_ilsvrc_val
from shardkit.sources.selection import Selection, parse_labels
from shardkit.sources.shards import ShardsSource, open_shards, reopen_shards
from shardkit.sources.source import Source, SourceSample
from shardkit.sources.table import TableSource, open_table
from shardkit.sources.table_rows import Columns

__all__ = [
    "Columns",
    "FakeSource",
    "FolderSource",
    "IlsvrcSource",
    "Selection",
    "ShardsSource",
    "Source",
    "SourceSample",
    "TableSource",
    "open_folder",
    "open_ilsvrc_train",
    "open_ilsvrc_val",
    "open_shards",
    "open_table",
    "parse_labels",
    "reopen_shards",
]
