"""From host memory to the device without a wait: pinned memory, a stream of its own, a ring of buffers there.

Nothing is allocated that two streams use, so there is no allocator to race: a buffer of the ring is written again only
after an event says that the compute stream is done with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

__all__ = ["DeviceRing"]

_Item = TypeVar("_Item")

# One is computed on, one is copied, one waits between the two.
_SLOTS = 3


@dataclass(slots=True)
class _Slot:
    """Buffers of one batch, and what is still going on with them. `source` is what a copy may still be reading.

    `pinned` and `buffers` are by the place of a tensor, `pinned` for those alone that are not pinned themselves.
    """

    copied: Any
    consumed: Any
    pinned: dict[int, Tensor] = field(default_factory=dict)
    buffers: dict[int, Tensor] = field(default_factory=dict)
    source: object | None = None


class DeviceRing:
    """A ring of device buffers. Tensors it hands out are good until the next ones are asked for.

    Tensors that are on a device already, and all where the device is the host, are handed on as they are.
    """

    def __init__(self, device: torch.device, *, copying: bool | None = None) -> None:
        self._device = device
        self._copying = device.type != "cpu" if copying is None else copying
        self._pinning = device.type == "cuda"
        if self._copying:
            self._module = torch.get_device_module(device)
            self._side = self._module.Stream(device)
            self._slots = [_Slot(self._module.Event(), self._module.Event()) for _ in range(_SLOTS)]

    def stream(self, items: Iterable[tuple[_Item, Sequence[Tensor]]]) -> Iterator[tuple[_Item, list[Tensor]]]:
        """Hand on each item with its tensors on the device, in order.

        The memory of an item's tensors may be written again when the item is let go: the ring keeps it until then.
        """
        for number, (item, tensors) in enumerate(items):
            if not self._copying:
                yield item, list(tensors)
                continue
            slot = self._slots[number % _SLOTS]
            copies = iter(self._copy(slot, [each for each in tensors if _is_on_host(each)], source=item))
            moved = [next(copies) if _is_on_host(each) else each for each in tensors]
            try:
                yield item, moved
            finally:
                # All that the consumer does with these buffers is queued by now, also where it stops here.
                slot.consumed.record(self._module.current_stream(self._device))
                del item, tensors, moved, copies
                self._let_go()

    def _copy(self, slot: _Slot, tensors: Sequence[Tensor], *, source: object) -> list[Tensor]:
        """Start the copies, and let the compute stream wait for them."""
        compute = self._module.current_stream(self._device)
        # The pinned memory is still being read where the host is a whole ring ahead of the device: it waits here.
        slot.copied.synchronize()
        hosts = self._staged(slot, tensors)
        self._side.wait_event(slot.consumed)
        with self._module.stream(self._side):
            slot.buffers = {i: _room(slot.buffers.get(i), t, device=self._device) for i, t in enumerate(tensors)}
            moved = [slot.buffers[i][: len(host)] for i, host in enumerate(hosts)]
            for target, host in zip(moved, hosts, strict=True):
                target.copy_(host, non_blocking=True)
            slot.copied.record(self._side)
        if self._pinning:
            # For when they are freed: the allocator knows only the stream that they were made on.
            for buffer in slot.buffers.values():
                buffer.record_stream(compute)
        # What was pinned already is read where it lies; the rest was copied, and the source may go.
        slot.source = source if any(host is tensor for host, tensor in zip(hosts, tensors, strict=True)) else None
        compute.wait_event(slot.copied)
        return moved

    def _staged(self, slot: _Slot, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the tensors in memory that a device can read while the host goes on: each copied that is not pinned.

        A loader pins the pictures alone, which are nearly all of a batch.
        """
        if not self._pinning:
            return tensors
        hosts = list(tensors)
        for i, tensor in enumerate(tensors):
            if not tensor.is_pinned():
                slot.pinned[i] = _room(slot.pinned.get(i), tensor, device=None)
                hosts[i] = slot.pinned[i][: len(tensor)].copy_(tensor)
        return hosts

    def _let_go(self) -> None:
        for slot in self._slots:
            if slot.source is not None and slot.copied.query():
                slot.source = None


def _is_on_host(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def _room(held: Tensor | None, tensor: Tensor, *, device: torch.device | None) -> Tensor:
    """Return a buffer that a tensor fits in by its first axis: the held one, or a new one (`device` None: pinned)."""
    fits = held is not None and (held.dtype, held.shape[1:]) == (tensor.dtype, tensor.shape[1:])
    if held is not None and fits and len(held) >= len(tensor):
        return held
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device or "cpu", pin_memory=device is None)
