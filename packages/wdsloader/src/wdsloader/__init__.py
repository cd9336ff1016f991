"""Stream training batches from WebDataset shards, in an exact order that any layout repeats and any stop resumes.

Importing this package imports no torch; ``TorchLoader``, ``Batch`` and the names of the source's pipeline bring it in
on first use. Prints nothing; reads no environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wdsloader.config import AugmentConfig, LoaderConfig
from wdsloader.crop_ready import insert_restart_markers
from wdsloader.dataset import Dataset, LabelRange, open_dataset
from wdsloader.decode import decode_path
from wdsloader.errors import (
    ConfigError,
    DatasetError,
    FetchError,
    NoLengthError,
    SampleError,
    WdsloaderError,
    WorkerError,
)
from wdsloader.fetch import mask_url
from wdsloader.source_pipeline import SOURCE_URLS, SourceConfig, default_cache_dir, source_loader

if TYPE_CHECKING:
    from wdsloader.torch_adapter import Batch, TorchLoader

__all__ = [
    "SOURCE_URLS",
    "AugmentConfig",
    "Batch",
    "ConfigError",
    "Dataset",
    "DatasetError",
    "FetchError",
    "LabelRange",
    "LoaderConfig",
    "NoLengthError",
    "SampleError",
    "SourceConfig",
    "TorchLoader",
    "WdsloaderError",
    "WorkerError",
    "decode_path",
    "default_cache_dir",
    "insert_restart_markers",
    "mask_url",
    "open_dataset",
    "source_loader",
]


def __getattr__(name: str) -> Any:
    if name in ("Batch", "TorchLoader"):
        from wdsloader import torch_adapter

        return getattr(torch_adapter, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
