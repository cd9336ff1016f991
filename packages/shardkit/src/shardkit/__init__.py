"""Make, read and check WebDataset tar shards. Needs no torch; prints nothing; reads no environment."""

from __future__ import annotations

from shardkit.atomic import atomic_file, remove_leftovers, write_atomically
from shardkit.errors import (
    IndexFileError,
    ManifestError,
    OutputExistsError,
    PackError,
    PatternError,
    PictureError,
    ShardkitError,
    ShardReadError,
    SourceError,
    UnusableSourcesError,
    WorkerDiedError,
    printable,
)
from shardkit.fake_imagenet import FakeImageNet
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
from shardkit.pictures import MAX_PIXELS, PictureFacts, decode_rgb, load, open_picture, picture_facts, to_rgb
from shardkit.reader import Sample, ShardFile, iter_samples
from shardkit.rules import RULES, Finding, Rule, Severity
from shardkit.salvage import Salvage, salvage_index
from shardkit.seeded import Key, seeded_permutation, seeded_words
from shardkit.shardspec import expand_braces, expand_patterns, is_url
from shardkit.sources import FakeSource, FolderSource, Source, SourceSample, open_folder
from shardkit.summary import Extent, ShardSummary
from shardkit.validate import CheckOptions, ShardReport, check_shards, check_together, repeated_keys
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
    "Rule",
    "Salvage",
    "Sample",
    "SampleKey",
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
    "UnusableSourcesError",
    "WorkerDiedError",
    "atomic_file",
    "build_index",
    "check_shards",
    "check_together",
    "dataset_digest",
    "decode_rgb",
    "existing_output",
    "expand_braces",
    "expand_patterns",
    "file_checksum",
    "index_from_json",
    "index_path_of",
    "is_url",
    "iter_samples",
    "load",
    "manifest_from_json",
    "manifests_in",
    "open_folder",
    "open_picture",
    "pack",
    "parse_label",
    "picture_extension",
    "picture_facts",
    "plan_shards",
    "printable",
    "read_index",
    "read_manifest",
    "remove_leftovers",
    "repeated_keys",
    "salvage_index",
    "seeded_permutation",
    "seeded_words",
    "split_name",
    "to_rgb",
    "write_atomically",
    "write_index",
    "write_manifest",
]
