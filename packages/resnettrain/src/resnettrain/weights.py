"""Weights out of files: a checkpoint as the model it was, and any weights as a start for another model.

Files are read with weights_only, or are safetensors: nothing in them is run.
"""

from __future__ import annotations

import io
import logging
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from resnettrain.checkpoint import find_checkpoint
from resnettrain.config import TrainConfig
from resnettrain.errors import CheckpointError, ConfigError, UnsafeCheckpointError
from resnettrain.model import build_model
from resnettrain.state import Identity, config_of, identity_of
from shardkit import counted

__all__ = ["Taken", "TrainedModel", "load_trained", "read_init", "read_weights", "start_from"]

log = logging.getLogger(__name__)

_SAFETENSORS = ".safetensors"
# Where others' checkpoints keep the weights: torchvision's references, timm, Lightning.
_NESTED = ("ema", "model", "state_dict", "model_ema")
# What wrappers put before every name.
_PREFIXES = ("module.", "_orig_mod.", "model.")
# Heads that torchvision's two oldest models have for training alone; they are built without.
_AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")
# Old files lack it; nothing but a momentum of None reads it.
_COUNTERS = "num_batches_tracked"
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainedModel:
    """A model as a checkpoint has it, on the CPU, in evaluation mode. `weights`: the model's own, or their average."""

    path: Path
    model: nn.Module
    identity: Identity
    config: TrainConfig
    weights: Literal["model", "ema"]

    @property
    def image_size(self) -> int:
        """Return the side of the pictures that it is evaluated on."""
        return self.config.eval.image_size or self.config.model.image_size

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its classes, or their numbers."""
        return self.identity.classes or tuple(map(str, range(self.identity.num_classes)))


def load_trained(path: Path, *, average: bool = True) -> TrainedModel:
    """Return the model of a checkpoint file, or of a run folder's newest.

    Args: average: take the moving average of the weights where there is one.
    Raises: CheckpointError: nothing there, damaged, unsafe, of another program, or it does not fit its own model.
    """
    found, content = find_checkpoint(path)
    identity, config = identity_of(content, path=found), config_of(content)
    model = build_model(identity.model, num_classes=identity.num_classes, seed=0, antialias=config.model.antialias)
    ema = content.get("ema") if average else None
    try:
        model.load_state_dict(ema or content["model"])
    except RuntimeError as error:
        raise CheckpointError(f"{found}: does not fit the model {identity.model}: {error}") from error
    return TrainedModel(
        path=found, model=model.eval(), identity=identity, config=config, weights="ema" if ema else "model"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """How many tensors came from a file, which are new, and which of the file have no place here."""

    count: int
    new: tuple[str, ...]
    left: tuple[str, ...]

    def __str__(self) -> str:
        new = f"; new: {', '.join(self.new)}" if self.new else ""
        left = f"; left out: {', '.join(self.left[:_NAMED])}" if self.left else ""
        return f"{counted(self.count, 'tensor')} taken{new}{left}"


def read_weights(data: bytes, *, path: Path) -> dict[str, Tensor]:
    """Return the weights in a file's content by name: a checkpoint of ours or another's, plain weights, safetensors.

    Args: path: its name in errors; `.safetensors` at its end says what it is.
    Raises: UnsafeCheckpointError: it asks for code to be run. CheckpointError: damaged, or there are no weights in it.
    """
    content = _safetensors(data, path=path) if path.suffix == _SAFETENSORS else _pickled(data, path=path)
    for name in _NESTED:
        if isinstance(content.get(name), Mapping) and content[name]:
            content = content[name]
            break
    weights = {name: value for name, value in content.items() if isinstance(value, Tensor)}
    if not weights or len(weights) < len(content):
        raise CheckpointError(f"{path}: no weights by name are in it. Give --init a checkpoint or a state dict.")
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in weights):
            weights = {name.removeprefix(prefix): value for name, value in weights.items()}
    return weights


def start_from(weights: Mapping[str, Tensor], *, model: nn.Module, path: Path) -> Taken:
    """Put weights into a model; its last layer stays fresh where they have another number of classes.

    Raises: CheckpointError: they are of another model; nothing was changed.
    """
    own = model.state_dict()
    head = _head_of(model)
    given = {name: value for name, value in weights.items() if not name.startswith(_AUXILIARY) or name in own}
    new = [name for name in own if name in head and (name not in given or given[name].shape != own[name].shape)]
    # A head whose bias alone would fit is another head.
    new = [name for name in own if name in head] if new else []
    missing = [n for n in own if n not in given and n not in new and not n.endswith(_COUNTERS)]
    unknown = [n for n in given if n not in own and n not in head]
    other = [n for n in own if n in given and n not in new and given[n].shape != own[n].shape]
    if missing or unknown or other:
        raise CheckpointError(f"{path}: weights of another model: {_in_words(missing, unknown, other=other)}.")
    taken = {name: given[name] for name in own if name in given and name not in new}
    model.load_state_dict(taken, strict=False)
    return Taken(count=len(taken), new=tuple(new), left=tuple(name for name in weights if name not in given))


def read_init(path: Path) -> bytes:
    """Return the bytes of the file that `model.init` names; of a run folder, its newest checkpoint.

    Raises: ConfigError: there is none. CheckpointError: the run folder has no good checkpoint.
    """
    if not path.exists():
        raise ConfigError(f"model.init: {path}: there is no such file. Name a checkpoint, a run folder or weights.")
    return (find_checkpoint(path)[0] if path.is_dir() else path).read_bytes()


def _head_of(model: nn.Module) -> set[str]:
    """Return the names of the parameters of the last layer: that of the classes, in all of torchvision's models."""
    layers = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    return {f"{layers[-1]}.weight", f"{layers[-1]}.bias"}


def _in_words(missing: list[str], unknown: list[str], *, other: list[str]) -> str:
    said = (("not in the file", missing), ("not in the model", unknown), ("of another shape", other))
    return "; ".join(
        f"{len(names)} {words} ({', '.join(names[:_NAMED])}{', ...' if len(names) > _NAMED else ''})"
        for words, names in said
        if names
    )


def _safetensors(data: bytes, *, path: Path) -> Mapping[str, Any]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load
    except ImportError as error:
        raise ConfigError(f"{path}: needs safetensors. Install it: pip install safetensors.") from error
    try:
        loaded: Mapping[str, Any] = load(data)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: damaged, or no safetensors file ({error}).") from error
    return loaded


def _pickled(data: bytes, *, path: Path) -> Mapping[str, Any]:
    try:
        with warnings.catch_warnings():
            # Of the pickle protocol: what cannot be read is an error in any case.
            warnings.simplefilter("ignore")
            content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch says so of programs, and of what is no pickle at all.
        if data[:1] not in (b"\x80", b"P"):
            raise CheckpointError(f"{path}: damaged, or no file of weights.") from error
        raise UnsafeCheckpointError(
            f"{path}: not a safe file of weights: it asks for code to be run on loading, and nothing in it was run."
        ) from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{path}: damaged, or no file of weights ({reason}).") from error
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path}: no weights by name are in it.")
    return content
