"""The watch over the loss: a batch that makes it NaN or infinite gets no update, and no step waits for the device.

The device keeps a flag that, once raised, makes the fused optimizer skip this update and all after it; the host reads
the flags at reports and before every checkpoint, and then names the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from resnettrain.errors import NonFiniteLossError

__all__ = ["FiniteGuard"]

_SHOWN_KEYS = 8
# Bounds what is remembered where reports are rare: one wait for the device in this many steps.
_MOST_UNREAD = 1000


@dataclass(frozen=True, slots=True)
class _Step:
    flag: Tensor
    loss: Tensor
    epoch: int
    samples: int
    keys: Sequence[str | None]


class FiniteGuard:
    """Flags of the steps that the host has not looked at yet.

    Args: agree: takes the largest of the flag over all ranks, in place: what stops one rank's update stops all.
    """

    def __init__(self, *, device: torch.device, agree: Callable[[Tensor], object] | None = None) -> None:
        self._flag = torch.zeros((), device=device)
        self._agree = agree
        self._unread: list[_Step] = []
        self._first: _Step | None = None

    def watch(self, loss: Tensor, *, epoch: int, samples: int, keys: Sequence[str | None]) -> Tensor:
        """Return the flag for the optimizer's `found_inf`: 1 from the first non-finite loss on, else 0.

        Args: samples: consumed before this batch.
        """
        if len(self._unread) >= _MOST_UNREAD:
            self.is_raised()
        finite = torch.isfinite(loss.detach())
        self._flag = torch.maximum(self._flag, (~finite).to(torch.float32))
        if self._agree is not None:
            self._agree(self._flag)
        self._unread.append(_Step(self._flag, loss.detach(), epoch, samples, keys))
        return self._flag

    def is_raised(self) -> bool:
        """Return whether any step so far had a loss that is not finite, on whatever rank. Waits for the device."""
        steps, self._unread = self._unread, []
        if self._first is None and steps and steps[-1].flag.item() != 0:
            self._first = next(step for step in steps if step.flag.item() != 0)
        return self._first is not None

    @property
    def found(self) -> bool:
        """Return whether an earlier look has found such a step; looks at nothing new."""
        return self._first is not None

    def failure(self) -> NonFiniteLossError | None:
        """Return the error of the first bad batch where it was this rank's: its epoch, position and keys."""
        if not self.is_raised() or self._first is None or bool(torch.isfinite(self._first.loss)):
            return None
        first = self._first
        keys = [str(key) for key in first.keys if key is not None]
        more = f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else ""
        shown = ", ".join(keys[:_SHOWN_KEYS]) + more
        return NonFiniteLossError(
            f"epoch {first.epoch + 1}, sample {first.samples} of the run: the loss is {first.loss.item()}; "
            f"its update was not made. Keys of the batch: {shown or 'unknown'}. "
            "Lower optim.lr, lengthen the warm-up, or look at these samples."
        )

    def check(self) -> None:
        """Look at the flags of all steps since the last look. Waits for the device.

        Raises: NonFiniteLossError: naming epoch, position and keys of the first bad batch.
        """
        error = self.failure()
        if error is not None:
            raise error
