"""Make, read and check WebDataset tar shards. Needs no torch; prints nothing; reads no environment."""

from __future__ import annotations

from shardkit.atomic import atomic_file, exclusive, remove_leftovers, write_atomically
from shardkit.class_names import class_names
from shardkit.contact_sheet import contact_sheet
from shardkit.errors import (
    IndexFileError,
    ManifestError,
    OutputExistsError,
    PackError,
    PatternError,
    PictureError,
    RemoteChangedError,
    RemoteError,
    ReportError,
    ShardkitError,
    ShardReadError,
    SourceError,
    UnknownRuleError,
    UnusableSourcesError,
    WorkerDiedError,
    printable,
)
from shardkit.fake_imagenet import FakeImageNet
from shardkit.header import begins_archive
from shardkit.index import (
    INDEX_SUFFIX,
    ShardIndex,
    build_index,
    file_checksum,
    index_from_json,
    index_path_of,
    read_index,
    write_index,
)
from shardkit.keys import LABEL_EXTENSION, PICTURE_EXTENSIONS, SampleKey, picture_extension, split_name
from shardkit.labels import parse_label
from shardkit.locations import is_command, is_url, is_web, mask_url, mask_urls, scheme_of
from shardkit.manifest import (
    MANIFEST_SUFFIX,
    Manifest,
    ShardRecord,
    dataset_digest,
    manifest_from_json,
    manifests_in,
    read_manifest,
    write_manifest,
)
from shardkit.pack import PackConfig, ShardPlan, existing_output, pack, plan_shards
from shardkit.patience import RemoteLimits
from shardkit.pictures import MAX_PIXELS, PictureFacts, decode_rgb, load, open_picture, picture_facts, to_rgb
from shardkit.reader import Sample, ShardFile, iter_samples, parse_sample
from shardkit.remote import RemotePool, RemoteStream
from shardkit.report import html_report
from shardkit.rules import RULES, Finding, Rule, Severity, find_rule
from shardkit.salvage import Salvage, salvage_index
from shardkit.seeded import Key, seeded_permutation, seeded_words
from shardkit.shardspec import expand_braces, expand_patterns
from shardkit.sources import FakeSource, FolderSource, Source, SourceSample, open_folder
from shardkit.summary import Extent, ShardSummary, combined
from shardkit.tiles import Tile, TileOptions, tiles_of
from shardkit.together import SetOptions, check_together
from shardkit.validate import CheckOptions, ShardReport, check_shards
from shardkit.writer import ShardWriter

__all__ = [
    "INDEX_SUFFIX",
    "LABEL_EXTENSION",
    "MANIFEST_SUFFIX",
    "MAX_PIXELS",
    "PICTURE_EXTENSIONS",
    "RULES",
    "CheckOptions",
    "Extent",
    "FakeImageNet",
    "FakeSource",
    "Finding",
    "FolderSource",
    "IndexFileError",
    "Key",
    "Manifest",
    "ManifestError",
    "OutputExistsError",
    "PackConfig",
    "PackError",
    "PatternError",
    "PictureError",
    "PictureFacts",
    "RemoteChangedError",
    "RemoteError",
    "RemoteLimits",
    "RemotePool",
    "RemoteStream",
    "ReportError",
    "Rule",
    "Salvage",
    "Sample",
    "SampleKey",
    "SetOptions",
    "Severity",
    "ShardFile",
    "ShardIndex",
    "ShardPlan",
    "ShardReadError",
    "ShardRecord",
    "ShardReport",
    "ShardSummary",
    "ShardWriter",
    "ShardkitError",
    "Source",
    "SourceError",
    "SourceSample",
    "Tile",
    "TileOptions",
    "UnknownRuleError",
    "UnusableSourcesError",
    "WorkerDiedError",
    "atomic_file",
    "begins_archive",
    "build_index",
    "check_shards",
    "check_together",
    "class_names",
    "combined",
    "contact_sheet",
    "dataset_digest",
    "decode_rgb",
    "exclusive",
    "existing_output",
    "expand_braces",
    "expand_patterns",
    "file_checksum",
    "find_rule",
    "html_report",
    "index_from_json",
    "index_path_of",
    "is_command",
    "is_url",
    "is_web",
    "iter_samples",
    "load",
    "manifest_from_json",
    "manifests_in",
    "mask_url",
    "mask_urls",
    "open_folder",
    "open_picture",
    "pack",
    "parse_label",
    "parse_sample",
    "picture_extension",
    "picture_facts",
    "plan_shards",
    "printable",
    "read_index",
    "read_manifest",
    "remove_leftovers",
    "salvage_index",
    "scheme_of",
    "seeded_permutation",
    "seeded_words",
    "split_name",
    "tiles_of",
    "to_rgb",
    "write_atomically",
    "write_index",
    "write_manifest",
]
