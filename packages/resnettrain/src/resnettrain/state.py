"""Where a run stands, and what of it goes into a checkpoint and comes back.

A checkpoint is a dict of plain values and tensors: format, version, versions (of torch and Python), model, optimizer,
ema and scaler (None where the run has none), ranks (how many, and what each has of its own: random numbers, statistics
of batch normalization), progress (samples, updates, epoch ...), loader (the data position), window (the last losses),
identity (what must fit on resume), config, metrics_lines.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any

import torch
import torchvision
from torch import nn

from resnettrain.checkpoint import find_checkpoint
from resnettrain.config import TrainConfig
from resnettrain.distributed import Ranks
from resnettrain.ema import Ema
from resnettrain.errors import CheckpointError
from resnettrain.metrics import Window
from resnettrain.norm_stats import set_norm_stats
from resnettrain.rank import Rank
from resnettrain.recipes import recipe
from resnettrain.settings import to_mapping, with_values

__all__ = [
    "FORMAT_VERSION",
    "Identity",
    "Learner",
    "TrainState",
    "config_of",
    "identity_of",
    "pack_content",
    "pack_ranks",
    "resume_config",
    "resume_point",
    "unpack_content",
    "unpack_ranks",
]

FORMAT_VERSION = 2
_FORMAT = "resnettrain-checkpoint"
# What every checkpoint has, and as what; `loader` is checked by the loader. And the counters in `progress`.
_PARTS: dict[str, type | UnionType] = {
    "model": dict, "optimizer": dict, "ema": dict | None, "scaler": dict | None, "ranks": dict, "progress": dict,
    "loader": dict, "window": torch.Tensor, "identity": dict, "config": dict, "metrics_lines": int,
}  # fmt: skip
_IDENTITY: dict[str, type | UnionType] = {
    "model": str, "num_classes": int, "image_size": int, "global_batch": int, "digest": str | None,
    "classes": list | None,
}  # fmt: skip
_COUNTS = ("samples", "updates", "epoch", "batch", "reported")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a checkpoint and a run must agree on. `digest` is the training set's, None where it is unknown."""

    model: str
    num_classes: int
    image_size: int
    global_batch: int
    digest: str | None
    classes: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """What learns, saved and put back together. `model` is the bare module."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    ema: Ema | None
    scaler: torch.amp.GradScaler | None

    @property
    def models(self) -> list[nn.Module]:
        """Return the model and, where there is one, its average."""
        return [self.model] if self.ema is None else [self.model, self.ema.module]


@dataclass(slots=True, kw_only=True)
class TrainState:
    """The clock of a run: samples consumed over all ranks, and what derives from it.

    `batch` counts the batches of `epoch` that are done; `loader` is the data position after the last of them;
    `reported` the samples at the last report.
    """

    samples: int = 0
    updates: int = 0
    epoch: int = 0
    batch: int = 0
    reported: int = 0
    best_top1: float | None = None
    loader: dict[str, Any] | None = None


def pack_content(
    learner: Learner, *, state: TrainState, window: Window, identity: Identity, config: TrainConfig, metrics_lines: int
) -> dict[str, Any]:
    """Return what all ranks have in common of a checkpoint: plain values and tensors, so that it loads weights_only."""
    model, ema, scaler = learner.model, learner.ema, learner.scaler
    progress = asdict(state)
    loader = progress.pop("loader")
    return {
        "format": _FORMAT,
        "version": FORMAT_VERSION,
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "torchvision": str(torchvision.__version__),
        },
        "model": model.state_dict(),
        "optimizer": learner.optimizer.state_dict(),
        "ema": ema.module.state_dict() if ema is not None else None,
        "scaler": scaler.state_dict() if scaler is not None else None,
        "progress": progress,
        "loader": loader,
        "window": window.state(),
        "identity": {**asdict(identity), "classes": list(identity.classes) if identity.classes is not None else None},
        "config": to_mapping(replace(config, run_dir=None)),
        "metrics_lines": metrics_lines,
    }


def pack_ranks(models: Sequence[nn.Module], norms_Rn: torch.Tensor, *, ranks: Ranks) -> dict[str, Any]:
    """Return what each rank has of its own, on all of them: states of torch's RNGs, and the statistics handed in."""
    device = next(models[0].parameters()).device
    # Of the run's device alone: to ask the others would open each of them.
    cuda = ranks.gather(torch.cuda.get_rng_state(device)) if device.type == "cuda" else None
    return {
        "world_size": ranks.world_size,
        "torch": ranks.gather(torch.get_rng_state()),
        "cuda": cuda,
        # Of one rank they are those of the model.
        "norms": None if ranks.is_alone else norms_Rn,
    }


def unpack_ranks(content: Mapping[str, Any], *, path: Path, models: Sequence[nn.Module], place: Rank) -> None:
    """Put back what this rank had of its own. On another number of ranks the common statistics stay, and a rank that
    is new keeps the random numbers it begins with.

    Raises: CheckpointError: it does not fit this torch or this model.
    """
    saved, device = content["ranks"], next(models[0].parameters()).device
    try:
        if place.rank < saved["world_size"]:
            # A copy: torch reads a state from where its memory begins, not from where a row does.
            torch.set_rng_state(saved["torch"][place.rank].clone())
            if device.type == "cuda" and saved["cuda"] is not None:
                torch.cuda.set_rng_state(saved["cuda"][place.rank].clone(), device)
        if saved["norms"] is not None and place.world_size == saved["world_size"]:
            set_norm_stats(models, saved["norms"][place.rank])
    except (RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{path}: ranks in it do not fit this torch or this model: {reason}") from error


def unpack_content(
    content: Mapping[str, Any], *, path: Path, learner: Learner, window: Window, device: torch.device
) -> TrainState:
    """Put what all ranks have in common into the parts of a run; return where the run stands.

    An average that the checkpoint does not have begins with its weights.
    Raises: CheckpointError: weights or optimizer state of another shape.
    """
    try:
        learner.model.load_state_dict(content["model"])
        learner.optimizer.load_state_dict(content["optimizer"])
        if learner.ema is not None:
            learner.ema.module.load_state_dict(content.get("ema") or content["model"])
        if learner.scaler is not None and content.get("scaler") is not None:
            learner.scaler.load_state_dict(content["scaler"])
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: does not fit the model or the optimizer: {error}") from error
    window.load(content["window"], device=device)
    return TrainState(**content["progress"], loader=content["loader"])


def identity_of(content: Mapping[str, Any], *, path: Path) -> Identity:
    """Return what a checkpoint was made with.

    Raises: CheckpointError: it is of another program, of a later version, or parts of it are missing.
    """
    if content.get("format") != _FORMAT:
        raise CheckpointError(f"{path}: not a checkpoint of this program.")
    version = content.get("version")
    if version != FORMAT_VERSION:
        raise CheckpointError(f"{path}: checkpoint version {version}; this program reads {FORMAT_VERSION}.")
    _require_parts(content, path=path)
    identity = dict(content["identity"])
    classes = identity.pop("classes")
    return Identity(**identity, classes=tuple(classes) if classes is not None else None)


def _require_parts(content: Mapping[str, Any], *, path: Path) -> None:
    """Refuse a checkpoint that lacks what every one has, or has something else there. Raises: CheckpointError."""
    bad = [name for name, kind in _PARTS.items() if not isinstance(content.get(name), kind)]
    if not bad:
        progress, identity = content["progress"], content["identity"]
        counts = all(type(number := progress.get(name)) is int and number >= 0 for name in _COUNTS)
        best = isinstance(progress.get("best_top1"), float | None)
        if not counts or not best or progress.keys() != {*_COUNTS, "best_top1"}:
            bad.append("progress")
        if identity.keys() != _IDENTITY.keys() or not all(isinstance(identity[n], _IDENTITY[n]) for n in _IDENTITY):
            bad.append("identity")
        if content["window"].dtype != torch.float64 or content["window"].shape[1:] != (2,):
            bad.append("window")
        if content["metrics_lines"] < 0:
            bad.append("metrics_lines")
        if not _is_whole(content["ranks"]):
            bad.append("ranks")
        if not isinstance(content["config"].get("recipe"), str):
            bad.append("config")
    if bad:
        raise CheckpointError(f"{path}: damaged: {', '.join(bad)} in it is missing or not what a run writes.")


def _is_whole(ranks: Mapping[str, Any]) -> bool:
    """Tell whether there is something for each of the ranks."""
    size = ranks.get("world_size")
    if type(size) is not int or ranks.keys() != {"world_size", "torch", "cuda", "norms"}:
        return False
    parts = [ranks["torch"], *(part for part in (ranks["cuda"], ranks["norms"]) if part is not None)]
    return all(isinstance(part, torch.Tensor) and part.ndim == 2 and len(part) == size for part in parts)


def config_of(content: Mapping[str, Any]) -> TrainConfig:
    """Return the settings that a checkpoint's run was made with; `run_dir` is None."""
    return with_values(recipe(content["config"]["recipe"]), content["config"])


def resume_config(path: Path) -> TrainConfig:
    """Return the settings of the run that a checkpoint file, or a run folder's newest checkpoint, was made by.

    Raises: CheckpointError: nothing there, damaged, unsafe, or of another program.
    """
    return resume_point(path)[1]


def resume_point(path: Path) -> tuple[Path, TrainConfig]:
    """Return a checkpoint file, or a run folder's newest good one, and the settings of its run.

    To go on from that very file is to look for it once, and to tell of a damaged one once.
    Raises: CheckpointError: nothing there, damaged, unsafe, or of another program.
    """
    found, content = find_checkpoint(path)
    identity_of(content, path=found)
    return found, config_of(content)
