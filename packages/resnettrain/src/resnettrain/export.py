"""A checkpoint's model for other programs: safetensors, torch.export, ONNX. What is written answers as the model does.

Each file carries the class names and how pictures are prepared, as JSON: in the header of safetensors (key
`resnettrain`), as `resnettrain.json` in a torch.export file, and in the metadata of ONNX (key `resnettrain`).
"""

from __future__ import annotations

import inspect
import io
import json
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from resnettrain.errors import ExportError
from resnettrain.gpu_augment import IMAGENET_MEAN, IMAGENET_STD
from resnettrain.model import build_model
from resnettrain.refusals import ExportFormat, require_exporter
from resnettrain.weights import TrainedModel
from shardkit import write_atomically

__all__ = ["Exported", "export_model", "export_suffix"]

_KEY = "resnettrain"
_SUFFIXES: dict[ExportFormat, str] = {"safetensors": ".safetensors", "torch-export": ".pt2", "onnx": ".onnx"}
# Of the largest answer, since kernels add up in another order. For eight families of models at 224 pixels onnxruntime
# was at most 1.4e-6 from torch, with its optimizations as without, and each of the two as far from float64. As a number
# and not a share, 1e-5 is no bound: where fresh weights answer with 110, torch itself is 6e-5 from float64.
_TOLERANCE = 1e-5
_BATCH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A file that was written, and how far its answers were from the model's at most, as a share of the largest."""

    path: Path
    format: ExportFormat
    num_bytes: int
    difference: float


def export_suffix(format: ExportFormat) -> str:
    """Return how names of files of a format end."""
    return _SUFFIXES[format]


def export_model(trained: TrainedModel, path: Path, *, format: ExportFormat, replace: bool = False) -> Exported:
    """Write a model, after its answers to a batch were compared with those of the file's content.

    Input of the exported model: float32 (N, 3, S, S), normalized as the metadata say; output: logits (N, K).
    Raises: ExportError: the answers differ, or torch cannot export it; nothing was written. ConfigError: what the
    format needs is not installed. shardkit.OutputExistsError: the file is there.
    """
    require_exporter(format)
    model = trained.model.eval()
    images = torch.randn(_BATCH, 3, trained.image_size, trained.image_size, generator=torch.Generator().manual_seed(0))
    facts = json.dumps(_facts(trained))
    make = {"safetensors": _safetensors, "torch-export": _torch_export, "onnx": _onnx}[format]
    with torch.inference_mode():
        expected = model(images)
    content, found = make(trained, images, facts=facts)
    difference = float((found - expected).abs().max() / expected.abs().max().clamp(min=1.0))
    if not difference <= _TOLERANCE:
        raise ExportError(
            f"{path}: not written: its answers differ from the model's by {difference:.2g} of the largest, and may by "
            f"{_TOLERANCE:g}. Try another format or another torch."
        )
    write_atomically(path, content, replace=replace)
    return Exported(path=path, format=format, num_bytes=len(content), difference=difference)


def _facts(trained: TrainedModel) -> dict[str, Any]:
    return {
        "model": trained.identity.model,
        "antialias": trained.config.model.antialias,
        "num_classes": trained.identity.num_classes,
        "classes": list(trained.names),
        "weights": trained.weights,
        "input": {
            "layout": "float32 (N, 3, S, S), RGB, values 0..1 then (value - mean) / std",
            "image_size": trained.image_size,
            "crop": "centre 224/256 of the short side, square, scaled bilinear with antialiasing",
            "mean": list(IMAGENET_MEAN),
            "std": list(IMAGENET_STD),
        },
        "output": "logits (N, K)",
    }


def _safetensors(trained: TrainedModel, images: Tensor, *, facts: str) -> tuple[bytes, Tensor]:
    from safetensors.torch import load, save

    weights = {name: value.contiguous() for name, value in trained.model.state_dict().items()}
    content = save(weights, metadata={"format": "pt", _KEY: facts})
    again = build_model(
        trained.identity.model,
        num_classes=trained.identity.num_classes,
        seed=1,
        antialias=trained.config.model.antialias,
    ).eval()
    again.load_state_dict(load(content))
    with torch.inference_mode():
        return content, again(images)


def _torch_export(trained: TrainedModel, images: Tensor, *, facts: str) -> tuple[bytes, Tensor]:
    shapes = {_input_name(trained.model): {0: torch.export.Dim("batch")}}
    buffer = io.BytesIO()
    try:
        program = torch.export.export(trained.model, (images,), dynamic_shapes=shapes)
        torch.export.save(program, buffer, extra_files={f"{_KEY}.json": facts})
        buffer.seek(0)
        again = cast(nn.Module, torch.export.load(buffer).module())
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ExportError(f"{trained.path}: torch cannot export {trained.identity.model}: {reason}") from error
    with torch.inference_mode():
        return buffer.getvalue(), again(images)


def _input_name(model: nn.Module) -> str:
    """Return what the forward of a model calls its pictures."""
    return next(iter(inspect.signature(model.forward).parameters))


def _onnx(trained: TrainedModel, images: Tensor, *, facts: str) -> tuple[bytes, Tensor]:
    import onnx
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Of the exporter's own workings.
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            trained.model,
            (images,),
            str(path),
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes={_input_name(trained.model): {0: torch.export.Dim("batch")}},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        made = onnx.load(path)
    made.metadata_props.add(key=_KEY, value=facts)
    content = bytes(made.SerializeToString())
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, torch.from_numpy(session.run(["logits"], {"images": images.numpy()})[0])
