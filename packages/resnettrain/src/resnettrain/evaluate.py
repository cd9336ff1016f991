"""Evaluation: every sample of a dataset exactly once, or an error.

The same `Evaluator` serves the end of an epoch, `wds eval` and the demo, so that their figures are the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch
from torch import nn

from resnettrain.checkpoint import find_checkpoint
from resnettrain.config import TrainConfig
from resnettrain.errors import CheckpointError, DataMismatchError, EvaluationError
from resnettrain.feed import to_device
from resnettrain.gpu_augment import Normalizer
from resnettrain.metrics import Totals
from resnettrain.model import build_model
from resnettrain.numerics import Numerics, global_switches
from resnettrain.progress import Progress, ValProgress, silent
from resnettrain.state import config_of, identity_of
from resnettrain.stop import StopRequest
from shardkit import counted
from wdsloader import Dataset, EpochAccount, LoaderConfig, TorchLoader, open_dataset

__all__ = ["EvalResult", "Evaluator", "evaluate_checkpoint", "require_label_range", "require_same_classes"]

# A report of progress costs nothing beside a batch; ten a second are enough for a bar.
_PROGRESS_S = 0.1
_NAMED_CAUSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """Figures over all samples of a dataset, padding left out. `loss` is the plain cross-entropy."""

    top1: float
    top5: float
    loss: float
    count: int
    correct1: int
    correct5: int
    seconds: float


class Evaluator:
    """A validation set that stays open: its workers live on from one evaluation to the next.

    Raises: EvaluationError: the number of samples is unknown, so that "exactly once" cannot be checked.
    """

    def __init__(self, dataset: Dataset, config: TrainConfig, *, numerics: Numerics, num_classes: int) -> None:
        if dataset.counts is None:
            raise EvaluationError(
                f"{dataset.urls[0]}: the number of samples is unknown (no index, no manifest), so no exact evaluation "
                "is possible. Make the index with `wds index`, or name the manifest."
            )
        require_label_range(dataset, num_classes=num_classes)
        self._name, self._num_samples = dataset.urls[0], sum(dataset.counts)
        self._numerics, self._num_classes = numerics, num_classes
        self._normalize = Normalizer(channels_last=numerics.channels_last)
        self._loader = TorchLoader(
            dataset,
            LoaderConfig(
                batch_size=config.data.batch_size,
                image_size=config.model.image_size,
                shuffle=False,
                tail="pad",
                num_workers=config.data.num_workers,
                augment=None,
                exact=True,
                # To the end in any case: what is missing is reported whole, and no figure is given.
                on_error=config.data.on_error,
                max_skipped=1.0,
            ),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def run(
        self, model: nn.Module, *, progress: Progress = silent, stop: StopRequest | None = None
    ) -> EvalResult | None:
        """Return the figures of a model on its device, or None where `stop` was asked for in the middle.

        Raises: EvaluationError: not every sample was counted exactly once.
        """
        begin = told = time.perf_counter()
        totals = Totals(device=self._numerics.device)
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                for batch in self._loader:
                    moved = to_device(
                        batch, numerics=self._numerics, num_classes=self._num_classes, normalize=self._normalize
                    )
                    with self._numerics.autocast():
                        logits_NK = model(moved.images)
                    totals.add(logits_NK.float(), moved.labels, weights_N=moved.weights)
                    if stop is not None and stop.signal is not None:
                        return None
                    if time.perf_counter() - told > _PROGRESS_S:
                        told = time.perf_counter()
                        progress(ValProgress(count=batch.position, total=self._num_samples))
        finally:
            model.train(was_training)
        return self._result(totals, seconds=time.perf_counter() - begin)

    def close(self) -> None:
        """End the workers."""
        self._loader.close()

    def _result(self, totals: Totals, *, seconds: float) -> EvalResult:
        loss, correct1, correct5, count = totals.read()
        expected, account = self._num_samples, self._loader.account
        lost = () if account is None else account.lost_shards
        if count != expected or lost:
            missing = "" if account is None else f" {account}; first {_first_causes(account)}."
            raise EvaluationError(
                f"{self._name}: {count:.0f} samples were counted, the dataset has {expected}. No figure is given."
                f"{missing}"
            )
        return EvalResult(
            top1=correct1 / count,
            top5=correct5 / count,
            loss=loss / count,
            count=int(count),
            correct1=int(correct1),
            correct5=int(correct5),
            seconds=seconds,
        )


def _first_causes(account: EpochAccount) -> str:
    return "; ".join([*map(str, account.faults), *account.lost_shards][:_NAMED_CAUSES])


def evaluate_checkpoint(
    checkpoint: Path,
    urls: Sequence[str],
    *,
    overrides: TrainConfig | None = None,
    progress: Progress = silent,
) -> EvalResult:
    """Return the figures of a checkpoint (a file, or a run folder's newest) on a dataset, as validation gave them.

    Args: overrides: its `data` and `runtime` replace the checkpoint's; None keeps those of the run, but no leave to run
        commands: a checkpoint may come from anywhere.
    Raises: CheckpointError, DataMismatchError, EvaluationError, and wdsloader's errors.
    """
    path, content = find_checkpoint(checkpoint)
    identity, config = identity_of(content, path=path), config_of(content)
    if overrides is not None:
        config = replace(config, data=overrides.data, runtime=overrides.runtime)
    allow_commands = overrides is not None and overrides.data.allow_commands
    numerics = Numerics.of(config.runtime)
    model = build_model(identity.model, num_classes=identity.num_classes, seed=0)
    try:
        model.load_state_dict(content["model"])
    except RuntimeError as error:
        raise CheckpointError(f"{path}: does not fit the model {identity.model}: {error}") from error
    with (
        global_switches(numerics, threads=config.runtime.threads),
        open_dataset(
            urls,
            cache=config.data.cache(),
            allow_commands=allow_commands,
            exact=True,
            on_error=config.data.on_error,
        ) as dataset,
    ):
        require_same_classes(identity.classes, dataset.classes, names=(str(path), dataset.urls[0]))
        with Evaluator(dataset, config, numerics=numerics, num_classes=identity.num_classes) as evaluator:
            result = evaluator.run(numerics.place(model), progress=progress)
    if result is None:
        raise EvaluationError(f"{urls[0]}: the evaluation was stopped.")
    return result


def require_label_range(dataset: Dataset, *, num_classes: int) -> None:
    """Refuse a dataset with labels outside 0..num_classes-1, where its labels are known.

    Raises: DataMismatchError: naming the range found and the one allowed, the shard and the key.
    """
    found = dataset.label_range()
    if found is None:
        return
    if found.lowest < 0:
        raise DataMismatchError(
            f"{found.lowest_at} has no label from 0 up, perhaps not alone. `wds validate` names all such samples: mend "
            "or remove them."
        )
    if found.highest >= num_classes:
        raise DataMismatchError(
            f"{found.highest_at} has label {found.highest}: labels {found.lowest}..{found.highest} are outside "
            f"0..{num_classes - 1}. Set model.num_classes={found.highest + 1}, or mend the labels."
        )


def require_same_classes(
    first: tuple[str, ...] | None, second: tuple[str, ...] | None, *, names: tuple[str, str]
) -> None:
    """Refuse two class lists that differ; a list that is not known differs from none.

    Raises: DataMismatchError: naming the first place where they differ.
    """
    if not first or not second or first == second:
        return
    pairs = enumerate(zip(first, second, strict=False))
    place = next((number for number, (one, other) in pairs if one != other), min(len(first), len(second)))
    words = [f"'{classes[place]}'" if place < len(classes) else "no such class" for classes in (first, second)]
    raise DataMismatchError(
        f"{names[0]} and {names[1]} have different class lists ({len(first)} and "
        f"{counted(len(second), 'class/classes')}): "
        f"class {place} is {words[0]} in the first and {words[1]} in the second. Pack both with one class list."
    )
