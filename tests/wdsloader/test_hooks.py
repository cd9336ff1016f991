from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.helpers.shards import write_samples
from wdsloader import (
    AugmentConfig,
    ConfigError,
    Dataset,
    LoaderConfig,
    SampleView,
    TorchLoader,
    TransformError,
    open_dataset,
)
from wdsloader.hooks import sample_generator

CONFIG = LoaderConfig(
    batch_size=8, image_size=12, augment=AugmentConfig(), num_workers=0, lanes=4, block=4, tail="pad", num_epochs=1
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = write_samples(tmp_path_factory.mktemp("shards") / "s.tar", 30)
    return open_dataset([str(path)])


def drop_thirds(sample: SampleView, _: np.random.Generator) -> bool:
    return sample.label % 3 != 0


def drop_by_chance(sample: SampleView, generator: np.random.Generator) -> bool:
    return generator.random() < 0.5


def speckle(sample: SampleView, generator: np.random.Generator) -> tuple[npt.NDArray[np.uint8], int]:
    assert sample.image is not None
    noise = generator.integers(0, 50, sample.image.shape, dtype=np.uint8)
    return sample.image // 2 + noise, sample.label + 100


def drop_seven(sample: SampleView, _: np.random.Generator) -> npt.NDArray[np.uint8] | None:
    return None if sample.key == "000007" else sample.image


def fail(sample: SampleView, _: np.random.Generator) -> npt.NDArray[np.uint8]:
    raise ZeroDivisionError("by hand")


def grow(sample: SampleView, _: np.random.Generator) -> npt.NDArray[np.uint8]:
    return np.zeros((13, 12, 3), np.uint8)


def delivered(dataset: Dataset, config: LoaderConfig) -> dict[str, tuple[bytes, int]]:
    with TorchLoader(dataset, config) as loader:
        return {
            key: (image.numpy().tobytes(), int(label))
            for batch in loader
            for key, image, label in zip(batch.keys, batch.images, batch.labels, strict=True)
            if key is not None
        }


def test_a_filter_masks_rows_and_moves_none(dataset: Dataset) -> None:
    with TorchLoader(dataset, CONFIG) as loader:
        whole = list(loader)
    with TorchLoader(dataset, replace(CONFIG, keep=drop_thirds)) as loader:
        kept = list(loader)
        account = loader.account
    for ours, theirs in zip(kept, whole, strict=True):
        wanted = [key if key is not None and int(key) % 10 % 3 else None for key in theirs.keys]
        assert list(ours.keys) == wanted
        assert ours.weights.tolist() == [float(key is not None) for key in wanted]
    assert account is not None
    assert (account.filtered, account.replaced, account.expected) == (12, 0, 30)


@pytest.mark.slow
@pytest.mark.parametrize("hooks", [{"keep": drop_by_chance}, {"transform": speckle}])
def test_chance_is_keyed_by_the_sample_so_any_layout_gives_the_same(dataset: Dataset, hooks: dict[str, object]) -> None:
    config = replace(CONFIG, **hooks)  # type: ignore[arg-type]  # one of two fields
    alone = delivered(dataset, config)
    assert delivered(dataset, replace(config, num_workers=2)) == alone
    assert delivered(dataset, replace(config, lanes=2, block=1)) == alone
    assert delivered(dataset, replace(config, seed=1)) != alone


def test_a_transform_changes_pixels_and_label(dataset: Dataset) -> None:
    plain, changed = delivered(dataset, CONFIG), delivered(dataset, replace(CONFIG, transform=speckle))
    assert all(changed[key][1] == plain[key][1] + 100 for key in plain)
    assert all(changed[key][0] != plain[key][0] for key in plain)


def test_a_transform_that_gives_none_filters(dataset: Dataset) -> None:
    assert set(delivered(dataset, CONFIG)) - set(delivered(dataset, replace(CONFIG, transform=drop_seven))) == {
        "000007"
    }


@pytest.mark.parametrize(
    ("transform", "message"),
    [(fail, r"s.tar: '\d{6}': transform failed: ZeroDivisionError: by hand"), (grow, r"gave uint8 \(13, 12, 3\), not")],
)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_hook_that_fails_ends_the_run_with_the_samples_name_also_under_skip(
    dataset: Dataset, transform: object, message: str, num_workers: int
) -> None:
    config = replace(CONFIG, transform=transform, on_error="skip", num_workers=num_workers)  # type: ignore[arg-type]
    with TorchLoader(dataset, config) as loader, pytest.raises(TransformError, match=message):
        next(iter(loader))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (("abc",), "gave the label 'abc', not an integer of 64 bits"),
        ((None,), "gave the label None"),
        ((3.7,), r"gave the label 3\.7"),
        ((2**63,), "gave the label 9223372036854775808"),
        ((np.array([1, 2]),), r"gave the label array\(\[1, 2\]\)"),
        ((), "gave 1 values, not pixels, or pixels and a label"),
        ((1, 2), "gave 3 values"),
    ],
)
def test_a_label_that_is_none_is_told_with_the_samples_name(
    dataset: Dataset, made: tuple[object, ...], message: str
) -> None:
    config = replace(CONFIG, transform=lambda sample, _: (sample.image, *made))  # type: ignore[arg-type, return-value]  # it is
    whole = rf"'\d{{6}}': transform {message}"
    with TorchLoader(dataset, config) as loader, pytest.raises(TransformError, match=whole):
        next(iter(loader))


@pytest.mark.parametrize("label", [True, np.uint8(1), np.array(1), torch.tensor(1)])
def test_a_label_may_be_an_integer_of_any_library(dataset: Dataset, label: object) -> None:
    config = replace(CONFIG, transform=lambda sample, _: (sample.image, label))  # type: ignore[arg-type, return-value]  # many do
    assert {found for _, found in delivered(dataset, config).values()} == {1}


def test_a_lambda_is_refused_where_it_would_have_to_travel(dataset: Dataset) -> None:
    config = replace(CONFIG, keep=lambda sample, _: sample.label == 1)
    assert len(delivered(dataset, config)) == 3
    with (
        TorchLoader(dataset, replace(config, num_workers=1)) as loader,
        pytest.raises(ConfigError, match=r"keep=<function .*cannot be sent.*in place of a lambda; or num_workers=0"),
    ):
        next(iter(loader))


def test_settings_and_dataset_can_be_pickled(dataset: Dataset, tmp_path: Path) -> None:
    """TRN-08."""
    config, again = pickle.loads(pickle.dumps((replace(CONFIG, transform=speckle), dataset)))
    with TorchLoader(again, config) as loader, TorchLoader(dataset, config) as other:
        assert torch.equal(next(iter(loader)).images, next(iter(other)).images)


def test_equal_keys_draw_equal_numbers_and_others_others() -> None:
    first, same, other = (sample_generator(("x", n)).random(4).tolist() for n in (1, 1, 2))
    assert first == same
    assert first != other
