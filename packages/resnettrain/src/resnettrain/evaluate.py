"""Evaluation: every sample of a dataset exactly once, or an error.

The same `Evaluator` serves the end of an epoch, `wds eval` and the demo, so that their figures are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from resnettrain.config import TrainConfig
from resnettrain.distributed import Ranks, open_ranks
from resnettrain.errors import CheckpointError, DataMismatchError, EvaluationError
from resnettrain.feed import require_labels
from resnettrain.gpu_augment import Normalizer
from resnettrain.metrics import ClassFigures, Totals
from resnettrain.model import build_model
from resnettrain.numerics import Numerics, global_switches, require_decoder
from resnettrain.progress import Progress, ValProgress, silent
from resnettrain.rank import Rank
from resnettrain.resume import find_start
from resnettrain.state import config_of
from shardkit import counted
from wdsloader import Dataset, EpochAccount, LoaderConfig, TorchLoader, open_dataset

__all__ = ["EvalResult", "Evaluator", "Figures", "evaluate_checkpoint", "require_label_range", "require_same_classes"]

# A report of progress costs nothing beside a batch; ten a second are enough for a bar.
_PROGRESS_S = 0.1
_NAMED_CAUSES = 3
# Of what is counted, in lines on what could not be delivered: it has no epochs.
_NAME = "validation"
# Of the device's free memory; training wants the rest.
_CACHE_SHARE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Shares of right answers among the first and the first five, and the mean plain cross-entropy."""

    top1: float
    top5: float
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """Figures over all samples of a dataset, padding left out. `loss` is the plain cross-entropy.

    `flip`: the figures of the mean answer to each picture and its mirror image, where that was asked for. `classes`:
    class by class, where that was.
    """

    top1: float
    top5: float
    loss: float
    count: int
    correct1: int
    correct5: int
    seconds: float
    flip: Figures | None = None
    classes: ClassFigures | None = None


class Evaluator:
    """A validation set that stays open, with its workers or on the device, from one evaluation to the next.

    Every rank makes the same number of steps, and has in each its share of the rows.
    Raises: EvaluationError: the number of samples is unknown, so that "exactly once" cannot be checked.
    """

    def __init__(
        self, dataset: Dataset, config: TrainConfig, *, numerics: Numerics, num_classes: int, ranks: Ranks | None = None
    ) -> None:
        if dataset.counts is None:
            raise EvaluationError(
                f"{dataset.urls[0]}: the number of samples is unknown (no index, no manifest), so no exact evaluation "
                "is possible. Make the index with `wds index`, or name the manifest."
            )
        require_label_range(dataset, num_classes=num_classes)
        self._name, self._num_samples = dataset.urls[0], sum(dataset.counts)
        self._numerics, self._num_classes, self._config = numerics, num_classes, config.eval
        self._normalize = Normalizer(channels_last=numerics.channels_last)
        self._ranks = ranks or Ranks()
        self._loader = TorchLoader(
            dataset,
            LoaderConfig(
                batch_size=config.data.batch_size,
                image_size=config.eval.image_size or config.model.image_size,
                shuffle=False,
                tail="pad",
                num_workers=config.data.num_workers,
                augment=None,
                exact=True,
                # To the end in any case: what is missing is reported whole, and no figure is given.
                on_error=config.data.on_error,
                max_skipped=1.0,
                decode=config.data.decode,
            ),
            device=numerics.device,
            rank=self._ranks.place.rank,
            world_size=self._ranks.world_size,
            name=_NAME,
        )
        self._keeps = self._is_kept()
        self._kept: list[_Rows] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def run(
        self, model: nn.Module, *, progress: Progress = silent, must_stop: Callable[[], bool] | None = None
    ) -> EvalResult | None:
        """Return the figures of a model on its device, the same on every rank.

        Args: must_stop: asked after each step, with the same answer on all ranks; where it is true, None is returned.
        Raises: EvaluationError: not every sample was counted exactly once. PeerError: the same, where the first tells.
        """
        begin = told = time.perf_counter()
        num_classes = self._num_classes if self._config.classes else None
        totals = Totals(device=self._numerics.device, num_classes=num_classes)
        mirrored = Totals(device=self._numerics.device) if self._config.flip else None
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                for rows in self._rows():
                    images = self._normalize(rows.images)
                    logits_NK = self._answer(model, images)
                    totals.add(logits_NK, rows.labels, weights_N=rows.weights)
                    if mirrored is not None:
                        both_NK = (logits_NK + self._answer(model, images.flip(3))) / 2
                        mirrored.add(both_NK, rows.labels, weights_N=rows.weights)
                    if must_stop is not None and must_stop():
                        return None
                    if time.perf_counter() - told > _PROGRESS_S:
                        told = time.perf_counter()
                        progress(ValProgress(count=rows.position, total=self._num_samples))
        finally:
            model.train(was_training)
        for sums in filter(None, (totals, mirrored)):
            sums.reduce(self._ranks.sum_)
        return self._result(totals, mirrored, seconds=time.perf_counter() - begin)

    def close(self) -> None:
        """End the workers."""
        self._loader.close()

    def _answer(self, model: nn.Module, images: Tensor) -> Tensor:
        with self._numerics.autocast():
            logits_NK: Tensor = model(images)
        return logits_NK.float()

    def _rows(self) -> Iterator[_Rows]:
        """Hand out this rank's rows: from the device once they are all there, else from the workers."""
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[_Rows] = []
        for batch in self._loader:
            require_labels(batch.labels, num_classes=self._num_classes, keys=batch.keys)
            images, labels, weights = map(self._moved, (batch.images, batch.labels, batch.weights))
            rows = _Rows(images=images, labels=labels, weights=weights, position=batch.position)
            if self._keeps:
                kept.append(rows)
            yield rows
        account = self._loader.account
        # What could not be delivered may be there the next time.
        if self._keeps and account is not None and not account.replaced and not account.lost_shards:
            self._kept = kept
            self._loader.close()

    def _moved(self, tensor: Tensor) -> Tensor:
        """Return a tensor on the device; one that is there already as it is."""
        # From pinned memory the copy goes on in the background; from any other the host waits for it.
        device = self._numerics.device
        if device.type == "cuda" and tensor.device.type == "cpu":
            return tensor.pin_memory().to(device, non_blocking=True)
        return tensor.to(device)

    def _is_kept(self) -> bool:
        """Return whether the pictures may stay on the device."""
        if self._config.cache != "auto":
            return self._config.cache == "on"
        if self._numerics.device.type != "cuda":
            return False
        free_bytes, _ = torch.cuda.mem_get_info(self._numerics.device)
        loader = self._loader
        wanted_bytes = len(loader) * loader.config.batch_size * loader.config.image_size**2 * 3
        return wanted_bytes < free_bytes * _CACHE_SHARE

    def _result(self, totals: Totals, mirrored: Totals | None, *, seconds: float) -> EvalResult:
        loss, correct1, correct5, count = totals.read()
        expected, account = self._num_samples, self._loader.account
        lost = () if account is None else account.lost_shards
        # A shard that is lost to one rank is lost to all: the list is made when the dataset is opened.
        if count != expected or lost:
            told = None if account is None else (account.in_words(_NAME), _first_causes(account))
            accounts = self._ranks.gather_objects(told)
            missing = "".join(f" {text}; first {causes}." for text, causes in filter(None, accounts) if causes)
            mend = " Mend the shards (wds repair)." if missing else ""
            raise self._ranks.agreed(
                EvaluationError(
                    f"{self._name}: {counted(int(count), 'sample was/samples were')} counted, the dataset has "
                    f"{expected}. No figure is given."
                    f"{missing}{mend}"
                )
            )
        return EvalResult(
            top1=correct1 / count,
            top5=correct5 / count,
            loss=loss / count,
            count=int(count),
            correct1=int(correct1),
            correct5=int(correct5),
            seconds=seconds,
            flip=None if mirrored is None else _figures(mirrored),
            classes=totals.classes(),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """Rows on the device: images uint8 (N, H, W, 3), labels, weights; and how many samples are done after them."""

    images: Tensor
    labels: Tensor
    weights: Tensor
    position: int


def _figures(totals: Totals) -> Figures:
    loss, correct1, correct5, count = totals.read()
    return Figures(top1=correct1 / count, top5=correct5 / count, loss=loss / count)


def _first_causes(account: EpochAccount) -> str:
    return "; ".join([*map(str, account.faults), *account.lost_shards][:_NAMED_CAUSES])


def evaluate_checkpoint(
    checkpoint: Path,
    urls: Sequence[str],
    *,
    overrides: TrainConfig | None = None,
    progress: Progress = silent,
    place: Rank | None = None,
) -> EvalResult:
    """Return the figures of a checkpoint (a file, or a run folder's newest) on a dataset, as validation gave them.

    Args: overrides: its `data`, `eval` and `runtime` replace the checkpoint's; None keeps those of the run, but
        no leave to run commands: a checkpoint may come from anywhere.  place: of several ranks, which this process is;
        each calls this.
    Raises: CheckpointError, DataMismatchError, EvaluationError, and wdsloader's errors. PeerError: another rank failed.
    """
    place = place or Rank()
    with open_ranks(place) as ranks:
        start = find_start(checkpoint, run_dir=None, ranks=ranks)
        if start is None:
            raise CheckpointError(f"{checkpoint}: there is no such checkpoint. Name one, or a run folder.")
        identity, config = start.identity, config_of(start.content)
        overrides = ranks.from_first(overrides)
        if overrides is not None:
            config = replace(config, data=overrides.data, eval=overrides.eval, runtime=overrides.runtime)
        allow_commands = overrides is not None and overrides.data.allow_commands
        numerics = Numerics.of(config.runtime, local_rank=place.local_rank)
        ranks.require_own_device(numerics.device)
        require_decoder(config.data.decode, device=numerics.device)
        model = build_model(identity.model, num_classes=identity.num_classes, seed=0, antialias=config.model.antialias)
        try:
            average = start.content.get("ema") if config.eval.weights != "model" else None
            model.load_state_dict(average or start.content["model"])
        except RuntimeError as error:
            raise CheckpointError(f"{start.path}: does not fit the model {identity.model}: {error}") from error
        with global_switches(numerics, threads=config.runtime.threads), ExitStack() as stack:
            with ranks.in_turn():
                dataset = stack.enter_context(
                    open_dataset(
                        urls,
                        cache=config.data.cache(),
                        allow_commands=allow_commands,
                        exact=True,
                        on_error=config.data.on_error,
                    )
                )
            require_same_classes(identity.classes, dataset.classes, names=(str(start.path), dataset.urls[0]))
            evaluator = stack.enter_context(
                Evaluator(dataset, config, numerics=numerics, num_classes=identity.num_classes, ranks=ranks)
            )
            result = evaluator.run(numerics.place(model), progress=progress if ranks.is_first else silent)
    if result is None:
        raise EvaluationError(f"{urls[0]}: the evaluation was stopped.")
    if result.classes is None:
        return result
    return replace(result, classes=replace(result.classes, names=identity.classes))


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
