"""The fake-ImageNet generator: labels, sizes, golden pixels and JPEGs, and a class signal that survives crops."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, features

from shardkit.errors import PackError
from shardkit.fake_imagenet import FakeImageNet

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "fake_imagenet.json").read_text("utf-8"))

# Name in the golden file: (the set, the sample).
CASES = {
    "default train 0": (FakeImageNet(num_samples=400), 0),
    "default train 399": (FakeImageNet(num_samples=400), 399),
    "default val 0": (FakeImageNet(num_samples=400, split="val"), 0),
    "seed 7": (FakeImageNet(num_samples=400, seed=7), 3),
    "10 classes 96x72": (FakeImageNet(num_samples=400, num_classes=10, size=(96, 72)), 5),
    "10 classes 64x64 fixed val": (
        FakeImageNet(num_samples=400, num_classes=10, size=(64, 64), sizes="fixed", split="val", quality=90),
        9,
    ),
    "shuffled 128x96": (FakeImageNet(num_samples=400, num_classes=10, size=(128, 96), labels="shuffled"), 11),
    "wider than a texture": (FakeImageNet(num_samples=400, num_classes=3, size=(1500, 40), sizes="fixed"), 2),
}


def test_golden_file_covers_every_case() -> None:
    assert set(GOLDEN["samples"]) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_pixels_and_label_equal_the_golden_values(name: str) -> None:
    pictures, index = CASES[name]
    expected = GOLDEN["samples"][name]
    pixels = pictures.pixels(index)
    seen = {
        "label": pictures.label(index),
        "shape": list(pixels.shape),
        "pixels_sha256": hashlib.sha256(pixels.tobytes()).hexdigest(),
    }
    assert seen == expected


@pytest.mark.parametrize("name", CASES)
def test_jpeg_equals_the_golden_value_of_this_libjpeg_turbo(name: str) -> None:
    version = features.version_feature("libjpeg_turbo") if features.check_feature("libjpeg_turbo") else None
    by_version = {known: group["sha256"] for group in GOLDEN["jpegs"] for known in group["libjpeg_turbo"]}
    if version not in by_version:
        pytest.skip(f"no golden JPEG for libjpeg-turbo {version}, only for {', '.join(by_version)}")
    pictures, index = CASES[name]
    assert hashlib.sha256(pictures.jpeg(index)).hexdigest() == by_version[version][name]


def test_first_labels_are_the_golden_ones() -> None:
    ten, shuffled = (FakeImageNet(num_samples=400, num_classes=10, labels=kind) for kind in ("signal", "shuffled"))
    assert [ten.label(i) for i in range(20)] == GOLDEN["first_labels"]["signal"]
    assert [shuffled.label(i) for i in range(20)] == GOLDEN["first_labels"]["shuffled"]


def test_sample_is_the_jpeg_with_its_label() -> None:
    pictures = FakeImageNet(num_samples=4, size=(64, 64), labels="shuffled")
    assert pictures.sample(3) == (pictures.jpeg(3), pictures.label(3))


def test_sample_does_not_depend_on_what_was_made_before() -> None:
    pictures = FakeImageNet(num_samples=4, size=(64, 64))
    alone = pictures.sample(2)
    others = [pictures.sample(i) for i in (3, 0, 2)]
    assert others[-1] == alone


def test_pickled_copy_makes_the_same_samples() -> None:
    pictures = FakeImageNet(num_samples=4, size=(64, 64), split="val", labels="shuffled", seed=5)
    copy: FakeImageNet = pickle.loads(pickle.dumps(pictures))
    assert copy == pictures
    assert copy.sample(1) == pictures.sample(1)


def test_jpeg_is_baseline_with_halved_chroma_and_no_metadata() -> None:
    pictures = FakeImageNet(num_samples=1, size=(96, 72), sizes="fixed")
    with Image.open(io.BytesIO(pictures.jpeg(0))) as picture:
        layers = [(horizontal, vertical) for _, horizontal, vertical, _ in getattr(picture, "layer")]  # noqa: B009  # JPEG only, untyped
        assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (96, 72))
        assert layers == [(2, 2), (1, 1), (1, 1)]
        assert set(picture.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}


def test_jpeg_decodes_to_nearly_the_drawn_pixels() -> None:
    pictures = FakeImageNet(num_samples=3, size=(128, 96), quality=98)
    for index in range(3):
        decoded = np.asarray(Image.open(io.BytesIO(pictures.jpeg(index))), np.int16)
        assert np.abs(decoded - pictures.pixels(index)).mean() < 12


@settings(deadline=None)
@given(
    num_classes=st.integers(1, 300),
    block=st.integers(0, 1000),
    seed=st.integers(0, 2**32 - 1),
    shuffled=st.booleans(),
)
def test_every_block_of_labels_holds_each_class_once(num_classes: int, block: int, seed: int, shuffled: bool) -> None:
    pictures = FakeImageNet(
        num_samples=num_classes * (block + 1),
        num_classes=num_classes,
        seed=seed,
        labels="shuffled" if shuffled else "signal",
    )
    start = num_classes * block
    assert sorted(pictures.label(start + i) for i in range(num_classes)) == list(range(num_classes))


def test_a_shard_of_the_default_set_repeats_no_class() -> None:
    pictures = FakeImageNet(num_samples=400)
    assert len({pictures.label(i) for i in range(100)}) == 100


def test_shuffled_labels_say_nothing_about_the_picture() -> None:
    control = FakeImageNet(num_samples=10_000, num_classes=10, labels="shuffled")
    pairs = Counter((control.shown_class(i), control.label(i)) for i in range(10_000))
    # 100 expected in each of the 100 cells; the limit is the 99.99 % point of chi-square with 81 degrees of freedom.
    assert sum((pairs[a, b] - 100) ** 2 / 100 for a in range(10) for b in range(10)) < 136


def test_shuffled_set_shows_the_same_pictures() -> None:
    signal, control = (FakeImageNet(num_samples=5, size=(64, 64), labels=kind) for kind in ("signal", "shuffled"))
    assert [signal.jpeg(i) for i in range(5)] == [control.jpeg(i) for i in range(5)]


@pytest.mark.parametrize("other", [{"seed": 1}, {"split": "val"}])
def test_another_seed_or_split_gives_other_pictures(other: dict[str, Any]) -> None:
    first = FakeImageNet(num_samples=1, size=(64, 64), sizes="fixed", num_classes=1)
    second = FakeImageNet(num_samples=1, size=(64, 64), sizes="fixed", num_classes=1, **other)
    assert not np.array_equal(first.pixels(0), second.pixels(0))


def test_default_sizes_spread_like_imagenet() -> None:
    pictures = FakeImageNet(num_samples=2000)
    widths, heights = np.array([pictures.picture_size(i) for i in range(2000)]).T
    assert 450 <= widths.mean() <= 520
    assert 350 <= heights.mean() <= 410
    assert 0.15 <= (heights > widths).mean() <= 0.3
    assert min(widths.min(), heights.min()) < 130
    assert max(widths.max(), heights.max()) > 900


def test_default_jpegs_average_about_110_kb() -> None:
    pictures = FakeImageNet(num_samples=400)
    num_bytes = [len(pictures.jpeg(i)) for i in range(0, 400, 2)]
    assert 95_000 <= np.mean(num_bytes) <= 125_000


@pytest.mark.parametrize("size", [(32, 32), (64, 64), (96, 72), (33, 4096)])
def test_fixed_size_is_kept_exactly(size: tuple[int, int]) -> None:
    pictures = FakeImageNet(num_samples=1, size=size, sizes="fixed")
    assert pictures.pixels(0).shape == (size[1], size[0], 3)


def test_varied_small_pictures_stay_at_least_32_pixels() -> None:
    pictures = FakeImageNet(num_samples=500, size=(40, 32))
    assert min(min(pictures.picture_size(i)) for i in range(500)) == 32


@pytest.mark.parametrize("labels", ["signal", "shuffled"])
def test_nearest_class_mean_of_colours_finds_the_class_of_small_flipped_crops(labels: str) -> None:
    """The signal survives zoom, flip, JPEG and downscale, and carries over from train to val; the control has none."""
    train = _set_of(labels, split="train", num_samples=300)
    val = _set_of(labels, split="val", num_samples=200)
    train_labels = np.array([train.label(i) for i in range(300)])
    seen = np.array([_crop_colours(train, i) for i in range(300)])
    means = np.array([seen[train_labels == label].mean(axis=0) for label in range(10)])
    guesses = [int(np.argmin(np.abs(means - _crop_colours(val, i)).sum(axis=1))) for i in range(200)]
    accuracy = np.mean([guess == val.label(i) for i, guess in enumerate(guesses)])
    assert (accuracy >= 0.9) if labels == "signal" else (accuracy <= 0.2), accuracy


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_samples", 0),
        ("num_samples", 1.5),
        ("num_classes", 0),
        ("num_classes", True),
        ("seed", -1),
        ("seed", 2**32),
        ("quality", 101),
        ("split", "test"),
        ("sizes", "random"),
        ("labels", "noise"),
        ("size", (64,)),
        ("size", [64, 64]),
        ("size", (31, 64)),
        ("size", (64, 5000)),
    ],
)
def test_field_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    fields: dict[str, Any] = {"num_samples": 10, field: value}
    with pytest.raises(PackError, match=f"^{field}.*Give "):
        FakeImageNet(**fields)


@pytest.mark.parametrize("index", [-1, 10])
def test_index_out_of_range_is_refused_with_the_range(index: int) -> None:
    with pytest.raises(PackError, match=f"sample {index}: .* from 0 to 9"):
        FakeImageNet(num_samples=10).sample(index)


def _set_of(labels: str, *, split: str, num_samples: int) -> FakeImageNet:
    options: dict[str, Any] = {"labels": labels, "split": split}
    return FakeImageNet(num_samples=num_samples, num_classes=10, size=(128, 96), **options)


def _crop_colours(pictures: FakeImageNet, index: int) -> npt.NDArray[np.int64]:
    """Take a mirrored crop of a sixth of the area at a place that varies, at 64 px: its 6 x 6 x 6 colour histogram."""
    with Image.open(io.BytesIO(pictures.jpeg(index))) as picture:
        width, height = picture.size
        side = int((width * height / 6) ** 0.5)
        left, top = index * 37 % (width - side + 1), index * 53 % (height - side + 1)
        crop = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT).crop((left, top, left + side, top + side))
    colours = np.asarray(crop.resize((64, 64), Image.Resampling.BILINEAR), np.int64) * 6 // 256
    return np.bincount(colours.reshape(-1, 3) @ np.array([36, 6, 1]), minlength=216)
