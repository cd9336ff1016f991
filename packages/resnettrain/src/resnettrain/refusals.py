"""What can be refused without torch, before it is imported: settings that go unheeded, packages that are not here.

Each setting by itself is checked where it is made, in `config.py`; what takes the data or the device, in `opening.py`.
"""

from __future__ import annotations

import importlib.util
from typing import Literal, get_args

from resnettrain.config import AugmentConfig, ResolutionConfig, TrainConfig
from resnettrain.errors import ConfigError

__all__ = ["ExportFormat", "require_exporter", "require_runnable"]

ExportFormat = Literal["safetensors", "torch-export", "onnx"]
# What torch's exporter, and the comparison of answers, need.
_ONNX = ("onnx", "onnxruntime", "onnxscript")


def require_runnable(config: TrainConfig, *, world_size: int) -> None:
    """Refuse a run that no data can make good.

    Raises: ConfigError: no shards are named; settings that its pipeline would pass over in silence; tensorboard is not
    installed.
    """
    if not config.data.urls and config.data.pipeline != "synthetic":
        raise ConfigError("data.urls: no shards are named. Give --urls PATTERN.")
    _require_heeded(config, world_size=world_size)
    if config.log.tensorboard and _lacks("tensorboard"):
        raise ConfigError("log.tensorboard: tensorboard is not installed. Install it: pip install tensorboard.")


def require_exporter(format: ExportFormat) -> None:
    """Refuse a format of which nothing is known, or whose packages are not installed. Raises: ConfigError."""
    if format not in get_args(ExportFormat):
        raise ConfigError(f"format: '{format}' is none of {', '.join(get_args(ExportFormat))}.")
    if format == "safetensors" and _lacks("safetensors"):
        raise ConfigError("safetensors is not installed. Install it: pip install safetensors.")
    if format == "onnx" and (missing := next(filter(_lacks, _ONNX), None)):
        raise ConfigError(
            f"ONNX needs onnx, onnxruntime and onnxscript, and {missing} is not installed. Install them, or this "
            "package with its extra 'onnx': pip install '.[onnx]' in the checkout, or what your environment has for it."
        )


def _lacks(package: str) -> bool:
    return importlib.util.find_spec(package) is None


def _require_heeded(config: TrainConfig, *, world_size: int) -> None:
    """Refuse settings that made-up pictures, or the source's own pipeline, would pass over in silence."""
    if config.data.pipeline == "synthetic" and (config.data.urls or config.data.val_urls or config.data.one_batch):
        raise ConfigError("data.pipeline: made-up pictures take the place of all data: name no shards, or leave it.")
    if config.data.pipeline != "source":
        return
    if world_size > 1:
        raise ConfigError("data.pipeline: the source's own has one rank. Start one, or set data.pipeline=lanes.")
    unheeded = {
        "augment": config.augment != AugmentConfig(),
        "resolution": config.resolution != ResolutionConfig(),
        "data.lanes": config.data.lanes is not None,
        "data.exact": config.data.exact,
        "data.one_batch": config.data.one_batch,
        "data.on_error": config.data.on_error != "stop",
        "data.decode": config.data.decode != "cpu",
    }
    names = ", ".join(name for name, said in unheeded.items() if said)
    if names:
        raise ConfigError(f"{names}: the source's pipeline has its own way. Leave it, or set data.pipeline=lanes.")
