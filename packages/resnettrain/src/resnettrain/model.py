"""Models by name, their parameter groups and costs. Weights are random, drawn from the seed alone."""

from __future__ import annotations

import copy
import difflib
import warnings
from typing import Any, cast

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models.resnet import BasicBlock, ResNet

from resnettrain.errors import ConfigError
from shardkit import counted

__all__ = [
    "BlurredConv2d",
    "build_model",
    "count_parameters",
    "flops_per_image",
    "model_names",
    "parameter_groups",
    "require_fitting_pictures",
]

_TINY = "tiny"
# These two answer with a tuple while training unless told otherwise.
_WITHOUT_AUXILIARY = {"googlenet", "inception_v3"}
# ffcv-imagenet's rule: the first convolution, which sees colours, is left as it is.
_FEWEST_BLURRED_CHANNELS = 16


class BlurredConv2d(nn.Conv2d):
    """A convolution over its blurred input, so that the pixels it skips are not lost. Its weights are a Conv2d's.

    Source: Zhang 2019 (arXiv 1904.11486), in the form of ffcv-imagenet: [1 2 1] x [1 2 1] / 16, borders of 0.
    """

    blur: Tensor

    @classmethod
    def over(cls, conv: nn.Conv2d) -> BlurredConv2d:
        """Return a blurred convolution with the weights of another, not a copy of them."""
        with torch.device("meta"):
            made = cls(
                conv.in_channels,
                conv.out_channels,
                cast("tuple[int, int]", conv.kernel_size),
                stride=cast("tuple[int, int]", conv.stride),
                padding=cast("str | tuple[int, int]", conv.padding),
                dilation=cast("tuple[int, int]", conv.dilation),
                groups=conv.groups,
                bias=conv.bias is not None,
                padding_mode=conv.padding_mode,
            )
        made.weight, made.bias = conv.weight, conv.bias
        row = torch.tensor([1.0, 2.0, 1.0], device=conv.weight.device)
        # Not in the state: it is no weight, and the names stay those of the model without it.
        made.register_buffer("blur", (torch.outer(row, row) / 16).repeat(conv.in_channels, 1, 1, 1), persistent=False)
        return made

    def forward(self, images: Tensor) -> Tensor:
        """Blur, then convolve."""
        blur = self.blur.to(images.dtype)
        return super().forward(functional.conv2d(images, blur, padding=1, groups=self.in_channels))


def model_names() -> list[str]:
    """Return every name `build_model` takes, sorted."""
    return sorted([_TINY, *torchvision.models.list_models(module=torchvision.models)])


def build_model(
    name: str, *, num_classes: int, seed: int, zero_init_residual: bool = False, antialias: bool = False
) -> nn.Module:
    """Return a model with fresh weights; the same seed gives the same weights, and torch's own RNG is left as it was.

    Args: name: a torchvision classification model, or "tiny", a ResNet of one basic block a stage.  zero_init_residual:
    the last norm of every residual branch starts at 0 (Goyal et al. 2017).  antialias: see `BlurredConv2d`.
    Raises: ConfigError: no model of that name, the nearest ones are named; no ResNet to zero the branches of.
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
        model = _fresh(name, num_classes=num_classes, zero_init_residual=zero_init_residual)
        if antialias:
            _blur_strided(model)
    return model


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


def flops_per_image(model: nn.Module, *, image_size: int) -> int:
    """Return the floating-point operations of training on one picture: forward and backward, an addition counts as one.

    Of matrix products and convolutions, which are nearly all: 24.3e9 for ResNet-50 at 224 pixels.
    """
    # Without data: shapes are enough. Two pictures, since some models average over a batch.
    shape_only = copy.deepcopy(model).to("meta").train()
    counter = FlopCounterMode(display=False)
    with counter:
        shape_only(torch.zeros(2, 3, image_size, image_size, device="meta")).sum().backward()
    return int(counter.get_total_flops()) // 2


def require_fitting_pictures(name: str, *, batch_size: int, image_size: int, training: bool) -> None:
    """Refuse pictures that a model cannot take, or in training too few to normalize over; shapes tell it without data.

    Raises: ConfigError: naming what torch or the model says of them.
    """
    with torch.device("meta"), torch.no_grad():
        model = build_model(name, num_classes=2, seed=0).train(training)
        try:
            model(torch.zeros(batch_size, 3, image_size, image_size))
        except (AssertionError, RuntimeError, ValueError) as error:
            cause = str(error).partition("\n")[0].rstrip(".")
            pictures = f"{counted(batch_size, 'picture')} of {image_size} x {image_size}"
            raise ConfigError(
                f"model.image_size: '{name}' does not take {pictures} pixels at a time ({cause}). Give it others "
                "(--image-size), more at a time (--batch-size), or name another model."
            ) from error


def _fresh(name: str, *, num_classes: int, zero_init_residual: bool) -> nn.Module:
    extra: dict[str, Any] = {"zero_init_residual": True} if zero_init_residual else {}
    if name == _TINY:
        return cast(nn.Module, ResNet(BasicBlock, [1, 1, 1, 1], num_classes=num_classes, **extra))
    if name in _WITHOUT_AUXILIARY:
        extra |= {"aux_logits": False, "init_weights": True}
    builder = torchvision.models.get_model_builder(name)
    if zero_init_residual and builder.__module__ != ResNet.__module__:
        raise ConfigError(f"model.zero_init_residual: '{name}' is no ResNet. Set it to false, or name another model.")
    return cast(nn.Module, builder(weights=None, num_classes=num_classes, **extra))


def _blur_strided(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Conv2d):
            strides = cast("tuple[int, int]", child.stride)
            if max(strides) > 1 and child.in_channels >= _FEWEST_BLURRED_CHANNELS:
                setattr(module, name, BlurredConv2d.over(child))
        else:
            _blur_strided(child)


def count_parameters(model: nn.Module) -> int:
    """Return the number of weights."""
    return sum(parameter.numel() for parameter in model.parameters())
