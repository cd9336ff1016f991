"""Figures of a run: sums kept on the device and read only when asked for, and the clock of the loop.

Nothing here makes the host wait for the device except `Window.means`, `Window.state` and `Totals.read`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["ClassFigures", "Meter", "Totals", "Window", "hits"]

_Item = TypeVar("_Item")


def hits(logits_NK: Tensor, labels_N: Tensor) -> Tensor:
    """Return 1 for every row whose best class is its label, else 0: float32 (N,)."""
    return (logits_NK.argmax(dim=1) == labels_N).to(torch.float32)


class Window:
    """Loss and accuracy of the last steps, as device scalars.

    Args: mean: averages a tensor over all ranks, in place, so that the figures are of the whole batch.
    """

    def __init__(self, num_steps: int, *, mean: Callable[[Tensor], Tensor] | None = None) -> None:
        self._steps: deque[Tensor] = deque(maxlen=num_steps)
        self._mean = mean

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, loss: Tensor, *, top1: Tensor) -> None:
        """Keep one step's loss and its share of right answers among the rows that count."""
        figures_2 = torch.stack([loss.detach().to(torch.float64), top1.to(torch.float64)])
        self._steps.append(figures_2 if self._mean is None else self._mean(figures_2))

    def means(self) -> tuple[float, float]:
        """Return (loss, top-1), the means over the steps kept. Waits for the device."""
        loss, top1 = torch.stack(list(self._steps)).mean(dim=0).tolist()
        return loss, top1

    def state(self) -> Tensor:
        """Return the steps kept as float64 (n, 2) in host memory."""
        return torch.stack(list(self._steps)).cpu() if self._steps else torch.zeros(0, 2, dtype=torch.float64)

    def load(self, state_N2: Tensor, *, device: torch.device) -> None:
        """Put back what `state` gave."""
        self._steps.extend(state_N2.to(device).unbind(dim=0))


class Totals:
    """Sums over an evaluation: loss, right at 1, right at 5, count. float64 on the device, one read at the end.

    Args: num_classes: also count, for every class, what its samples were taken for.
    """

    def __init__(self, *, device: torch.device, num_classes: int | None = None) -> None:
        self._sums_4 = torch.zeros(4, dtype=torch.float64, device=device)
        self._confusion_KK = self._correct5_K = None
        if num_classes is not None:
            self._confusion_KK = torch.zeros(num_classes, num_classes, dtype=torch.int64, device=device)
            self._correct5_K = torch.zeros(num_classes, dtype=torch.int64, device=device)

    def add(self, logits_NK: Tensor, labels_N: Tensor, *, weights_N: Tensor) -> None:
        """Add a batch; rows of weight 0 add nothing, whatever is in them."""
        losses_N = functional.cross_entropy(logits_NK, labels_N, reduction="none")
        best_Nk = logits_NK.topk(min(5, logits_NK.shape[1]), dim=1).indices
        hits_Nk = best_Nk == labels_N.unsqueeze(1)
        rows_4N = torch.stack([losses_N, hits_Nk[:, 0].float(), hits_Nk.any(dim=1).float(), torch.ones_like(losses_N)])
        # where and not a product: a padding row's loss may be infinite.
        self._sums_4 += torch.where(weights_N > 0, rows_4N * weights_N, 0.0).to(self._sums_4.dtype).sum(dim=1)
        if self._confusion_KK is not None and self._correct5_K is not None:
            counted_N = (weights_N > 0).to(torch.int64)
            pairs_N = labels_N * len(self._confusion_KK) + best_Nk[:, 0]
            self._confusion_KK.view(-1).index_add_(0, pairs_N, counted_N)
            self._correct5_K.index_add_(0, labels_N, counted_N * hits_Nk.any(dim=1))

    def reduce(self, sum_: Callable[[Tensor], Tensor]) -> None:
        """Add up the sums of all ranks, each in place."""
        for sums in (self._sums_4, self._confusion_KK, self._correct5_K):
            if sums is not None:
                sum_(sums)

    def read(self) -> tuple[float, float, float, float]:
        """Return (loss sum, right at 1, right at 5, count). Waits for the device."""
        loss, correct1, correct5, count = self._sums_4.tolist()
        return loss, correct1, correct5, count

    def classes(self) -> ClassFigures | None:
        """Return the figures of each class where they were asked for. Waits for the device."""
        if self._confusion_KK is None or self._correct5_K is None:
            return None
        return ClassFigures(confusion=self._confusion_KK.cpu(), correct5=self._correct5_K.cpu())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassFigures:
    """What the samples of each class were taken for.

    `confusion`: int64 (K, K), how many samples of the class of the row were taken for that of the column.
    `correct5`: int64 (K,), of how many samples the class was among the five likeliest. `names`: where they are known.
    """

    confusion: Tensor
    correct5: Tensor
    names: tuple[str, ...] | None = None

    @property
    def counts(self) -> Tensor:
        """Return the number of samples of each class, int64 (K,)."""
        return self.confusion.sum(dim=1)

    @property
    def correct1(self) -> Tensor:
        """Return how many of them were taken for what they are, int64 (K,)."""
        return self.confusion.diagonal()


class Meter:
    """Images a second over all the time that passes, and the share of it spent waiting for data."""

    def __init__(self, *, every_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._every_s = every_s
        self._clock = clock
        self._last = clock()
        self._images = 0
        self._wait_s = 0.0
        self.total_images = 0
        self.total_wait_s = 0.0

    def now(self) -> float:
        """Return the clock's time in seconds."""
        return self._clock()

    def waiting(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Hand items on and note how long each was waited for: as `feed.Waiting`."""
        iterator = iter(items)
        while True:
            begin = self._clock()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                waited_s = self._clock() - begin
                self._wait_s += waited_s
                self.total_wait_s += waited_s
            yield item

    def due(self) -> bool:
        """Return whether a report is due: `every_s` have passed since the last one."""
        return self._clock() - self._last >= self._every_s

    def count(self, num_images: int) -> None:
        """Note images that have been trained on."""
        self._images += num_images
        self.total_images += num_images

    def restart(self) -> None:
        """Begin a new interval, as after a validation, whose time is not training time."""
        self._last, self._images, self._wait_s = self._clock(), 0, 0.0

    def read(self) -> tuple[float, float]:
        """Return (images a second, share of time waiting) since the last read, and begin a new interval."""
        passed_s = max(self._clock() - self._last, 1e-9)
        figures = (self._images / passed_s, min(1.0, self._wait_s / passed_s))
        self.restart()
        return figures
