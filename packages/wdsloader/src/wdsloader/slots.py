"""Memory for the pixels of whole batches: shared with the processes that fill it, lent to whoever reads it, used again.

A slot is a file without a name, mapped by the loader and by its workers: nothing is left of it, however they end. It is
free again when nothing refers to its memory any more, which numpy and torch tell by reference counts; where this
process was forked in between, the memory is left to the other one. Numpy, no torch.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol

import numpy as np

from wdsloader.decode import Uint8s
from wdsloader.errors import WorkerError

__all__ = ["Pin", "Shape", "Slot", "SlotPool", "map_slot"]

# (rows, height, width, 3) of the pixels in a slot, or (rows, bytes) where a device decodes.
Shape = tuple[int, ...]


class Pin(Protocol):
    """Registers memory with a device's driver, and returns what undoes that, to be called before it is unmapped."""

    def __call__(self, address: int, *, num_bytes: int) -> Callable[[], object]: ...


class Slot:
    """The memory of one batch, unmapped when nothing refers to it.

    ``number``: its name between processes. ``images``: uint8 of the shape.
    Raises: WorkerError: there is not so much memory.
    """

    def __init__(self, number: int, shape: Shape, *, pin: Pin | None = None) -> None:
        self.number = number
        try:
            self._descriptor = _nameless_file(math.prod(shape))
            self._closes = weakref.finalize(self, os.close, self._descriptor)
            self.images = map_slot(self._descriptor, shape)
        except OSError as error:
            raise _no_memory(math.prod(shape), error) from error
        if pin is not None:
            # A finalizer is called while the attributes are there, so before the memory is unmapped.
            weakref.finalize(self, pin(self.images.ctypes.data, num_bytes=self.images.nbytes))

    @property
    def descriptor(self) -> int | None:
        """The file, to be sent to the processes that fill it; None once it is closed."""
        return self._descriptor if self._closes.alive else None

    def close_descriptor(self) -> None:
        """Close the file; the memory stays."""
        self._closes()


class SlotPool:
    """The slots that one group of workers fills.

    Not more than ``most_lent`` are lent at a time: whoever keeps more batches than that gets copies.
    """

    def __init__(self, shape: Shape, *, pin: Pin | None = None, most_lent: int = 8) -> None:
        self._shape, self._pin, self._most_lent = shape, pin, most_lent
        # Filled by whichever thread drops the last reference, in the middle of anything; appending is atomic. A number
        # stands for memory that is gone from here.
        self._free: deque[Slot | int] = deque()
        self._num_slots = 0
        self._num_taken = 0

    def take(self) -> Slot:
        """Return a slot that nobody reads, to be filled and then lent. Raises: WorkerError: as ``Slot``."""
        try:
            slot = self._free.pop()  # the last one in is the likeliest to be in a cache
        except IndexError:
            slot = Slot(self._num_slots, self._shape, pin=self._pin)
            self._num_slots += 1
        if isinstance(slot, int):
            slot = Slot(slot, self._shape, pin=self._pin)
        self._num_taken += 1
        return slot

    def lend(self, slot: Slot) -> Uint8s:
        """Return the pixels of a slot that was taken; it is free again once no array, view or tensor is left of it."""
        self._num_taken -= 1
        if self._num_slots - self._num_taken - len(self._free) > self._most_lent:
            copy = slot.images.copy()
            self._free.append(slot)
            return copy
        lease = _Lease(slot.images)
        weakref.finalize(lease, self._take_back, slot, num_forks=_forks.num).atexit = False
        return np.asarray(lease)

    def _take_back(self, slot: Slot, *, num_forks: int) -> None:
        self._free.append(slot if num_forks == _forks.num else slot.number)


class _Forks:
    """How often this process was forked: what was lent before, the other process may go on reading."""

    def __init__(self) -> None:
        self.num = 0
        os.register_at_fork(after_in_parent=self._count)

    def _count(self) -> None:
        self.num += 1


_forks = _Forks()


class _Lease:
    """What every array on lent memory keeps alive. An array would not do: views refer to what lies behind it."""

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, images: Uint8s) -> None:
        self.__array_interface__ = images.__array_interface__


def map_slot(descriptor: int, shape: Shape) -> Uint8s:
    """Return the pixels in the file of a slot; the array keeps them mapped. Raises: OSError."""
    return np.frombuffer(mmap.mmap(descriptor, math.prod(shape)), np.uint8).reshape(shape)


def _nameless_file(num_bytes: int) -> int:
    """Return the descriptor of a new file that is all there: a page that cannot be had later is a bus error."""
    descriptor = _new_file()
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, num_bytes)
        else:
            os.write(descriptor, bytes(num_bytes))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _no_memory(num_bytes: int, error: OSError) -> WorkerError:
    way_out = "Use smaller batches or pictures, fewer processes on this machine, or more memory"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        way_out = "Let this process have more of them (ulimit -n)"
    return WorkerError(f"no memory for a batch of {-(-num_bytes >> 20)} MiB: {error.strerror}. {way_out}")


def _new_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("wdsloader batch")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
