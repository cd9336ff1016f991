"""Models by name and their parameter groups. Weights are random, drawn from the seed alone."""

from __future__ import annotations

import difflib
import warnings
from typing import Any, cast

import torch
import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet

from resnettrain.errors import ConfigError

__all__ = ["build_model", "count_parameters", "model_names", "parameter_groups"]

_TINY = "tiny"
# These two answer with a tuple while training unless told otherwise.
_WITHOUT_AUXILIARY = {"googlenet", "inception_v3"}


def model_names() -> list[str]:
    """Return every name `build_model` takes, sorted."""
    return sorted([_TINY, *torchvision.models.list_models(module=torchvision.models)])


def build_model(name: str, *, num_classes: int, seed: int) -> nn.Module:
    """Return a model with fresh weights; the same seed gives the same weights, and torch's own RNG is left as it was.

    Args: name: a torchvision classification model, or "tiny", a ResNet of one basic block a stage.
    Raises: ConfigError: no model of that name; the nearest ones are named.
    """
    names = model_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=3)
        hint = f"Nearest: {', '.join(near)}." if near else f"There are {len(names)}, such as resnet50 and {_TINY}."
        raise ConfigError(f"model.name: there is no '{name}'. {hint}")
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        torch.manual_seed(seed)
        # torchvision's note on slow initialisation of its two oldest models tells the user nothing to act on.
        warnings.simplefilter("ignore", FutureWarning)
        if name == _TINY:
            return cast(nn.Module, ResNet(BasicBlock, [1, 1, 1, 1], num_classes=num_classes))
        extra: dict[str, Any] = {"aux_logits": False, "init_weights": True} if name in _WITHOUT_AUXILIARY else {}
        return cast(nn.Module, torchvision.models.get_model(name, weights=None, num_classes=num_classes, **extra))


def parameter_groups(model: nn.Module, *, weight_decay: float, no_decay_1d: bool) -> list[dict[str, Any]]:
    """Return optimizer groups: matrices and kernels decayed, everything of at most one dimension not.

    By dimension and not by name: 'bn' in the name misses torchvision's `downsample.1`, 8 tensors of a ResNet-50.
    Args: no_decay_1d: False puts all parameters in one decayed group.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not no_decay_1d:
        return [{"params": parameters, "weight_decay": weight_decay}]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def count_parameters(model: nn.Module) -> int:
    """Return the number of weights."""
    return sum(parameter.numel() for parameter in model.parameters())
