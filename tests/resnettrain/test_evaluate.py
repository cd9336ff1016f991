from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from resnettrain import (
    DataMismatchError,
    EvaluationError,
    Rank,
    TrainConfig,
    build_model,
    evaluate_checkpoint,
    read_metrics,
    recipe,
    train,
    with_values,
)
from resnettrain.distributed import open_ranks
from resnettrain.evaluate import EvalResult, Evaluator, require_same_classes
from resnettrain.gpu_augment import normalize
from resnettrain.numerics import Numerics
from shardkit import iter_samples
from tests.helpers.damaged import write_with_bad_pictures
from tests.helpers.picture_sets import PictureSet, make_picture_set, tiny_config
from tests.helpers.ranks import run_ranks
from tests.helpers.shards import write_samples
from wdsloader import LoaderConfig, TorchLoader, open_dataset

CPU = Numerics.of(recipe("default").runtime)


def figures(
    val: PictureSet, *, batch_size: int, num_workers: int, num_classes: int = 4, flip: bool = False
) -> EvalResult:
    config = with_values(
        TrainConfig(),
        {
            "data": {"batch_size": batch_size, "num_workers": num_workers},
            "model": {"image_size": 32},
            "eval": {"flip": flip},
        },
    )
    with (
        open_dataset([str(val.manifest)]) as dataset,
        Evaluator(dataset, config, numerics=CPU, num_classes=num_classes) as evaluator,
    ):
        model = build_model("tiny", num_classes=num_classes, seed=0)
        result = evaluator.run(model)
    assert result is not None
    assert model.training
    return result


@pytest.mark.parametrize(("batch_size", "num_workers"), [(1, 0), (7, 2), (64, 0)])
def test_every_one_of_101_samples_counts_once_for_any_batch_and_workers(
    val_set: PictureSet, batch_size: int, num_workers: int
) -> None:
    reference = plain_loop(val_set)
    result = figures(val_set, batch_size=batch_size, num_workers=num_workers)
    assert (result.count, result.correct1, result.correct5) == (101, reference[0], 101)
    assert result.top1 == reference[0] / 101
    assert result.loss == pytest.approx(reference[1], rel=1e-5)


def plain_loop(val: PictureSet) -> tuple[int, float]:
    """Return (right answers, mean loss), one sample at a time, labels read from the tar by hand."""
    labels = [
        int(sample.members["cls"])
        for shard in val.shards
        for sample in iter_samples(shard.open("rb"), shard=str(shard))
    ]
    model = build_model("tiny", num_classes=4, seed=0).eval()
    correct, loss = 0, 0.0
    config = LoaderConfig(batch_size=101, image_size=32, shuffle=False, tail="pad", num_workers=0)
    with open_dataset([str(val.manifest)]) as dataset, TorchLoader(dataset, config) as loader, torch.inference_mode():
        (batch,) = loader
        for image, label in zip(batch.images, labels, strict=True):
            logits = model(normalize(image.unsqueeze(0), channels_last=False))
            correct += int(logits.argmax()) == label
            loss += functional.cross_entropy(logits, torch.tensor([label])).item()
    return correct, loss / 101


def test_flipped_figures_are_of_the_mean_answer_to_a_picture_and_its_mirror_image(val_set: PictureSet) -> None:
    result = figures(val_set, batch_size=64, num_workers=0, flip=True)
    model = build_model("tiny", num_classes=4, seed=0).eval()
    config = LoaderConfig(batch_size=101, image_size=32, shuffle=False, tail="pad", num_workers=0)
    with open_dataset([str(val_set.manifest)]) as dataset, TorchLoader(dataset, config) as loader:
        (batch,) = loader
        images = normalize(batch.images, channels_last=False)
        with torch.inference_mode():
            mean = (model(images) + model(images.flip(3))) / 2
        loss = functional.cross_entropy(mean, batch.labels).item()
        right = int((mean.argmax(dim=1) == batch.labels).sum())
    assert result.flip is not None
    assert result.flip.loss == pytest.approx(loss, rel=1e-5)
    assert result.flip.top1 == right / 101
    assert abs(result.loss - loss) > 1e-4 * loss


def test_top5_of_fewer_than_five_classes_is_one(val_set: PictureSet) -> None:
    assert figures(val_set, batch_size=64, num_workers=0).top5 == 1.0


def test_labels_beyond_the_classes_are_refused_before_the_first_batch(val_set: PictureSet) -> None:
    with pytest.raises(DataMismatchError, match=r"outside 0\.\.2\. Name shards of the model's classes"):
        figures(val_set, batch_size=64, num_workers=0, num_classes=3)


def test_class_lists_that_differ_are_refused_with_the_first_difference() -> None:
    with pytest.raises(DataMismatchError, match="class 1 is 'dog' in the first and 'cow' in the second"):
        require_same_classes(("cat", "dog"), ("cat", "cow"), names=("a", "b"))
    with pytest.raises(DataMismatchError, match="class 1 is 'dog' in the first and no such class"):
        require_same_classes(("cat", "dog"), ("cat",), names=("a", "b"))
    require_same_classes(("cat", "dog"), None, names=("a", "b"))


def test_a_shortfall_is_an_error_and_no_figure(val_set: PictureSet) -> None:
    config = with_values(
        TrainConfig(), {"data": {"num_workers": 0, "batch_size": 16}, "model": {"image_size": 32, "num_classes": 4}}
    )
    model = build_model("tiny", num_classes=4, seed=0)
    with (
        open_dataset([str(val_set.manifest)]) as dataset,
        Evaluator(dataset, config, numerics=CPU, num_classes=4) as evaluator,
    ):
        assert evaluator.run(model, must_stop=lambda: True) is None
        with pytest.raises(EvaluationError, match="85 samples were counted, the dataset has 101"):
            evaluator.run(model)


def test_a_checkpoint_gives_the_very_figures_that_validation_gave(
    train_set: PictureSet, val_set: PictureSet, tmp_path: Path
) -> None:
    result = train(tiny_config(train_set, tmp_path / "run", val=val_set, schedule__epochs=1))
    assert result.val is not None
    assert result.checkpoint is not None
    for place in (result.run_dir, result.checkpoint):
        again = evaluate_checkpoint(place, [str(val_set.manifest)])
        assert replace(again, seconds=0.0) == replace(result.val, seconds=0.0)


def test_a_checkpoint_is_not_evaluated_on_other_classes(train_set: PictureSet, tmp_path: Path) -> None:
    result = train(tiny_config(train_set, tmp_path / "run", schedule__max_samples=16))
    other = make_picture_set(tmp_path / "val", counts=(6,), split="val", num_classes=3)
    with pytest.raises(DataMismatchError, match="different class lists"):
        evaluate_checkpoint(result.run_dir, [str(other.manifest)])


def test_under_skip_a_bad_sample_is_reported_whole_and_no_figure_is_given(tmp_path: Path) -> None:
    """ORDER.md, 10: evaluation under skip reports the shortfall and fails."""
    path = write_with_bad_pictures(tmp_path / "s.tar", 12, bad={2, 7})
    config = with_values(
        TrainConfig(), {"data": {"batch_size": 5, "num_workers": 0, "on_error": "skip"}, "model": {"image_size": 32}}
    )
    with (
        open_dataset([str(path)], on_error="skip") as dataset,
        Evaluator(dataset, config, numerics=CPU, num_classes=10) as evaluator,
        pytest.raises(EvaluationError) as caught,
    ):
        evaluator.run(build_model("tiny", num_classes=10, seed=0))
    message = str(caught.value)
    assert "10 samples were counted, the dataset has 12. No figure is given." in message
    assert (
        "validation: 12 samples expected, 10 delivered, 2 skipped (2 undecodable pictures (WDS040); in 1 shard)"
        in message
    )
    assert f"{path}: '000002' at byte " in message
    assert message.endswith(". Mend the shards (wds repair).")


def test_under_skip_a_missing_shard_is_no_evaluation_either(tmp_path: Path) -> None:
    write_samples(tmp_path / "s-0.tar", 5)
    config = with_values(
        TrainConfig(), {"data": {"batch_size": 5, "num_workers": 0, "on_error": "skip"}, "model": {"image_size": 32}}
    )
    with (
        open_dataset([str(tmp_path / "s-{0..1}.tar")], on_error="skip") as dataset,
        Evaluator(dataset, config, numerics=CPU, num_classes=10) as evaluator,
        pytest.raises(EvaluationError, match="1 shard missing or damaged"),
    ):
        evaluator.run(build_model("tiny", num_classes=10, seed=0))


# ------------------------------------------------------------------------------------------------------ several ranks


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
    [(2, 0), *(pytest.param(*layout, marks=pytest.mark.slow) for layout in ((3, 0), (2, 2), (3, 2)))],
)
def test_each_of_101_samples_counts_once_on_any_number_of_ranks(
    val_set: PictureSet, alone: EvalResult, tmp_path: Path, world_size: int, num_workers: int
) -> None:
    # Two ranks of 64, and three of 51, have more rows than there are samples: the last of three has none at all.
    sizes = [1, 7, 51, 64]
    found = run_ranks(evaluated, [str(val_set.manifest)], sizes, num_workers, world_size=world_size, folder=tmp_path)
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


def test_figures_from_the_cache_are_those_of_the_stream_and_the_workers_rest(val_set: PictureSet) -> None:
    config = with_values(
        TrainConfig(),
        {"data": {"batch_size": 16, "num_workers": 0}, "model": {"image_size": 32}, "eval": {"cache": "on"}},
    )
    model = build_model("tiny", num_classes=4, seed=0)
    with (
        open_dataset([str(val_set.manifest)]) as dataset,
        Evaluator(dataset, config, numerics=CPU, num_classes=4) as evaluator,
    ):
        first = evaluator.run(model)
        for shard in val_set.shards:
            shard.rename(shard.with_suffix(".away"))
        try:
            second = evaluator.run(model)
        finally:
            for shard in val_set.shards:
                shard.with_suffix(".away").rename(shard)
    assert first is not None
    assert second is not None
    assert replace(second, seconds=0.0) == replace(first, seconds=0.0)


def test_what_could_not_be_delivered_is_asked_for_again_and_its_place_not_cached(val_set: PictureSet) -> None:
    config = with_values(
        TrainConfig(),
        {
            "data": {"batch_size": 64, "num_workers": 0, "on_error": "skip"},
            "model": {"image_size": 32},
            "eval": {"cache": "on"},
        },
    )
    model, shard = build_model("tiny", num_classes=4, seed=0), val_set.shards[0]
    with (
        open_dataset([str(val_set.manifest)], on_error="skip") as dataset,
        Evaluator(dataset, config, numerics=CPU, num_classes=4) as evaluator,
    ):
        shard.rename(shard.with_suffix(".away"))
        try:
            with pytest.raises(EvaluationError, match="88 samples were counted, the dataset has 101"):
                evaluator.run(model)
        finally:
            shard.with_suffix(".away").rename(shard)
        result = evaluator.run(model)
    assert result is not None
    assert result.count == 101


def test_pictures_that_a_device_decodes_are_each_counted_once(val_set: PictureSet) -> None:
    model = build_model("tiny", num_classes=4, seed=0)
    results = []
    for decode in ("gpu", "cpu"):
        settings = {"data": {"batch_size": 16, "num_workers": 0, "decode": decode}, "model": {"image_size": 32}}
        config = with_values(TrainConfig(), settings)
        with (
            open_dataset([str(val_set.manifest)]) as dataset,
            Evaluator(dataset, config, numerics=CPU, num_classes=4) as evaluator,
        ):
            result = evaluator.run(model)
        assert result is not None
        results.append(result)
    assert results[0].count == results[1].count == 101
    assert results[0].loss == pytest.approx(results[1].loss, rel=0.01)


@pytest.mark.slow
def test_the_average_of_the_weights_is_what_is_evaluated(
    train_set: PictureSet, val_set: PictureSet, tmp_path: Path
) -> None:
    config = with_values(
        tiny_config(train_set, tmp_path / "run", val=val_set, schedule__epochs=1),
        {"ema": {"decay": 0.5}, "eval": {"weights": "both"}},
    )
    result = train(config)
    vals = {line["weights"]: line["loss"] for line in read_metrics(result.run_dir) if line["kind"] == "val"}
    assert result.val is not None
    assert list(vals) == ["model", "ema"]
    assert vals["ema"] == result.val.loss != vals["model"]
    for weights, wanted in (("auto", "ema"), ("model", "model")):
        overrides = with_values(config, {"eval": {"weights": weights}})
        assert evaluate_checkpoint(result.run_dir, [str(val_set.manifest)], overrides=overrides).loss == vals[wanted]
