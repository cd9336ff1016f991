from __future__ import annotations

from pathlib import Path

import pytest
import torch

from resnettrain import DataMismatchError, recipe
from resnettrain.feed import LanesFeed, require_labels
from resnettrain.numerics import Numerics
from tests.helpers.picture_sets import PictureSet, tiny_config
from wdsloader import open_dataset

CPU = Numerics.of(recipe("default").runtime)


def test_an_epoch_is_whole_batches_and_its_position_travels_with_them(train_set: PictureSet, tmp_path: Path) -> None:
    config = tiny_config(train_set, tmp_path)
    with open_dataset(config.data.urls) as dataset:
        feed = LanesFeed(dataset, config, numerics=CPU, num_classes=4, state=None)
        batches = list(feed.epoch())
        assert (feed.epoch_batches, feed.epoch_samples) == (6, 96)
        assert [batch.size for batch in batches] == [16] * 6
        assert batches[0].images.shape == (16, 32, 32, 3)
        assert batches[0].images.dtype == torch.uint8
        resumed = LanesFeed(dataset, config, numerics=CPU, num_classes=4, state=batches[3].state)
        assert [batch.keys for batch in resumed.epoch()] == [batch.keys for batch in batches[4:]]
        assert resumed.position() == feed.position()


@pytest.mark.parametrize("label", [-1, 4])
def test_a_label_outside_the_classes_is_named_with_its_key(label: int) -> None:
    with pytest.raises(DataMismatchError, match=rf"'b': label {label} is outside 0\.\.3"):
        require_labels(torch.tensor([0, label, 9]), num_classes=4, keys=("a", "b", "c"))


def test_labels_of_all_classes_pass() -> None:
    require_labels(torch.arange(4), num_classes=4, keys=("a", "b", "c", "d"))
