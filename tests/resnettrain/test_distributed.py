from __future__ import annotations

from pathlib import Path

import pytest
import torch

from resnettrain import EvalResult, Rank, TrainConfig, build_model, with_values
from resnettrain.distributed import open_ranks
from resnettrain.evaluate import Evaluator
from resnettrain.numerics import Numerics
from tests.helpers.picture_sets import PictureSet
from tests.helpers.ranks import run_ranks
from wdsloader import open_dataset

CPU = Numerics.of(TrainConfig().runtime)


def evaluated(place: Rank, urls: list[str], batch_sizes: list[int], num_workers: int) -> list[EvalResult | None]:
    """Return the figures of one model for each batch size."""
    results = []
    with open_ranks(place) as ranks, open_dataset(urls) as dataset:
        for batch_size in batch_sizes:
            config = with_values(
                TrainConfig(),
                {
                    "data": {"batch_size": batch_size, "num_workers": num_workers},
                    "model": {"image_size": 32},
                    "eval": {"classes": True, "flip": True},
                },
            )
            with Evaluator(dataset, config, numerics=CPU, num_classes=4, ranks=ranks) as evaluator:
                results.append(evaluator.run(build_model("tiny", num_classes=4, seed=0)))
    return results


@pytest.fixture(scope="module")
def alone(val_set: PictureSet) -> EvalResult:
    torch.set_num_threads(1)
    (result,) = evaluated(Rank(), [str(val_set.manifest)], [16], 0)
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("world_size", "num_workers"),
    [(2, 0), (3, 0), pytest.param(2, 2, marks=pytest.mark.slow), pytest.param(3, 2, marks=pytest.mark.slow)],
)
def test_each_of_101_samples_counts_once_on_any_number_of_ranks(
    val_set: PictureSet, alone: EvalResult, tmp_path: Path, world_size: int, num_workers: int
) -> None:
    # With 64 a rank, two ranks fill more than all: with 3 the last has no sample at all.
    sizes = [1, 7, 64]
    found = run_ranks(
        evaluated, [str(val_set.manifest)], sizes, num_workers, world_size=world_size, folder=tmp_path, timeout_s=120
    )
    assert alone.classes is not None
    assert alone.flip is not None
    for of_rank in found:
        for result in of_rank:
            assert (result.count, result.correct1, result.correct5) == (101, alone.correct1, alone.correct5)
            assert result.loss == pytest.approx(alone.loss, rel=1e-5)
            assert torch.equal(result.classes.confusion, alone.classes.confusion)
            assert (result.flip.top1, result.flip.top5) == (alone.flip.top1, alone.flip.top5)
        assert [result.loss for result in of_rank] == [result.loss for result in found[0]]


def test_the_figures_of_the_classes_add_up_to_those_of_all(alone: EvalResult) -> None:
    assert alone.classes is not None
    assert int(alone.classes.confusion.sum()) == 101
    assert int(alone.classes.correct1.sum()) == alone.correct1
    assert int(alone.classes.correct5.sum()) == alone.correct5
    assert sorted(alone.classes.counts.tolist()) == [25, 25, 25, 26]
