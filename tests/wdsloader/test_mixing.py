from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.packed import write_packed
from tests.helpers.shards import write_samples
from wdsloader import (
    AugmentConfig,
    ConfigError,
    DatasetError,
    LoaderConfig,
    MixedDataset,
    TorchLoader,
    mix,
    open_dataset,
)

CONFIG = LoaderConfig(batch_size=8, image_size=12, augment=AugmentConfig(), num_workers=0, lanes=4, block=4)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> MixedDataset:
    """20 samples 000000.. at weight 3 and 7 samples 001000.. at weight 1, in epochs of 45 samples."""
    folder = tmp_path_factory.mktemp("shards")
    write_samples(folder / "a/s-0.tar", 13)
    write_samples(folder / "a/s-1.tar", 7, first=13)
    write_samples(folder / "b/s-0.tar", 7, first=1000)
    return mix([(open_dataset([str(folder / "a")]), 3), (open_dataset([str(folder / "b")]), 1)], epoch_samples=45)


def keys(mixed: MixedDataset, config: LoaderConfig, *, epochs: int = 1) -> list[str | None]:
    with TorchLoader(mixed, config) as loader:
        return [key for _ in range(epochs) for batch in loader for key in batch.keys]


def test_every_batch_draws_by_weight_and_the_length_is_whole_batches(mixed: MixedDataset) -> None:
    with TorchLoader(mixed, CONFIG) as loader:
        assert len(loader) == 5
        for batch in loader:
            assert Counter(int(key or 0) >= 1000 for key in batch.keys) == {False: 6, True: 2}
        assert loader.account is not None
        assert (loader.account.expected, loader.account.delivered) == (40, 40)


def test_each_part_goes_through_epochs_of_its_own(mixed: MixedDataset) -> None:
    times = Counter(keys(mixed, CONFIG, epochs=4))
    assert {times[f"{n:06d}"] for n in range(20)} == {6}
    assert {times[f"{n:06d}"] for n in range(1000, 1007)} <= {5, 6}


def test_layout_and_resume_point_appear_nowhere(mixed: MixedDataset) -> None:
    whole = keys(mixed, CONFIG, epochs=2)
    assert keys(mixed, replace(CONFIG, num_workers=3), epochs=2) == whole
    ranks = []
    for rank in range(2):
        with TorchLoader(mixed, replace(CONFIG, batch_size=4), rank=rank, world_size=2) as loader:
            ranks.append([key for _ in range(2) for batch in loader for key in batch.keys])
    assert [key for pair in zip(*ranks, strict=True) for key in pair] == whole
    with TorchLoader(mixed, CONFIG) as loader:
        states = [batch.state for _ in range(2) for batch in loader]
    for done in (3, 7):
        with TorchLoader(mixed, replace(CONFIG, num_workers=done % 2)) as loader:
            loader.load_state_dict(states[done - 1])
            rest = [key for _ in range(2 if done < 5 else 1) for batch in loader for key in batch.keys]
        assert rest == whole[8 * done :]
        ranks = []
        for rank in range(2):
            with TorchLoader(mixed, replace(CONFIG, batch_size=4), rank=rank, world_size=2) as loader:
                loader.load_state_dict(states[done - 1])
                ranks.append([key for _ in range(2 if done < 5 else 1) for batch in loader for key in batch.keys])
        assert [key for pair in zip(*ranks, strict=True) for key in pair] == whole[8 * done :]


def test_the_same_sample_looks_another_way_in_the_next_epoch_of_its_part(mixed: MixedDataset) -> None:
    looks: dict[str, set[bytes]] = {}
    with TorchLoader(mixed, CONFIG) as loader:
        for _ in range(2):
            for batch in loader:
                for key, image in zip(batch.keys, batch.images, strict=True):
                    looks.setdefault(key or "", set()).add(image.numpy().tobytes())
    assert min(len(seen) for key, seen in looks.items() if int(key) >= 1000) > 1


def test_a_resume_needs_the_same_mixture_and_the_same_batch(mixed: MixedDataset) -> None:
    with TorchLoader(mixed, CONFIG) as loader:
        state = next(iter(loader)).state
    with pytest.raises(ConfigError, match=r"a global batch of 8, this loader 16.*Use 8 over all ranks"):
        TorchLoader(mixed, replace(CONFIG, batch_size=16)).load_state_dict(state)
    other = mix([(mixed.parts[0], 2), (mixed.parts[1], 1)], epoch_samples=45)
    with pytest.raises(ConfigError, match="other data"):
        TorchLoader(other, CONFIG).load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 4, "lanes": 4}, None),
        (
            {"batch_size": 2, "lanes": 2},
            "weight 0.25 of a batch of 2 is less than one sample. Use a global batch of at least 4",
        ),
        ({"tail": "pad"}, "whole batches"),
        ({"shuffle": False}, "always shuffled"),
        ({"batch_size": 64, "lanes": 4}, "45 samples"),
    ],
)
def test_settings_that_no_mixture_has_are_refused(
    mixed: MixedDataset, change: dict[str, object], message: str | None
) -> None:
    config = replace(CONFIG, **change)  # type: ignore[arg-type]  # fields of the config
    if message is None:
        assert len(keys(mixed, config)) == 44
        return
    with pytest.raises(ConfigError, match=message):
        TorchLoader(mixed, config)


def test_parts_that_do_not_fit_are_refused(mixed: MixedDataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least two"):
        mix([(mixed.parts[0], 1)])
    with pytest.raises(ConfigError, match="weight 0"):
        mix([(mixed.parts[0], 0), (mixed.parts[1], 1)])
    unknown = open_dataset(["http://host/s-0.tar"], cache_dir=tmp_path)
    with pytest.raises(DatasetError, match="needs sample counts"):
        mix([(mixed.parts[0], 1), (unknown, 1)])


def test_a_resampled_epoch_has_the_stated_length_and_can_be_repeated(tmp_path: Path) -> None:
    write_packed(tmp_path, [5, 6, 7])
    dataset = open_dataset([str(tmp_path / "t-*.tar")])
    config = replace(CONFIG, resampled=True, epoch_samples=96)
    with TorchLoader(dataset, config) as loader:
        assert len(loader) == 12
        batches = [batch for _ in range(2) for batch in loader]
    orders = [[key for batch in batches if batch.epoch == epoch for key in batch.keys] for epoch in range(2)]
    assert orders[0] != orders[1]
    assert max(Counter(orders[0]).values()) > 1
    with TorchLoader(dataset, replace(config, num_workers=2)) as loader:
        loader.load_state_dict(batches[4].state)
        assert [key for batch in loader for key in batch.keys] == orders[0][40:]
    with (
        TorchLoader(dataset, CONFIG) as plain,
        pytest.raises(ConfigError, match=r"resampled=True with epoch_samples=96"),
    ):
        plain.load_state_dict(batches[4].state)


def test_lanes_cut_once_a_run_give_every_worker_the_same_samples_each_epoch(tmp_path: Path) -> None:
    write_packed(tmp_path, [8, 8, 8, 8])
    dataset = open_dataset([str(tmp_path / "t-*.tar")])
    for cut, same in (("run", True), ("epoch", False)):
        config = replace(CONFIG, batch_size=4, cut=cut)  # type: ignore[arg-type]  # one of two
        with TorchLoader(dataset, config, rank=0, world_size=2) as loader:
            epochs = [[key for batch in loader for key in batch.keys] for _ in range(3)]
        assert epochs[0] != epochs[1]
        assert (len({frozenset(keys) for keys in epochs}) == 1) == same
