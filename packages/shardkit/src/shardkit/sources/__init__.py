"""Where samples to pack come from. Each source numbers its samples and makes any of them alone; it writes nothing."""

from __future__ import annotations

from shardkit.sources.fake import FakeSource
from shardkit.sources.folder import FolderSource, open_folder
from shardkit.sources.selection import Selection, parse_labels
from shardkit.sources.shards import ShardsSource, open_shards, reopen_shards
from shardkit.sources.source import Source, SourceSample

__all__ = [
    "FakeSource",
    "FolderSource",
    "Selection",
    "ShardsSource",
    "Source",
    "SourceSample",
    "open_folder",
    "open_shards",
    "parse_labels",
    "reopen_shards",
]
