"""Device, precision and determinism: what `runtime` says, worked out, and put back as it was afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch

from resnettrain.config import RuntimeConfig
from resnettrain.errors import ConfigError

__all__ = ["Numerics", "global_switches", "require_decoder"]

_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """The device of a run and how it computes there."""

    device: torch.device
    precision: str
    channels_last: bool
    deterministic: bool

    @classmethod
    def of(cls, runtime: RuntimeConfig, *, local_rank: int = 0) -> Numerics:
        """Work out "auto" and None: CUDA where there is one, bf16 and channels_last there, deterministic on the CPU.

        Args: local_rank: of the CUDA devices of a host each rank takes the one of its number, unless one is named.
        Raises: ConfigError: a device that torch does not know or does not find.
        """
        device = _device(runtime.device, local_rank=local_rank)
        on_cuda = device.type == "cuda"
        return cls(
            device=device,
            precision=runtime.precision if runtime.precision != "auto" else "bf16" if on_cuda else "fp32",
            channels_last=runtime.channels_last if runtime.channels_last is not None else on_cuda,
            deterministic=runtime.deterministic if runtime.deterministic is not None else device.type == "cpu",
        )

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context of a forward pass."""
        if self.precision in _HALVES:
            return torch.autocast(self.device.type, dtype=_HALVES[self.precision])
        return nullcontext()

    def scaler(self) -> torch.amp.GradScaler | None:
        """Return what keeps the gradients of fp16 from vanishing; None for precisions that need nothing of the kind."""
        return torch.amp.GradScaler(self.device.type) if self.precision == "fp16" else None

    def place(self, model: torch.nn.Module) -> torch.nn.Module:
        """Move a model to the device, in the memory format of the run."""
        model = model.to(self.device)
        return model.to(memory_format=torch.channels_last) if self.channels_last else model


def require_decoder(decode: str, *, device: torch.device) -> None:
    """Refuse to decode on a device that has no decoder. Raises: ConfigError."""
    if decode == "gpu" and device.type != "cuda":
        raise ConfigError(
            f"data.decode: 'gpu' decodes on a CUDA device, and this run is on '{device}'. Set data.decode=cpu "
            "(--decode cpu), or run it on a CUDA device (--device cuda)."
        )


@contextmanager
def global_switches(numerics: Numerics, *, threads: int | None) -> Iterator[None]:
    """Set torch's process-wide switches for the time of a run, and put them back.

    The device becomes the current one of this thread: what is done for no device in particular (pinned memory, events,
    libraries' handles) would else open the first one too, from every rank.
    """
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    was_warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    was_benchmark = torch.backends.cudnn.benchmark
    was_threads = torch.get_num_threads()
    was_tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        torch.use_deterministic_algorithms(numerics.deterministic)
        torch.backends.cudnn.benchmark = not numerics.deterministic
        # fp32 is what it says; beside half precisions, what is left in float32 can do with the tensor cores.
        _allow_tf32(numerics.precision != "fp32", numerics.precision != "fp32")
        if threads is not None:
            torch.set_num_threads(threads)
        with torch.cuda.device(numerics.device) if numerics.device.type == "cuda" else nullcontext():
            yield
    finally:
        torch.use_deterministic_algorithms(was_deterministic, warn_only=was_warn_only)
        torch.backends.cudnn.benchmark = was_benchmark
        _allow_tf32(*was_tf32)
        torch.set_num_threads(was_threads)


def _allow_tf32(matmul: bool, convolutions: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = matmul
    torch.backends.cudnn.allow_tf32 = convolutions


def _device(name: str, *, local_rank: int) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and torch.cuda.is_available():
        # A launcher may show each rank one device alone.
        name = f"cuda:{local_rank if torch.cuda.device_count() > 1 else 0}"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None:
        raise ConfigError(f"runtime.device: '{name}' is no device for training; use auto, cpu, cuda or cuda:0.")
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise ConfigError(f"runtime.device: '{name}' is not here; {torch.cuda.device_count()} CUDA devices are found.")
    return device
