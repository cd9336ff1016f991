"""Make, read and check WebDataset tar shards. Needs no torch; prints nothing; reads no environment."""

from __future__ import annotations

from shardkit.errors import (
    IndexFileError,
    ManifestError,
    OutputExistsError,
    PackError,
    PatternError,
    PictureError,
    ShardkitError,
    ShardReadError,
    printable,
)
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
from shardkit.pictures import MAX_PIXELS, PictureFacts, decode_rgb, load, open_picture, picture_facts, to_rgb
from shardkit.reader import Sample, ShardFile, iter_samples
from shardkit.seeded import Key, seeded_permutation, seeded_words
from shardkit.shardspec import expand_braces, expand_patterns, is_url

__all__ = [
    "INDEX_SUFFIX",
    "LABEL_EXTENSION",
    "MANIFEST_SUFFIX",
    "MAX_PIXELS",
    "PICTURE_EXTENSIONS",
    "IndexFileError",
    "Key",
    "Manifest",
    "ManifestError",
    "OutputExistsError",
    "PackError",
    "PatternError",
    "PictureError",
    "PictureFacts",
    "Sample",
    "SampleKey",
    "ShardFile",
    "ShardIndex",
    "ShardReadError",
    "ShardRecord",
    "ShardkitError",
    "build_index",
    "dataset_digest",
    "decode_rgb",
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
    "open_picture",
    "parse_label",
    "picture_extension",
    "picture_facts",
    "printable",
    "read_index",
    "read_manifest",
    "seeded_permutation",
    "seeded_words",
    "split_name",
    "to_rgb",
    "write_index",
    "write_manifest",
]
