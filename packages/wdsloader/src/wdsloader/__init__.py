"""Stream training batches from WebDataset shards, in an exact order that any layout repeats and any stop resumes.

Importing this package imports no torch; ``TorchLoader``, ``Batch``, ``normalize_images`` and the names of the source's
pipeline bring it in on first use. Prints nothing; reads no environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wdsloader.account import EpochAccount, Fault, causes_in_words, merge_accounts
from wdsloader.bench import (
    Delivery,
    StageTimes,
    Verdict,
    compared_workers,
    load_average,
    measure_delivery,
    measure_stages,
    verdict_of,
)
from wdsloader.cache import ShardCache
from wdsloader.cache_entries import CacheEntry
from wdsloader.config import AugmentConfig, LoaderConfig
from wdsloader.config_cache import CacheConfig, cache_config
from wdsloader.crop_ready import insert_restart_markers, restart_marker_version
from wdsloader.dataset import Dataset, LabelRange, open_dataset
from wdsloader.decode import decode_faults, decode_path
from wdsloader.errors import (
    ConfigError,
    DatasetError,
    FetchError,
    NoLengthError,
    SampleError,
    SkipLimitError,
    TransformError,
    WdsloaderError,
    WorkerError,
)
from wdsloader.fetch import mask_url
from wdsloader.hooks import SampleView
from wdsloader.machine import default_workers, usable_bytes, usable_cores
from wdsloader.mixing import MixedDataset, mix
from wdsloader.picture import evaluation_picture
from wdsloader.samples import SampleStream
from wdsloader.sheet import batch_sheet
from wdsloader.source_pipeline import SOURCE_URLS, SourceConfig, default_cache_dir, source_loader

if TYPE_CHECKING:
    from wdsloader.normalize import normalize_images
    from wdsloader.torch_adapter import Batch, TorchLoader

__all__ = [
    "SOURCE_URLS",
    "AugmentConfig",
    "Batch",
    "CacheConfig",
    "CacheEntry",
    "ConfigError",
    "Dataset",
    "DatasetError",
    "Delivery",
    "EpochAccount",
    "Fault",
    "FetchError",
    "LabelRange",
    "LoaderConfig",
    "MixedDataset",
    "NoLengthError",
    "SampleError",
    "SampleStream",
    "SampleView",
    "ShardCache",
    "SkipLimitError",
    "SourceConfig",
    "StageTimes",
    "TorchLoader",
    "TransformError",
    "Verdict",
    "WdsloaderError",
    "WorkerError",
    "batch_sheet",
    "cache_config",
    "causes_in_words",
    "compared_workers",
    "decode_faults",
    "decode_path",
    "default_cache_dir",
    "default_workers",
    "evaluation_picture",
    "insert_restart_markers",
    "load_average",
    "mask_url",
    "measure_delivery",
    "measure_stages",
    "merge_accounts",
    "mix",
    "normalize_images",
    "open_dataset",
    "restart_marker_version",
    "source_loader",
    "usable_bytes",
    "usable_cores",
    "verdict_of",
]


def __getattr__(name: str) -> Any:
    if name in ("Batch", "TorchLoader"):
        from wdsloader import torch_adapter

        return getattr(torch_adapter, name)
    if name == "normalize_images":
        from wdsloader.normalize import normalize_images

        return normalize_images
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
