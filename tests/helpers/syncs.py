"""Counts what makes the host wait for a value of the device."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Syncs"]

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
