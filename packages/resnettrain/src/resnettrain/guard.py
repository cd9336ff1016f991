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
# fp16 holds nothing at this scale: that far the scaler gets only where every single update overflows.
_LEAST_SCALE = 2.0**-24


@dataclass(frozen=True, slots=True)
class _Step:
    """`flag`: no update from here on. `loss_flag`: for the sake of a loss, on whatever rank."""

    flag: Tensor
    loss_flag: Tensor
    loss: Tensor
    epoch: int
    samples: int
    keys: Sequence[str | None]


class FiniteGuard:
    """Flags of the steps that the host has not looked at yet.

    Args: agree: takes the largest of a flag over all ranks, in place: what stops one rank's update stops all.  scale:
    returns the scale of fp16's scaler, where there is one.
    """

    def __init__(
        self,
        *,
        device: torch.device,
        agree: Callable[[Tensor], object] | None = None,
        scale: Callable[[], float] | None = None,
    ) -> None:
        self._flag = torch.zeros((), device=device)
        self._agree, self._scale = agree, scale
        self._unread: list[_Step] = []
        self._first: _Step | None = None

    def watch(
        self, loss: Tensor, *, norm: Tensor | None = None, epoch: int, samples: int, keys: Sequence[str | None]
    ) -> Tensor:
        """Return the flag for the optimizer's `found_inf`: 1 from the first non-finite loss of any rank on, else 0.

        Args: norm: of all gradients together, the same on every rank; it may be infinite where the loss is not.
        samples: consumed before this batch.
        """
        if len(self._unread) >= _MOST_UNREAD:
            self.is_raised()
        loss = loss.detach()
        flag = loss_flag = (~torch.isfinite(loss)).to(torch.float32)
        if self._agree is not None:
            self._agree(loss_flag)
        if norm is not None:
            flag = torch.maximum(loss_flag, (~torch.isfinite(norm)).to(torch.float32))
        self._flag = torch.maximum(self._flag, flag)
        self._unread.append(_Step(self._flag, loss_flag, loss, epoch, samples, keys))
        return self._flag

    def is_raised(self) -> bool:
        """Return whether any step so far was not finite, on whatever rank. Waits for the device.

        Raises: NonFiniteLossError: fp16 overflows at every scale, on all ranks alike.
        """
        steps, self._unread = self._unread, []
        if self._first is None and steps and steps[-1].flag.item() != 0:
            self._first = next(step for step in steps if step.flag.item() != 0)
        if self._first is None and steps and self._scale is not None and self._scale() < _LEAST_SCALE:
            raise NonFiniteLossError(
                f"epoch {steps[-1].epoch + 1}, sample {steps[-1].samples} of the run: the gradients overflow fp16 "
                "at every scale, and for long the weights have stayed as they were. Set runtime.precision=bf16, or a "
                "lower optim.lr."
            )
        return self._first is not None

    @property
    def found(self) -> bool:
        """Return whether an earlier look has found such a step; looks at nothing new."""
        return self._first is not None

    def failure(self) -> NonFiniteLossError | None:
        """Return the error of the first bad batch where it was this rank's: its epoch, position and keys.

        Gradients that are not finite, where every loss is, are those of all ranks: each names its own batch.
        """
        if not self.is_raised() or self._first is None:
            return None
        first, what = self._first, f"the loss is {self._first.loss.item()}"
        if bool(torch.isfinite(first.loss)):
            if first.loss_flag.item() != 0:
                return None
            what = f"gradients are not finite, though the loss is {first.loss.item():.4g}"
        keys = [str(key) for key in first.keys if key is not None]
        more = f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else ""
        shown = ", ".join(keys[:_SHOWN_KEYS]) + more
        return NonFiniteLossError(
            f"epoch {first.epoch + 1}, sample {first.samples} of the run: {what}; "
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
