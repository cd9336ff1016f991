"""Ranks, workers, epochs and resumes on real shards: the DIST cases, and the edges of ORDER.md."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shardkit import Manifest, ShardRecord, build_index, index_path_of, write_index, write_manifest
from tests.helpers.packed import write_packed
from tests.helpers.shards import sample_members, write_shard
from wdsloader import AugmentConfig, ConfigError, Dataset, LoaderConfig, TorchLoader, open_dataset
from wdsloader.order import EpochOrder
from wdsloader.plan import choose_block, choose_lanes
from wdsloader.shards import SampleReader

CONFIG = LoaderConfig(batch_size=8, image_size=8, augment=AugmentConfig(), num_workers=0, tail="pad", num_epochs=1)


def dataset_of(folder: Path, counts: list[int]) -> Dataset:
    write_packed(folder, counts)
    return open_dataset([str(folder / "t-*.tar")])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Four shards of 7 samples, as case BASE."""
    return dataset_of(tmp_path_factory.mktemp("base"), [7, 7, 7, 7])


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Ten shards of 30 samples, as case CLS-04."""
    return dataset_of(tmp_path_factory.mktemp("ten"), [30] * 10)


def keys(loader: TorchLoader, *, epochs: int = 1) -> list[list[str | None]]:
    with loader:
        return [list(batch.keys) for _ in range(epochs) for batch in loader]


def flat(batches: list[list[str | None]]) -> list[str]:
    return [key for batch in batches for key in batch if key is not None]


def ranks_of(dataset: Dataset, config: LoaderConfig, *, world_size: int) -> list[list[list[str | None]]]:
    return [keys(TorchLoader(dataset, config, rank=rank, world_size=world_size)) for rank in range(world_size)]


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize(("tail", "steps"), [("drop", {1: 11, 2: 5, 3: 3}), ("pad", {1: 12, 2: 6, 3: 4})])
def test_every_rank_makes_the_same_number_of_steps(
    tmp_path: Path, world_size: int, tail: str, steps: dict[int, int]
) -> None:
    """DIST-01: shards of 10, 10 and 3 samples, batch 2."""
    dataset = dataset_of(tmp_path, [10, 10, 3])
    config = replace(CONFIG, batch_size=2, tail=tail)  # type: ignore[arg-type]  # one of three
    ranks = ranks_of(dataset, config, world_size=world_size)
    assert {len(rank) for rank in ranks} == {steps[world_size]}
    found = [key for rank in ranks for key in flat(rank)]
    assert len(found) == len(set(found)) == (23 if tail == "pad" else steps[world_size] * 2 * world_size)


def test_one_shard_serves_two_ranks_of_four_workers(tmp_path: Path) -> None:
    """DIST-02: 24 different keys, 3 steps a rank, split inside the shard."""
    dataset = dataset_of(tmp_path, [24])
    ranks = ranks_of(dataset, replace(CONFIG, batch_size=4, num_workers=4), world_size=2)
    assert [len(rank) for rank in ranks] == [3, 3]
    assert len({key for rank in ranks for key in flat(rank)}) == 24


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_number_of_workers_changes_nothing(base: Dataset, shuffle: bool) -> None:
    """DIST-03: workers 0, 1, 3, 4 and 8: the same batches of the same 28 keys."""
    config = replace(CONFIG, shuffle=shuffle, augment=AugmentConfig() if shuffle else None)
    whole = keys(TorchLoader(base, config))
    assert len(set(flat(whole))) == 28
    for num_workers in (1, 3, 4, 8):
        assert keys(TorchLoader(base, replace(config, num_workers=num_workers))) == whole


@pytest.mark.parametrize(("tail", "sizes"), [("ragged", [8, 8, 8, 4]), ("drop", [8, 8, 8])])
def test_only_the_epoch_has_a_last_batch_not_each_worker(base: Dataset, tail: str, sizes: list[int]) -> None:
    """DIST-04."""
    config = replace(CONFIG, tail=tail, num_workers=4)  # type: ignore[arg-type]  # one of three
    assert [len(batch) for batch in keys(TorchLoader(base, config))] == sizes


SCRIPT = """
import sys
from wdsloader import LoaderConfig, TorchLoader, open_dataset
if __name__ == "__main__":
    config = LoaderConfig(batch_size=8, image_size=8, num_workers=0, seed=int(sys.argv[2]))
    with TorchLoader(open_dataset([sys.argv[1]]), config) as loader:
        print([key for batch in loader for key in batch.keys])
"""


@pytest.mark.slow
def test_one_seed_one_order_in_every_process(base: Dataset, tmp_path: Path) -> None:
    """DIST-05."""
    (tmp_path / "script.py").write_text(SCRIPT)

    def run(*, hash_seed: str, seed: str) -> str:
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, str(tmp_path / "script.py"), str(Path(base.urls[0]).parent), seed]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    first = run(hash_seed="1", seed="5")
    assert run(hash_seed="2", seed="5") == first
    assert run(hash_seed="1", seed="6") != first


def test_each_epoch_has_a_new_order_and_workers_that_live_on_give_the_same_as_new_ones(ten: Dataset) -> None:
    """DIST-06: three orders of shards and samples, each a full epoch; equal in both set-ups."""
    config = replace(CONFIG, num_workers=2, num_epochs=3, batch_size=30)
    living = keys(TorchLoader(ten, config), epochs=3)
    anew: list[list[str | None]] = []
    loader = TorchLoader(ten, config)
    for _ in range(3):
        anew += [list(batch.keys) for batch in loader]
        loader.close()
    assert anew == living
    orders = [flat(living[epoch * 10 : epoch * 10 + 10]) for epoch in range(3)]
    assert all(len(set(order)) == 300 for order in orders)
    firsts = [tuple(dict.fromkeys(int(key) // 100 for key in order)) for order in orders]
    assert len({tuple(order) for order in orders}) == len(set(firsts)) == 3


def test_ranks_share_each_epoch_and_shards_change_hands(base: Dataset) -> None:
    """DIST-07."""
    config = replace(CONFIG, batch_size=2, num_epochs=5, lanes=2)
    held: list[set[int]] = []
    loaders = [TorchLoader(base, config, rank=rank, world_size=2) for rank in range(2)]
    for _ in range(5):
        found = [[key for batch in loader for key in batch.keys if key is not None] for loader in loaders]
        assert not set(found[0]) & set(found[1])
        assert len(found[0]) + len(found[1]) == 28
        held.append({int(key) // 100 for key in found[0]})
    assert len({frozenset(shards) for shards in held}) > 1


@pytest.mark.parametrize("done", [1, 13, 37, 38])
def test_what_comes_before_a_stop_and_after_it_is_the_undisturbed_order(
    ten: Dataset, done: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """DIST-08: after 1, 13 and 37 batches and exactly at the end; no shard that is used up is opened."""
    config = replace(CONFIG, num_workers=0)
    whole = keys(TorchLoader(ten, config))
    loader = TorchLoader(ten, replace(config, num_workers=2))
    batches = iter(loader)
    before = [list(next(batches).keys) for _ in range(done)]
    torch.save(loader.state_dict(), tmp_path / "state.pt")
    loader.close()
    assert (tmp_path / "state.pt").stat().st_size < 10_000
    opened: set[str] = set()
    real = SampleReader.read

    def spy(self: SampleReader, sample: int) -> Any:
        stored = real(self, sample)
        opened.add(stored.shard)
        return stored

    monkeypatch.setattr(SampleReader, "read", spy)
    resumed = TorchLoader(ten, config)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    after = keys(resumed)
    assert before + after == whole
    left = {Path(url).name for url in ten.urls if any(int(k) // 100 == int(Path(url).stem[2:]) for k in flat(after))}
    assert {Path(shard).name for shard in opened} == left


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_counts_every_sample_once(tmp_path: Path, world_size: int) -> None:
    """DIST-12: 23 samples, batch 4."""
    dataset = dataset_of(tmp_path, [10, 10, 3])
    config = replace(CONFIG, batch_size=4, shuffle=False, augment=None)
    weights = right = 0.0
    for rank in range(world_size):
        with TorchLoader(dataset, config, rank=rank, world_size=world_size) as loader:
            for batch in loader:
                weights += float(batch.weights.sum())
                right += float(((batch.labels == 3) * batch.weights).sum())
    assert (weights, right) == (23, 2)


def test_batches_of_class_sorted_shards_hold_many_classes(ten: Dataset) -> None:
    """DIST-15: ten shards of one class each, batch 30, seeds 0 to 9: at least 5 classes in a batch on average."""
    mixed = [
        len({int(key or 0) // 100 for key in batch})
        for seed in range(10)
        for batch in keys(TorchLoader(ten, replace(CONFIG, batch_size=30, seed=seed)))
    ]
    assert np.mean(mixed) >= 8


@pytest.mark.slow
def test_a_batch_mixes_shards_nine_tenths_as_well_as_a_full_shuffle_with_the_defaults() -> None:
    """131 uneven class-sorted shards, B = 256: distinct shards in a batch against drawing without replacement."""
    generator = np.random.Generator(np.random.Philox(1))
    for batch in (256, 512):
        counts = generator.integers(200, 1800, 131)
        lanes = choose_lanes(batch, world_size=1)
        starts = np.concatenate(([0], np.cumsum(counts)))
        ideal = float(np.sum(1 - (1 - counts / counts.sum()) ** batch))
        for packed_shuffled in (False, True):
            block = choose_block(lanes=lanes, spans_per_lane=4, num_shards=131, packed_shuffled=packed_shuffled)
            found = []
            for seed in range(3):
                order = EpochOrder(counts, seed=seed, epoch=0, lanes=lanes, spans_per_lane=4, block=block)
                positions = order.positions(first=0, stop=int(counts.sum()))
                shards = np.searchsorted(starts, positions, side="right")
                found += [len(set(shards[at : at + batch].tolist())) for at in range(0, len(shards) - batch, batch)]
            assert np.mean(found) >= 0.9 * ideal


@pytest.mark.parametrize(
    "counts", [[1], [5], [0, 0, 3], [1, 0, 1, 0, 1], [40], [2] * 9], ids=["one", "few", "empty", "gaps", "big", "small"]
)
@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_few_short_and_empty_shards_are_delivered_once_on_every_layout(
    tmp_path: Path, counts: list[int], lanes: int
) -> None:
    """One shard; fewer shards than readers; empty shards between; N < L; N < B."""
    dataset = dataset_of(tmp_path, counts)
    config = replace(CONFIG, batch_size=16, lanes=lanes)
    whole = keys(TorchLoader(dataset, config))
    assert len(flat(whole)) == len(set(flat(whole))) == sum(counts)
    for world_size in (r for r in (2, 4, 8) if lanes % r == 0):
        ranks = ranks_of(dataset, replace(config, batch_size=16 // world_size), world_size=world_size)
        assert {len(rank) for rank in ranks} == {len(whole)}
        together = [key for step in zip(*ranks, strict=True) for row in zip(*step, strict=True) for key in row]
        assert together == [key for batch in whole for key in batch]


@pytest.mark.parametrize("world_size", range(1, 9))
def test_one_to_eight_ranks_see_the_same_global_batches(ten: Dataset, world_size: int) -> None:
    """B = 840 serves 1 to 8 ranks with L = 840; each rank's rows are those of the plan."""
    config = replace(CONFIG, batch_size=840 // world_size, lanes=840)
    whole = keys(TorchLoader(ten, replace(config, batch_size=840)))
    ranks = ranks_of(ten, config, world_size=world_size)
    assert [key for step in zip(*ranks, strict=True) for row in zip(*step, strict=True) for key in row] == [
        key for batch in whole for key in batch
    ]


def test_a_layout_that_does_not_fit_is_refused_with_what_would(base: Dataset) -> None:
    with pytest.raises(ConfigError, match=r"3 ranks do not divide 4 lanes. Of the lanes, 3 or 6 fit"):
        TorchLoader(base, replace(CONFIG, batch_size=4, lanes=4), rank=0, world_size=3)


@contextmanager
def read_offsets(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Collect the numbers of the samples that are read, in order."""
    read: list[int] = []
    real = SampleReader.read

    def spy(self: SampleReader, sample: int) -> Any:
        read.append(sample)
        return real(self, sample)

    monkeypatch.setattr(SampleReader, "read", spy)
    yield read


def test_every_shard_is_read_forward_by_each_lane_and_the_window_bounds_what_waits(
    ten: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(CONFIG, batch_size=4, lanes=1, block=32)
    with read_offsets(monkeypatch) as read, TorchLoader(ten, config) as loader:
        for number, _ in enumerate(loader):
            assert len(read) - 4 * (number + 1) <= 32
        for shard in range(10):
            of_shard = [sample for sample in read if sample // 30 == shard]
            assert of_shard == sorted(of_shard)
            assert len(of_shard) == 30


def write_many(folder: Path, *, num_shards: int, num_samples: int) -> None:
    """Write equal small shards of one-picture samples, with indexes and a manifest: hard links of one file."""
    first = write_shard(folder / "t-0000.tar", sample_members(num_samples, size=(8, 8)))
    index = build_index(first)
    records = []
    for number in range(num_shards):
        path = folder / f"t-{number:04d}.tar"
        if number:
            os.link(first, path)
        write_index(index, Path(index_path_of(str(path))))
        records.append(ShardRecord(path.name, num_samples, index.num_bytes, index.checksum))
    manifest = Manifest(
        name="t", split="train", seed=0, classes=(), class_order="by name", shuffled=False, shards=tuple(records)
    )
    write_manifest(manifest, folder / "t.manifest.json", replace=True)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_resume_in_the_middle_of_imagenet_sized_data_reads_the_window_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_workers: int
) -> None:
    """1,282 shards of 1,000 samples: W samples a lane at most are read before the first batch."""
    write_many(tmp_path, num_shards=1282, num_samples=1000)
    config = replace(CONFIG, batch_size=256, tail="drop", num_epochs=None, num_workers=num_workers)
    with TorchLoader(open_dataset([str(tmp_path)]), config) as loader:
        state = loader.state_dict() | {"epoch": 3, "position": 256 * 2500}
    with read_offsets(monkeypatch) as read, TorchLoader(open_dataset([str(tmp_path)]), config) as loader:
        loader.load_state_dict(state)
        batch = next(iter(loader))
    assert batch.position == 256 * 2501
    assert len(read) <= 64 * 32
