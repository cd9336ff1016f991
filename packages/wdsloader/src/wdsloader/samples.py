"""Single samples of a dataset in the loader's order, packed as they lie in their shards: not decoded, no torch.

The same laws hold as for batches: the order is that of the position, a position is one integer, the ranks' samples are
disjoint and together all. A sample that cannot be delivered is left out, since there is no row to mask; positions do
not move. For those who decode in their own way: webdataset's decoders and stages take what ``as_dict`` gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from wdsloader.account import EpochAccount, Fault, Tally
from wdsloader.config import LoaderConfig
from wdsloader.dataset import Dataset
from wdsloader.errors import DatasetError, SampleError
from wdsloader.hooks import SampleView, apply_keep
from wdsloader.mixing import MixedDataset
from wdsloader.pipeline import LaneRows, WorkerTask, filtered, view_of
from wdsloader.plan import Plan
from wdsloader.reading import PolicyReader
from wdsloader.session import order_of, plan_of, resumed, schedule_of
from wdsloader.state import LoaderState

__all__ = ["SampleStream"]


class SampleStream:
    """Samples of a dataset: ``for sample in stream`` is one epoch, the rest of it after a resume or a ``break``.

    ``config``: its order, ``on_error``, ``labels`` and ``keep`` hold here; ``batch_size`` is the step in which ranks
    take turns, after which the state moves on, and what ``tail="drop"`` drops by. Works in this process.
    Raises: ConfigError: settings that do not fit. DatasetError: sample counts are not known. While it works:
        SampleError, DatasetError, FetchError, under "stop"; SkipLimitError; TransformError.
    """

    def __init__(
        self, dataset: Dataset | MixedDataset, config: LoaderConfig, *, rank: int = 0, world_size: int = 1
    ) -> None:
        self.dataset, self.config = dataset, config
        self.rank, self.world_size = rank, world_size
        self._state = order_of(dataset, config, world_size=world_size)
        self._plan = self._plan_of(self._state)
        self._row = 0
        self._tally: Tally | None = None

    def __len__(self) -> int:
        """Return how many samples a whole epoch has on this rank, those that turn out bad included."""
        plan = self._plan
        steps = (step * plan.batch_size for step in range(plan.steps_from(0)))
        return sum(int((plan.positions(position) < plan.num_samples).sum()) for position in steps)

    def __iter__(self) -> Iterator[SampleView]:
        epoch = self._state.epoch
        if self.config.num_epochs is not None and epoch >= self.config.num_epochs:
            return
        task = WorkerTask(
            table=self.dataset.table,
            config=self.config,
            plan=self._plan,
            state=self._state,
            schedule=schedule_of(self.dataset, self._state),
        )
        samples = _Samples(task, epoch=epoch)
        try:
            while self._state.epoch == epoch:
                yield from self._batch(samples, epoch=epoch)
        finally:
            samples.close()

    @property
    def account(self) -> EpochAccount | None:
        """What the epoch of the last sample was to deliver and did, on this rank; None before the first."""
        return None if self._tally is None else self._tally.account()

    def state_dict(self) -> dict[str, int | str | None]:
        """Return the state at the begin of the step that the last sample was taken from; equal on every rank."""
        return self._state.to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was saved, also with other ranks. Raises: ConfigError: it does not fit."""
        saved = LoaderState.from_dict(state)
        self._state = resumed(
            saved, dataset=self.dataset, config=self.config, rank=self.rank, world_size=self.world_size
        )
        self._plan, self._row, self._tally = self._plan_of(self._state), 0, None

    def _plan_of(self, state: LoaderState) -> Plan:
        plan = plan_of(state, dataset=self.dataset, config=self.config, rank=self.rank, world_size=self.world_size)
        if plan is None:
            raise DatasetError("single samples need sample counts, and no manifest has them; run `wds index`")
        return plan

    def _batch(self, samples: _Samples, *, epoch: int) -> Iterator[SampleView]:
        """Yield what is left of the step that the state stands before, then move on to the next."""
        plan, start = self._plan, self._state.position
        if self._tally is None or self._tally.epoch != epoch:
            limit, share = self.config.max_skipped, -(-plan.num_samples // self.world_size)
            unknown = set(self.dataset.lost_shards)
            self._tally = Tally(epoch=epoch, start=start, limit=limit, epoch_samples=share, unknown_shards=unknown)
        positions = plan.positions(start)
        for position in positions[self._row :].tolist():
            self._row += 1
            if position >= plan.num_samples:
                break
            found = samples.at(position)
            if isinstance(found, Fault):
                self._tally.add([found], delivered=0)
            else:
                self._tally.add([], delivered=1)
                yield found
        end = plan.after(start)
        last = not plan.steps_from(end)
        self._state = replace(self._state, epoch=epoch + last, position=0 if last else end)
        self._row = 0
        self._tally.complete = last


class _Samples:
    """The samples of one rank in one epoch, to be taken by ascending position."""

    def __init__(self, task: WorkerTask, *, epoch: int) -> None:
        self._config = task.config
        self._reader = PolicyReader(task.table, task.config, max_indexes=task.max_indexes)
        self._rows = LaneRows(task, self._reader, epoch=epoch)

    def at(self, position: int) -> SampleView | Fault:
        """Return the sample at a position, or why there is none. Raises: SampleError: under "stop". TransformError."""
        taken = self._rows.take(position)
        if isinstance(taken.found, SampleError):
            return Fault.of(taken.found, position=position)
        identity = self._rows.identity(taken, position=position)
        view = view_of(taken.found, identity)
        keep, key = self._config.keep, (self._config.seed, identity.epoch, "keep", identity.name)
        if keep is None or apply_keep(keep, view, key=key):
            return view
        return Fault.of(filtered(taken.found), position=position)

    def close(self) -> None:
        """Close every file."""
        self._reader.close()
