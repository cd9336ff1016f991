"""The errors of the trainer: one base, one class for each thing the caller can do about it."""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataMismatchError",
    "EvaluationError",
    "ExportError",
    "NonFiniteLossError",
    "OutOfMemoryError",
    "PeerError",
    "ReportError",
    "ResnettrainError",
    "RunFolderError",
    "UnsafeCheckpointError",
]


class ResnettrainError(Exception):
    """Anything the trainer refuses or gives up on, said in one sentence."""


class ConfigError(ResnettrainError, ValueError):
    """A setting is unknown, of the wrong type or out of range."""


class DataMismatchError(ResnettrainError, ValueError):
    """The data does not fit the model, or two datasets do not fit each other."""


class CheckpointError(ResnettrainError, OSError):
    """A checkpoint is missing, damaged, or of another run."""


class UnsafeCheckpointError(CheckpointError):
    """A checkpoint asks for code to be run on loading; nothing in it was run."""


class EvaluationError(ResnettrainError):
    """An evaluation cannot count every sample exactly once."""


class ExportError(ResnettrainError):
    """A model cannot be exported, or what was made of it answers otherwise; nothing was written."""


class NonFiniteLossError(ResnettrainError, ArithmeticError):
    """The loss became NaN or infinite; the update of that batch was not made."""


class OutOfMemoryError(ResnettrainError, MemoryError):
    """The device's memory does not hold a step; the message says which batch size would fit."""


class PeerError(ResnettrainError, ConnectionError):
    """Another rank failed or is gone; the message is what it said."""


class ReportError(ResnettrainError, ValueError):
    """There is nothing to report on, or the page cannot be made."""


class RunFolderError(ResnettrainError, OSError):
    """The run folder holds another run, or cannot be written."""
