from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from resnettrain import DataMismatchError, Rank, recipe
from resnettrain.feed import LanesFeed, require_labels
from resnettrain.numerics import Numerics
from shardkit import iter_samples
from tests.helpers.picture_sets import PictureSet, make_picture_set, tiny_config
from wdsloader import Batch, open_dataset

CPU = Numerics.of(recipe("default").runtime)


def test_an_epoch_is_whole_batches_and_its_position_travels_with_them(train_set: PictureSet, tmp_path: Path) -> None:
    config = tiny_config(train_set, tmp_path)
    with open_dataset(config.data.urls) as dataset:
        feed = LanesFeed(dataset, config, numerics=CPU, num_classes=4, place=Rank(), state=None)
        batches = list(feed.epoch())
        assert (feed.epoch_batches, feed.epoch_samples) == (6, 96)
        assert [batch.size for batch in batches] == [16] * 6
        assert batches[0].images.shape == (16, 32, 32, 3)
        assert batches[0].images.dtype == torch.uint8
        resumed = LanesFeed(dataset, config, numerics=CPU, num_classes=4, place=Rank(), state=batches[3].state)
        assert [batch.keys for batch in resumed.epoch()] == [batch.keys for batch in batches[4:]]
        assert resumed.position() == feed.position()


def test_only_the_loader_is_waited_for_and_not_the_ring_which_waits_for_computing(
    train_set: PictureSet, tmp_path: Path
) -> None:
    """Else a run that computes all the time would be told that it waits for data."""
    waited: list[object] = []

    def waiting(items: Iterable[Any], /) -> Iterator[Any]:
        for item in items:
            waited.append(item)
            yield item

    config = tiny_config(train_set, tmp_path)
    with open_dataset(config.data.urls) as dataset:
        feed = LanesFeed(dataset, config, numerics=CPU, num_classes=4, place=Rank(), state=None)
        keys = [batch.keys for batch in feed.epoch(waiting=waiting)]
    assert all(isinstance(item, Batch) for item in waited)
    assert [item.keys for item in waited if isinstance(item, Batch)] == keys


def test_what_a_device_decodes_comes_as_what_the_workers_decode(train_set: PictureSet, tmp_path: Path) -> None:
    configs = [tiny_config(train_set, tmp_path, data__decode=decode) for decode in ("gpu", "cpu")]
    with open_dataset(configs[0].data.urls) as dataset:
        feeds = [LanesFeed(dataset, each, numerics=CPU, num_classes=4, place=Rank(), state=None) for each in configs]
        for one, other in zip(*(feed.epoch() for feed in feeds), strict=True):
            assert (one.keys, one.size, one.state) == (other.keys, other.size, other.state)
            assert torch.equal(one.labels, other.labels)
            assert (one.images.dtype, one.images.shape) == (torch.uint8, other.images.shape)
            assert (one.images.int() - other.images.int()).abs().float().mean() < 1.0
        for feed in feeds:
            feed.close()


def test_pictures_grow_from_epoch_to_epoch_in_the_order_they_would_have_had(
    train_set: PictureSet, tmp_path: Path
) -> None:
    grows: dict[str, Any] = {"resolution__start_size": 16, "resolution__ramp_end": 2, "resolution__multiple": 8}
    growing, steady = (tiny_config(train_set, tmp_path, schedule__epochs=3, **flags) for flags in (grows, {}))
    with open_dataset(growing.data.urls) as dataset:
        feeds = [
            LanesFeed(dataset, config, numerics=CPU, num_classes=4, place=Rank(), state=None)
            for config in (growing, steady)
        ]
        batches, plain = ([list(feed.epoch()) for _ in range(3)] for feed in feeds)
        assert [{batch.images.shape[1] for batch in epoch} for epoch in batches] == [{16}, {24}, {32}]
        assert [[batch.keys for batch in epoch] for epoch in batches] == [[b.keys for b in epoch] for epoch in plain]
        assert [[batch.state for batch in epoch] for epoch in batches] == [[b.state for b in epoch] for epoch in plain]
        resumed = LanesFeed(dataset, growing, numerics=CPU, num_classes=4, place=Rank(), state=batches[1][2].state)
        assert all(
            torch.equal(one.images, other.images) for one, other in zip(resumed.epoch(), batches[1][3:], strict=True)
        )
        for feed in (*feeds, resumed):
            feed.close()


@pytest.mark.parametrize(
    ("world_size", "num_workers"),
    [(1, 0), (2, 0), *(pytest.param(world, workers, marks=pytest.mark.slow) for world in (1, 2) for workers in (1, 3))],
)
def test_each_sample_comes_once_an_epoch_with_an_interruption_inside(
    tmp_path: Path, world_size: int, num_workers: int
) -> None:
    shards = make_picture_set(tmp_path / "data", counts=(13, 31, 20))
    config = tiny_config(shards, tmp_path, data__batch_size=16 // world_size, data__num_workers=num_workers)
    seen: list[str | None] = []
    with open_dataset(config.data.urls) as dataset:
        for rank in range(world_size):
            place, state = Rank(rank=rank, local_rank=rank, world_size=world_size), None
            for batches in (1, None):
                feed = LanesFeed(dataset, config, numerics=CPU, num_classes=4, place=place, state=state)
                for batch in islice(feed.epoch(), batches):
                    seen.extend(batch.keys)
                    state = batch.state
                feed.close()
    keys = {sample.key for shard in shards.shards for sample in iter_samples(shard.open("rb"), shard=str(shard))}
    assert len(seen) == len(keys) == 64
    assert set(seen) == keys


@pytest.mark.parametrize("label", [-1, 4])
def test_a_label_outside_the_classes_is_named_with_its_key(label: int) -> None:
    with pytest.raises(DataMismatchError, match=rf"'b': label {label} is outside 0\.\.3"):
        require_labels(torch.tensor([0, label, 9]), num_classes=4, keys=("a", "b", "c"))


def test_labels_of_all_classes_pass() -> None:
    require_labels(torch.arange(4), num_classes=4, keys=("a", "b", "c", "d"))
