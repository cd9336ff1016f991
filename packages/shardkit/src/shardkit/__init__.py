"""Make, read and check WebDataset tar shards. Needs no torch; prints nothing; reads no environment."""

from __future__ import annotations

from shardkit.atomic import (
    atomic_file,
    remove_leftovers,
    write_atomically,
)
from shardkit.catalog import (
    Catalog,
    CatalogOptions,
    catalog_shards,
)
from shardkit.class_names import (
    class_names,
)
from shardkit.contact_sheet import (
    contact_sheet,
)
from shardkit.errors import (
    ExportError,
    IndexFileError,
    ManifestError,
    OutputExistsError,
    PackError,
    PatternError,
    PictureError,
    PlanFileError,
    RemoteError,
    ReportError,
    ShardkitError,
    ShardReadError,
    SourceError,
    TableError,
    UnfinishedPackingError,
    UnknownRuleError,
    UnusableSourcesError,
    WorkerDiedError,
    printable,
)
from shardkit.exports import (
    WidsShard,
    dali_index,
    dali_name,
    read_sizes,
    sizes_json,
    wids_json,
)
from shardkit.fake_imagenet import (
    FakeImageNet,
)
from shardkit.index import (
    INDEX_SUFFIX,
    IndexState,
    ShardIndex,
    build_index,
    file_checksum,
    index_from_json,
    index_path_of,
    index_state,
    read_index,
    shard_name,
    write_index,
)
from shardkit.indexing import (
    IndexedShard,
    IndexOptions,
    index_shards,
    keys_in_several,
)
from shardkit.keys import (
    LABEL_EXTENSION,
    PICTURE_EXTENSIONS,
    SampleKey,
    picture_extension,
    split_name,
)
from shardkit.labels import (
    parse_label,
)
from shardkit.layout import (
    ShardPlan,
    ShardSize,
    parse_shard_size,
    plan_shards,
    planned_bytes,
)
from shardkit.listing import (
    common_prefix,
    read_classes,
)
from shardkit.locations import (
    is_command,
    is_url,
    mask_url,
    mask_urls,
)
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
from shardkit.mending import (
    Change,
)
from shardkit.pack import (
    pack,
    prepare,
    run_plan,
)
from shardkit.pack_config import (
    PLAN_SUFFIX,
    PackConfig,
    existing_output,
    require_outside,
)
from shardkit.pictures import (
    MAX_PIXELS,
    PictureFacts,
    decode_rgb,
    load,
    open_picture,
    picture_facts,
    to_rgb,
)
from shardkit.plan import (
    Slice,
    WrittenPlan,
    parse_slice,
    plan_of,
    read_plan,
    reopen_source,
    write_plan,
)
from shardkit.quarantine import (
    change_document,
)
from shardkit.reader import (
    Sample,
    ShardFile,
    iter_samples,
)
from shardkit.recode import (
    Recode,
    recode_sample,
)
from shardkit.repair import (
    RepairConfig,
    RepairReport,
    repair_shards,
)
from shardkit.report import (
    html_report,
)
from shardkit.reshard import (
    require_apart,
)
from shardkit.rules import (
    RULES,
    Finding,
    Rule,
    Severity,
    find_rule,
)
from shardkit.seeded import (
    Key,
    seeded_permutation,
    seeded_words,
)
from shardkit.shardspec import (
    expand_braces,
    expand_patterns,
)
from shardkit.sources import (
    Columns,
    FakeSource,
    FolderSource,
    IlsvrcSource,
    Selection,
    ShardsSource,
    Source,
    SourceSample,
    TableSource,
    open_folder,
    open_ilsvrc_train,
    open_ilsvrc_val,
    open_shards,
    open_table,
    parse_labels,
)
from shardkit.statistics import (
    Channels,
    Distribution,
    Statistics,
    StatisticsOptions,
    measure_shards,
    measure_table,
)
from shardkit.summary import (
    Extent,
    ShardSummary,
    combined,
)
from shardkit.table import (
    TABLE_COLUMNS,
    PictureLooks,
    is_table,
    read_columns,
    sample_rows,
    table_writer,
)
from shardkit.tiles import (
    Tile,
    TileOptions,
    tiles_of,
)
from shardkit.together import (
    SetOptions,
    check_together,
)
from shardkit.validate import (
    CheckOptions,
    ShardReport,
    check_shards,
)
from shardkit.writer import (
    ShardWriter,
)

__all__ = [
    "INDEX_SUFFIX",
    "LABEL_EXTENSION",
    "MANIFEST_SUFFIX",
    "MAX_PIXELS",
    "PICTURE_EXTENSIONS",
    "PLAN_SUFFIX",
    "RULES",
    "TABLE_COLUMNS",
    "Catalog",
    "CatalogOptions",
    "Change",
    "Channels",
    "CheckOptions",
    "Columns",
    "Distribution",
    "ExportError",
    "Extent",
    "FakeImageNet",
    "FakeSource",
    "Finding",
    "FolderSource",
    "IlsvrcSource",
    "IndexFileError",
    "IndexOptions",
    "IndexState",
    "IndexedShard",
    "Key",
    "Manifest",
    "ManifestError",
    "OutputExistsError",
    "PackConfig",
    "PackError",
    "PatternError",
    "PictureError",
    "PictureFacts",
    "PictureLooks",
    "PlanFileError",
    "Recode",
    "RemoteError",
    "RepairConfig",
    "RepairReport",
    "ReportError",
    "Rule",
    "Sample",
    "SampleKey",
    "Selection",
    "SetOptions",
    "Severity",
    "ShardFile",
    "ShardIndex",
    "ShardPlan",
    "ShardReadError",
    "ShardRecord",
    "ShardReport",
    "ShardSize",
    "ShardSummary",
    "ShardWriter",
    "ShardkitError",
    "ShardsSource",
    "Slice",
    "Source",
    "SourceError",
    "SourceSample",
    "Statistics",
    "StatisticsOptions",
    "TableError",
    "TableSource",
    "Tile",
    "TileOptions",
    "UnfinishedPackingError",
    "UnknownRuleError",
    "UnusableSourcesError",
    "WidsShard",
    "WorkerDiedError",
    "WrittenPlan",
    "atomic_file",
    "build_index",
    "catalog_shards",
    "change_document",
    "check_shards",
    "check_together",
    "class_names",
    "combined",
    "common_prefix",
    "contact_sheet",
    "dali_index",
    "dali_name",
    "dataset_digest",
    "decode_rgb",
    "existing_output",
    "expand_braces",
    "expand_patterns",
    "file_checksum",
    "find_rule",
    "html_report",
    "index_from_json",
    "index_path_of",
    "index_shards",
    "index_state",
    "is_command",
    "is_table",
    "is_url",
    "iter_samples",
    "keys_in_several",
    "load",
    "manifest_from_json",
    "manifests_in",
    "mask_url",
    "mask_urls",
    "measure_shards",
    "measure_table",
    "open_folder",
    "open_ilsvrc_train",
    "open_ilsvrc_val",
    "open_picture",
    "open_shards",
    "open_table",
    "pack",
    "parse_label",
    "parse_labels",
    "parse_shard_size",
    "parse_slice",
    "picture_extension",
    "picture_facts",
    "plan_of",
    "plan_shards",
    "planned_bytes",
    "prepare",
    "printable",
    "read_classes",
    "read_columns",
    "read_index",
    "read_manifest",
    "read_plan",
    "read_sizes",
    "recode_sample",
    "remove_leftovers",
    "reopen_source",
    "repair_shards",
    "require_apart",
    "require_outside",
    "run_plan",
    "sample_rows",
    "seeded_permutation",
    "seeded_words",
    "shard_name",
    "sizes_json",
    "split_name",
    "table_writer",
    "tiles_of",
    "to_rgb",
    "wids_json",
    "write_atomically",
    "write_index",
    "write_manifest",
    "write_plan",
]
