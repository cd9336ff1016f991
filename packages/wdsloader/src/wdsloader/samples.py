"""Single samples of a dataset in the loader's order, packed as they lie in their shards: not decoded, no torch.

The same laws hold as for batches: the order is that of the position, a position is one integer, the ranks' samples are
disjoint and together all. A sample that cannot be delivered is left out, since there is no row to mask; positions do
not move. For those who decode in their own way: webdataset's decoders and stages take what ``as_dict`` gives.
Of shards whose counts are not known, samples come as the inexact mode has them: no length, no resume inside an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from wdsloader.account import FILTERED, LOST_SHARD, EpochAccount, Fault, Tally
from wdsloader.config import LoaderConfig
from wdsloader.dataset import Dataset
from wdsloader.errors import DatasetError, NoLengthError, SampleError
from wdsloader.hooks import SampleView
from wdsloader.mixing import MixedDataset
from wdsloader.pipeline import LaneRows, WorkerTask
from wdsloader.plan import Plan
from wdsloader.reading import PolicyReader
from wdsloader.rows import kept_view
from wdsloader.session import order_of, plan_of, resumed, schedule_of
from wdsloader.state import LoaderState
from wdsloader.streaming import StreamTask, stored_in, stream_samples

__all__ = ["SampleStream"]


class SampleStream:
    """Samples of a dataset: ``for sample in stream`` is one epoch, the rest of it after a resume or a ``break``.

    ``config``: its order, ``on_error``, ``labels`` and ``keep`` hold here; ``batch_size`` is the step in which ranks
    take turns, after which the state moves on, and what ``tail="drop"`` drops by. Works in this process.
    Raises: ConfigError: settings that do not fit. DatasetError: unknown sample counts with ``exact``. While it works:
        SampleError, DatasetError, FetchError, under "stop"; SkipLimitError; TransformError.
    """

    def __init__(
        self, dataset: Dataset | MixedDataset, config: LoaderConfig, *, rank: int = 0, world_size: int = 1
    ) -> None:
        if config.exact and dataset.counts is None:
            raise DatasetError("exact=True, and no manifest says how many samples the shards have; run `wds index`")
        self.dataset, self.config = dataset, config
        self.rank, self.world_size = rank, world_size
        self._state = order_of(dataset, config, world_size=world_size)
        self._plan = self._plan_of(self._state)
        self._row = 0
        self._tally: Tally | None = None

    def __len__(self) -> int:
        """Return how many samples a whole epoch has on this rank, those that turn out bad included.

        Raises: NoLengthError: in the inexact mode.
        """
        plan = self._plan
        if plan is None:
            raise NoLengthError("the sample counts of these shards are not known, so neither is the number of samples")
        steps = (step * plan.batch_size for step in range(plan.steps_from(0)))
        return sum(int((plan.positions(position) < plan.num_samples).sum()) for position in steps)

    def __iter__(self) -> Iterator[SampleView]:
        epoch = self._state.epoch
        if self.config.num_epochs is not None and epoch >= self.config.num_epochs:
            return
        if self._plan is None:
            yield from self._stream_epoch(epoch)
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
                yield from self._batch(self._plan, samples, epoch=epoch)
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

    def _plan_of(self, state: LoaderState) -> Plan | None:
        return plan_of(state, dataset=self.dataset, config=self.config, rank=self.rank, world_size=self.world_size)

    def _stream_epoch(self, epoch: int) -> Iterator[SampleView]:
        """Yield an epoch of the inexact mode, always from its start."""
        task = StreamTask(
            table=self.dataset.table, config=self.config, epoch=epoch, rank=self.rank, world_size=self.world_size
        )
        tally = self._open_tally(epoch, start=0, num_samples=None)
        for number, found in enumerate(stream_samples(task)):
            try:
                view = kept_view(*stored_in(found, task), config=self.config)
            except SampleError as error:
                if self.config.on_error == "stop" and error.kind != FILTERED:
                    raise
                lost = [error.shard] if error.kind == LOST_SHARD else []
                tally.add([] if lost else [Fault.of(error, position=number)], delivered=0, lost=lost)
                continue
            tally.add([], delivered=1)
            yield view
        self._state = replace(self._state, epoch=epoch + 1, position=0)
        tally.complete = True

    def _open_tally(self, epoch: int, *, start: int, num_samples: int | None) -> Tally:
        unknown = set(self.dataset.lost_shards)
        limit, share = self.config.max_skipped, None if num_samples is None else -(-num_samples // self.world_size)
        self._tally = Tally(epoch=epoch, start=start, limit=limit, epoch_samples=share, unknown_shards=unknown)
        return self._tally

    def _batch(self, plan: Plan, samples: _Samples, *, epoch: int) -> Iterator[SampleView]:
        """Yield what is left of the step that the state stands before, then move on to the next."""
        start, tally = self._state.position, self._tally
        if tally is None or tally.epoch != epoch:
            tally = self._open_tally(epoch, start=start, num_samples=plan.num_samples)
        positions = plan.positions(start)
        for position in positions[self._row :].tolist():
            self._row += 1
            if position >= plan.num_samples:
                break
            found = samples.at(position)
            if isinstance(found, Fault):
                tally.add([found], delivered=0)
            else:
                tally.add([], delivered=1)
                yield found
        end = plan.after(start)
        last = not plan.steps_from(end)
        self._state = replace(self._state, epoch=epoch + last, position=0 if last else end)
        self._row = 0
        tally.complete = last


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
        try:
            return kept_view(taken.found, self._rows.identity(taken, position=position), config=self._config)
        except SampleError as error:
            return Fault.of(error, position=position)

    def close(self) -> None:
        """Close every file."""
        self._reader.close()
