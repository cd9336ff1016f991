"""Which part of what a device can compute a run makes use of (MFU): the model's operations against the peak."""

from __future__ import annotations

import torch

from resnettrain.config import TrainConfig
from resnettrain.model import build_model, flops_per_image
from resnettrain.numerics import Numerics

__all__ = ["Utilization", "peak_flops"]

# Without sparsity, from the vendor's data sheets. The first that is part of what torch calls the device counts, so the
# slower boards of a name stand before the name alone.
_TENSOR_FLOPS: tuple[tuple[str, float, float], ...] = (
    # name, bf16 and fp16, tf32
    ("H100 PCIe", 756e12, 378e12),
    ("H100 NVL", 835e12, 417e12),
    ("H100", 989e12, 494e12),
    ("H200 NVL", 835e12, 417e12),
    ("H200", 989e12, 494e12),
    ("A100", 312e12, 156e12),
)


def peak_flops(name: str, *, precision: str) -> float | None:
    """Return what a device of a name computes at most, in operations a second; None where that is not known here."""
    for known, half, tf32 in _TENSOR_FLOPS:
        if known in name:
            return {"bf16": half, "fp16": half, "tf32": tf32}.get(precision)
    return None


class Utilization:
    """Works out the share from images a second; None throughout where the device's peak is neither known nor given."""

    def __init__(self, config: TrainConfig, *, numerics: Numerics, num_classes: int, world_size: int = 1) -> None:
        given, device = config.log.peak_tflops, numerics.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
        peak = peak_flops(name, precision=numerics.precision) if given is None else given * 1e12
        self._peak_flops = None if peak is None else peak * world_size
        self._model, self._num_classes = config.model, num_classes
        self._flops_by_size: dict[int, int] = {}

    def share(self, images_per_s: float, *, image_size: int) -> float | None:
        """Return the share at so many images a second of all ranks, of pictures of so many pixels a side."""
        if self._peak_flops is None:
            return None
        if image_size not in self._flops_by_size:
            # Of a model of its own: the run's may be wrapped, compiled, or synchronized over the ranks.
            model = build_model(
                self._model.name, num_classes=self._num_classes, seed=0, antialias=self._model.antialias
            )
            self._flops_by_size[image_size] = flops_per_image(model, image_size=image_size)
        return images_per_s * self._flops_by_size[image_size] / self._peak_flops
