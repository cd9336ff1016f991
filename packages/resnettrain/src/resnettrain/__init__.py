"""Train torchvision's classification models from WebDataset shards: exact, resumable, silent.

Importing this package is light; torch is imported with the first name that needs it. Without torch come the settings
(`TrainConfig` and its parts, recipes, TOML), the schedule, the events of a run, and the errors.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from resnettrain.config import (
    AugmentConfig,
    CheckpointConfig,
    DataConfig,
    DistributedConfig,
    EmaConfig,
    EvalConfig,
    LogConfig,
    LossConfig,
    ModelConfig,
    OptimConfig,
    ResolutionConfig,
    RuntimeConfig,
    ScheduleConfig,
    TrainConfig,
)
from resnettrain.errors import (
    CheckpointError,
    ConfigError,
    DataMismatchError,
    EvaluationError,
    ExportError,
    NonFiniteLossError,
    OutOfMemoryError,
    PeerError,
    ReportError,
    ResnettrainError,
    RunFolderError,
    UnsafeCheckpointError,
)
from resnettrain.progress import (
    CheckpointSaved,
    Event,
    Progress,
    RunEnded,
    RunStarted,
    TrainReport,
    ValProgress,
    ValReport,
    source_line,
)
from resnettrain.rank import Rank
from resnettrain.recipes import DEFAULT_RECIPE, RECIPES, Published, Recipe, recipe
from resnettrain.refusals import ExportFormat, require_exporter, require_runnable
from resnettrain.schedule import Schedule, lr_at, make_schedule, resolution_at
from resnettrain.settings import from_toml, read_toml, resolve_config, to_mapping, to_toml, with_overrides, with_values
from resnettrain.verdict import Judgement, verdict

if TYPE_CHECKING:
    from resnettrain.checkpoint import find_checkpoint, latest, list_checkpoints, read_checkpoint
    from resnettrain.confusion import confusion_picture
    from resnettrain.evaluate import EvalResult, Figures, evaluate_checkpoint
    from resnettrain.export import Exported, export_model, export_suffix
    from resnettrain.lr_find import LrPoint, LrRange, find_lr, suggested_lr
    from resnettrain.machine_checks import MachineCheck, examine_machine
    from resnettrain.metrics import ClassFigures
    from resnettrain.model import build_model, flops_per_image, model_names
    from resnettrain.predict import Answer, Picture, Predictor, Unreadable, pictures_in_files, pictures_in_shards
    from resnettrain.report import (
        ClassReport,
        RunRecord,
        read_class_report,
        read_run,
        report_document,
        report_page,
    )
    from resnettrain.resume import AutoFound, Resume
    from resnettrain.runlog import new_run_dir, read_metrics
    from resnettrain.state import config_of, resume_config, resume_point
    from resnettrain.trainer import TrainResult, train
    from resnettrain.weights import TrainedModel, load_trained

__all__ = [
    "DEFAULT_RECIPE",
    "RECIPES",
    "Answer",
    "AugmentConfig",
    "AutoFound",
    "CheckpointConfig",
    "CheckpointError",
    "CheckpointSaved",
    "ClassFigures",
    "ClassReport",
    "ConfigError",
    "DataConfig",
    "DataMismatchError",
    "DistributedConfig",
    "EmaConfig",
    "EvalConfig",
    "EvalResult",
    "EvaluationError",
    "Event",
    "ExportError",
    "ExportFormat",
    "Exported",
    "Figures",
    "Judgement",
    "LogConfig",
    "LossConfig",
    "LrPoint",
    "LrRange",
    "MachineCheck",
    "ModelConfig",
    "NonFiniteLossError",
    "OptimConfig",
    "OutOfMemoryError",
    "PeerError",
    "Picture",
    "Predictor",
    "Progress",
    "Published",
    "Rank",
    "Recipe",
    "ReportError",
    "ResnettrainError",
    "ResolutionConfig",
    "Resume",
    "RunEnded",
    "RunFolderError",
    "RunRecord",
    "RunStarted",
    "RuntimeConfig",
    "Schedule",
    "ScheduleConfig",
    "TrainConfig",
    "TrainReport",
    "TrainResult",
    "TrainedModel",
    "Unreadable",
    "UnsafeCheckpointError",
    "ValProgress",
    "ValReport",
    "build_model",
    "config_of",
    "confusion_picture",
    "evaluate_checkpoint",
    "examine_machine",
    "export_model",
    "export_suffix",
    "find_checkpoint",
    "find_lr",
    "flops_per_image",
    "from_toml",
    "latest",
    "list_checkpoints",
    "load_trained",
    "lr_at",
    "make_schedule",
    "model_names",
    "new_run_dir",
    "pictures_in_files",
    "pictures_in_shards",
    "read_checkpoint",
    "read_class_report",
    "read_metrics",
    "read_run",
    "read_toml",
    "recipe",
    "report_document",
    "report_page",
    "require_exporter",
    "require_runnable",
    "resolution_at",
    "resolve_config",
    "resume_config",
    "resume_point",
    "source_line",
    "suggested_lr",
    "to_mapping",
    "to_toml",
    "train",
    "verdict",
    "with_overrides",
    "with_values",
]

# Names whose modules import torch or the packages below, and where they are.
_HEAVY = {
    "Answer": "predict",
    "AutoFound": "resume",
    "ClassFigures": "metrics",
    "ClassReport": "report",
    "EvalResult": "evaluate",
    "Exported": "export",
    "Figures": "evaluate",
    "LrPoint": "lr_find",
    "LrRange": "lr_find",
    "MachineCheck": "machine_checks",
    "Picture": "predict",
    "Predictor": "predict",
    "Resume": "resume",
    "RunRecord": "report",
    "TrainResult": "trainer",
    "TrainedModel": "weights",
    "Unreadable": "predict",
    "build_model": "model",
    "config_of": "state",
    "confusion_picture": "confusion",
    "evaluate_checkpoint": "evaluate",
    "examine_machine": "machine_checks",
    "export_model": "export",
    "export_suffix": "export",
    "find_checkpoint": "checkpoint",
    "find_lr": "lr_find",
    "flops_per_image": "model",
    "latest": "checkpoint",
    "list_checkpoints": "checkpoint",
    "load_trained": "weights",
    "model_names": "model",
    "new_run_dir": "runlog",
    "pictures_in_files": "predict",
    "pictures_in_shards": "predict",
    "read_checkpoint": "checkpoint",
    "read_class_report": "report",
    "read_metrics": "runlog",
    "read_run": "report",
    "report_document": "report",
    "report_page": "report",
    "resume_config": "state",
    "resume_point": "state",
    "suggested_lr": "lr_find",
    "train": "trainer",
}


def __getattr__(name: str) -> Any:
    if name not in _HEAVY:
        raise AttributeError(f"module 'resnettrain' has no attribute '{name}'")
    return getattr(importlib.import_module(f"resnettrain.{_HEAVY[name]}"), name)
