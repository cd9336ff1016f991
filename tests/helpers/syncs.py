"""Counts what makes the host wait for a value of the device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Syncs", "waiting_is_an_error"]

# What `.item()`, `bool(...)`, `.tolist()` and `.nonzero()` come to.
_NAMES = ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero")


class Syncs(TorchDispatchMode):
    """Inside `with`, `found` gets the name of each such call of this thread. Labels on the host are asked `nonzero`.

    Args: names: other calls to count.
    """

    def __init__(self, names: tuple[str, ...] = _NAMES) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self._names = names
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name().partition(".")[0] in self._names:
            self.found.append(func.name())
        return func(*args, **(kwargs or {}))


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    """Have CUDA operations fail that make the host wait for the device, by torch's own account."""
    before = torch.cuda.get_sync_debug_mode()
    _set_sync_debug_mode("error")
    try:
        yield
    finally:
        _set_sync_debug_mode(before)


def _set_sync_debug_mode(mode: int | str) -> None:
    with warnings.catch_warnings():
        # That it is a prototype and does not see all.
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)
