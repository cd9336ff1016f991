"""Examine the machine and what is installed on it, as training from shards will find them. Tries what it can.

Each check stands alone: one that fails says so, and the others go on; so torch, which may be what is broken, is
imported where it is needed. Nothing is left behind.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from shardkit import FakeImageNet, FakeSource, PackConfig, ShardSize, counted, pack, plan_shards
from wdsloader import (
    LoaderConfig,
    decode_faults,
    decode_path,
    default_workers,
    open_dataset,
    usable_bytes,
    usable_cores,
)

__all__ = ["MachineCheck", "examine_machine"]

_PACKAGES = ("torch", "torchvision", "numpy", "pillow", "webdataset")
# The scheme of a store, the module behind it, and what brings that.
_STORES = (
    ("s3", "s3fs", "s3fs"),
    ("gs", "gcsfs", "gcsfs"),
    ("hf", "huggingface_hub", "huggingface-hub"),
    ("az", "adlfs", "adlfs"),
)
_EXTRAS = (
    ("HTML pages", "jinja2", "jinja2"),
    ("tables", "pyarrow", "pyarrow"),
    ("ONNX", "onnxruntime", "onnx onnxruntime onnxscript"),
    ("TensorBoard", "tensorboard", "tensorboard"),
)
# libjpeg-dev stands for libjpeg-turbo's headers on Debian and on Ubuntu, which name them differently.
_BUILD_KERNEL = "Install a C compiler and libjpeg-turbo's headers (apt-get install gcc libjpeg-dev), and wdsloader anew"
# What is installed to decode with, as a sentence names it, and what to do where it does not load.
_UNLOADED = {
    "kernel": ("the kernel", _BUILD_KERNEL),
    "simplejpeg": ("simplejpeg", "Install simplejpeg anew, or remove it"),
}
_GIB = 1 << 30
_NUM_SAMPLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCheck:
    """What was found on one topic. ``state``: "fine"; "note", slower or less than it could be; "bad": it does not work.

    ``advice``: what to do about a note, or about what is bad where that is known.
    """

    topic: str
    found: str
    state: Literal["fine", "note", "bad"] = "fine"
    advice: str | None = None


def examine_machine(
    *, driver: Path = Path("/proc/driver/nvidia/version"), temp_folder: str | None = None
) -> Iterator[MachineCheck]:
    """Yield the checks, one after the other; the last ones take seconds: work on every device, a loader's start.

    Args: driver: a file that is there where NVIDIA's driver is. temp_folder: the one that was asked for (TMPDIR), which
        Python passes over in silence where it cannot write to it.
    """
    for topic, check in _checks(driver, temp_folder):
        yield from _alone(topic, check)


def _alone(topic: str, check: Callable[[], Iterator[MachineCheck]], *, what: str = "") -> Iterator[MachineCheck]:
    """Yield what a check finds, and an error of it as what is bad. Args: what: it is about, before the error."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001  # whatever is broken here is what is looked for
        yield MachineCheck(topic=topic, found=f"{what}{type(error).__name__}: {error}", state="bad")


def _checks(driver: Path, temp_folder: str | None) -> tuple[tuple[str, Callable[[], Iterator[MachineCheck]]], ...]:
    return (
        ("packages", _versions),
        ("decoding", _decoding),
        ("cores", _cores),
        ("memory", _memory),
        ("temporary", partial(_temp_folder, temp_folder)),
        ("stores", _stores),
        ("extras", _extras),
        ("devices", partial(_devices, driver)),
        ("loader", _loader),
    )


def _versions() -> Iterator[MachineCheck]:
    machine = f"{platform.system()} {platform.machine()}"
    yield MachineCheck(topic="Python", found=f"{platform.python_version()}, {machine}")
    yield MachineCheck(topic="packages", found=", ".join(f"{name} {_version(name)}" for name in _PACKAGES))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _decoding() -> Iterator[MachineCheck]:
    for name, fault in decode_faults().items():
        what, advice = _UNLOADED[name]
        yield MachineCheck(topic="decoding", found=f"{what} does not load: {fault}", state="bad", advice=advice)
    path = decode_path()
    if path.startswith("kernel"):
        yield MachineCheck(topic="decoding", found=path)
        return
    yield MachineCheck(
        topic="decoding",
        found=f"{path}, without the kernel: the same pixels at less than half the rate",
        state="note",
        advice=_BUILD_KERNEL,
    )


def _cores() -> Iterator[MachineCheck]:
    cores, workers = usable_cores(), counted(default_workers(), "loader worker")
    yield MachineCheck(topic="cores", found=f"{cores} of {os.cpu_count()} usable; {workers} by default")


def _memory() -> Iterator[MachineCheck]:
    usable = usable_bytes()
    found = "not known here" if usable is None else f"{usable / _GIB:.1f} GiB usable"
    yield MachineCheck(topic="memory", found=found)


def _temp_folder(wanted: str | None) -> Iterator[MachineCheck]:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    found = f"{folder}: {free / _GIB:.1f} GiB free"
    if wanted and os.path.realpath(wanted) != os.path.realpath(folder):
        found = f"{found}, not {wanted}, which TMPDIR names: it is missing, full or read-only"
        advice = "Make it, or set TMPDIR to a folder that can be written to"
        yield MachineCheck(topic="temporary", found=found, state="note", advice=advice)
    elif free < _GIB:
        advice = "Free some, or set TMPDIR to a folder on a larger disk"
        yield MachineCheck(topic="temporary", found=found, state="note", advice=advice)
    else:
        yield MachineCheck(topic="temporary", found=found)


def _stores() -> Iterator[MachineCheck]:
    there = [scheme for scheme, module, _ in _STORES if _is_there(module)]
    lacking = [f"{scheme}:// (pip install {package})" for scheme, module, package in _STORES if not _is_there(module)]
    yield MachineCheck(topic="stores", found=_there_and_lacking(["http(s)", *there], lacking))


def _extras() -> Iterator[MachineCheck]:
    there = [name for name, module, _ in _EXTRAS if _is_there(module)]
    lacking = [f"{name} (pip install {packages})" for name, module, packages in _EXTRAS if not _is_there(module)]
    yield MachineCheck(topic="extras", found=_there_and_lacking(there, lacking))


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _there_and_lacking(there: list[str], lacking: list[str]) -> str:
    return "; not installed: ".join(filter(None, (", ".join(there), ", ".join(lacking))))


def _loader() -> Iterator[MachineCheck]:
    """Pack a shard, and take a batch of it from a worker process through shared memory."""
    from wdsloader import TorchLoader

    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        source = FakeSource(FakeImageNet(num_samples=_NUM_SAMPLES, num_classes=2, size=(64, 48)))
        plan = plan_shards(source, prefix="check", size=ShardSize(samples=_NUM_SAMPLES))
        pack(source, plan, config=PackConfig(folder=Path(folder), prefix="check"), on_shard=lambda _: None)
        config = LoaderConfig(batch_size=_NUM_SAMPLES, image_size=32, num_workers=1)
        with open_dataset([folder]) as dataset, TorchLoader(dataset, config) as loader:
            num_samples = sum(len(batch.keys) for batch in loader)
    if num_samples != _NUM_SAMPLES:
        raise RuntimeError(f"{num_samples} of {_NUM_SAMPLES} samples came")
    took = f"{time.monotonic() - begin:.1f} s"
    yield MachineCheck(topic="loader", found=f"a shard packed, and read by a worker process: {took}")


def _devices(driver: Path) -> Iterator[MachineCheck]:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for number in range(count):
        yield from _alone("devices", partial(_device, number), what=f"cuda:{number}: ")
    if count > 1:
        has_nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
        yield MachineCheck(
            topic="NCCL",
            found=".".join(map(str, torch.cuda.nccl.version())) if has_nccl else "not in this torch",
            state="fine" if has_nccl else "bad",
            advice=None if has_nccl else "Install a torch built with NCCL, to train on several devices",
        )
    if count == 0:
        yield _no_device(torch.__version__, has_driver=driver.exists())


def _no_device(torch_version: str, *, has_driver: bool) -> MachineCheck:
    if has_driver:
        return MachineCheck(
            topic="devices",
            found=f"none that torch {torch_version} sees, although there is an NVIDIA driver",
            state="bad",
            advice="Install a torch built for CUDA and for this driver (`nvidia-smi` names its version), and see that "
            "CUDA_VISIBLE_DEVICES is not empty",
        )
    return MachineCheck(topic="devices", found="no CUDA device: models are trained on the CPU")


def _device(number: int) -> Iterator[MachineCheck]:
    """Multiply on a device, so that it has answered."""
    import torch

    properties = torch.cuda.get_device_properties(number)
    ones = torch.ones(256, 256, device=f"cuda:{number}")
    if float((ones @ ones).sum()) != 256**3:
        raise RuntimeError(f"{properties.name} multiplies wrongly")
    free, total = torch.cuda.mem_get_info(number)
    found = (
        f"cuda:{number} {properties.name}, {free / _GIB:.1f} of {total / _GIB:.1f} GiB free, compute capability "
        f"{properties.major}.{properties.minor}"
    )
    if properties.major < 8:
        advice = "Use runtime.precision=fp16"
        yield MachineCheck(topic="devices", found=f"{found}: no bf16", state="note", advice=advice)
    else:
        yield MachineCheck(topic="devices", found=found)
