from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.helpers.http_server import serve
from tests.helpers.packed import write_packed
from tests.helpers.shards import jpeg_bytes, write_samples, write_shard
from wdsloader import (
    AugmentConfig,
    Batch,
    ConfigError,
    Dataset,
    DatasetError,
    LoaderConfig,
    NoLengthError,
    SampleError,
    TorchLoader,
    WorkerError,
    merge_accounts,
    open_dataset,
)

CONFIG = LoaderConfig(batch_size=8, image_size=12, augment=AugmentConfig(), num_workers=0, lanes=4, block=4)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("shards")
    for number, (first, count) in enumerate([(0, 13), (13, 0), (13, 9), (22, 21)]):
        write_samples(folder / f"s-{number}.tar", count, first=first)
    return open_dataset([str(folder / "s-*.tar")])


def epochs(loader: TorchLoader, count: int) -> list[Batch]:
    return [batch for _ in range(count) for batch in loader]


def same(ours: Batch, theirs: Batch) -> bool:
    return (
        (ours.keys, ours.epoch, ours.position, ours.state) == (theirs.keys, theirs.epoch, theirs.position, theirs.state)
        and torch.equal(ours.images, theirs.images)
        and torch.equal(ours.labels, theirs.labels)
        and torch.equal(ours.weights, theirs.weights)
    )


class TestWithoutWorkers:
    def test_a_batch_has_the_promised_types_and_shapes(self, dataset: Dataset) -> None:
        with TorchLoader(dataset, CONFIG) as loader:
            batch = next(iter(loader))
        assert (batch.images.dtype, tuple(batch.images.shape)) == (torch.uint8, (8, 12, 12, 3))
        assert (batch.labels.dtype, tuple(batch.labels.shape)) == (torch.int64, (8,))
        assert (batch.weights.dtype, tuple(batch.weights.shape)) == (torch.float32, (8,))
        assert (batch.epoch, batch.position, len(batch.keys)) == (0, 8, 8)

    def test_an_iteration_is_one_epoch_and_the_next_one_has_another_order(self, dataset: Dataset) -> None:
        with TorchLoader(dataset, CONFIG) as loader:
            orders = [[batch.keys for batch in loader] for _ in range(2)]
        assert len(loader) == len(orders[0]) == 5
        assert orders[0] != orders[1]
        assert len({key for keys in orders[0] for key in keys}) == 40

    def test_after_a_break_the_rest_of_the_epoch_follows(self, dataset: Dataset) -> None:
        with TorchLoader(dataset, CONFIG) as undisturbed, TorchLoader(dataset, CONFIG) as loader:
            whole = [batch.keys for batch in undisturbed]
            first = next(iter(loader)).keys
            assert [first] + [batch.keys for batch in loader] == whole

    def test_the_state_after_the_last_batch_is_the_start_of_the_next_epoch(self, dataset: Dataset) -> None:
        with TorchLoader(dataset, CONFIG) as loader:
            *_, last = list(loader)
        assert (last.epoch, last.position) == (0, 40)
        assert (last.state["epoch"], last.state["position"]) == (1, 0)

    def test_epochs_end_where_the_settings_say(self, dataset: Dataset) -> None:
        with TorchLoader(dataset, replace(CONFIG, num_epochs=2)) as loader:
            assert [len(list(loader)) for _ in range(4)] == [5, 5, 0, 0]

    def test_validation_counts_every_sample_once_on_every_layout(self, dataset: Dataset) -> None:
        for world_size in (1, 2, 3):
            config = replace(CONFIG, batch_size=4, shuffle=False, augment=None, tail="pad", lanes=None, num_epochs=1)
            loaders = [TorchLoader(dataset, config, rank=rank, world_size=world_size) for rank in range(world_size)]
            ranks = [list(loader) for loader in loaders]
            assert {len(batches) for batches in ranks} == {len(loaders[0])}
            keys = [key for batches in ranks for batch in batches for key in batch.keys if key is not None]
            assert sorted(keys) == [f"{n:06d}" for n in range(43)]
            assert sum(int(batch.weights.sum()) for batches in ranks for batch in batches) == 43


class TestResume:
    def test_a_resume_continues_bit_by_bit_with_any_number_of_workers(self, dataset: Dataset) -> None:
        with TorchLoader(dataset, CONFIG) as loader:
            whole = epochs(loader, 2)
        for stop, workers in ((1, 2), (4, 0), (7, 0)):
            with TorchLoader(dataset, replace(CONFIG, num_workers=workers)) as loader:
                loader.load_state_dict(whole[stop - 1].state)
                rest = epochs(loader, 1 if stop > 5 else 2)
            assert len(rest) == len(whole) - stop
            assert all(same(ours, theirs) for ours, theirs in zip(rest, whole[stop:], strict=True))

    def test_batches_that_wait_in_the_workers_do_not_count(self, dataset: Dataset) -> None:
        with TorchLoader(dataset, replace(CONFIG, num_workers=2)) as loader:
            batches = iter(loader)
            second = [next(batches), next(batches)][1]
            assert loader.state_dict() == second.state
            assert second.state["position"] == 16

    def test_the_state_is_the_same_on_every_rank(self, dataset: Dataset) -> None:
        loaders = [TorchLoader(dataset, replace(CONFIG, batch_size=4), rank=rank, world_size=2) for rank in range(2)]
        first, second = (next(iter(loader)).state for loader in loaders)
        assert first == second

    def test_ranks_and_batch_size_may_change_where_the_lanes_allow(self, dataset: Dataset) -> None:
        with TorchLoader(dataset, CONFIG) as loader:
            whole = list(loader)
            keys = [key for batch in whole for key in batch.keys]
        config = replace(CONFIG, batch_size=2, lanes=None, block=None)
        loaders = [TorchLoader(dataset, config, rank=rank, world_size=2) for rank in range(2)]
        for loader in loaders:
            loader.load_state_dict(whole[1].state)
        rest = [[key for batch in loader for key in batch.keys] for loader in loaders]
        together = [key for pair in zip(*rest, strict=True) for key in pair]
        assert together[:24] == keys[16:]

    def test_a_batch_size_that_the_saved_lanes_do_not_divide_is_refused_with_what_fits(self, dataset: Dataset) -> None:
        with TorchLoader(dataset, CONFIG) as loader:
            state = next(iter(loader)).state
        with pytest.raises(ConfigError, match=r"4 lanes do not divide the global batch of 6.*batch of 4 or 8 fits"):
            TorchLoader(dataset, replace(CONFIG, batch_size=6, lanes=None)).load_state_dict(state)

    def test_other_data_are_refused(self, dataset: Dataset, tmp_path: Path) -> None:
        write_samples(tmp_path / "s.tar", 20)
        with TorchLoader(dataset, CONFIG) as loader:
            state = loader.state_dict()
        with pytest.raises(ConfigError, match="other data"):
            TorchLoader(open_dataset([str(tmp_path / "s.tar")]), CONFIG).load_state_dict(state)

    def test_too_few_samples_for_a_larger_batch_go_on_with_the_next_epoch(self, dataset: Dataset) -> None:
        with TorchLoader(dataset, CONFIG) as loader:
            state = list(loader)[3].state
        with TorchLoader(dataset, replace(CONFIG, batch_size=16)) as loader:
            loader.load_state_dict(state)
            assert next(iter(loader)).epoch == 1


class TestWithWorkers:
    def test_batches_are_bit_identical_to_those_without_workers(self, dataset: Dataset) -> None:
        config = replace(CONFIG, tail="pad", num_epochs=2)
        with TorchLoader(dataset, config) as alone, TorchLoader(dataset, replace(config, num_workers=3)) as loader:
            pairs = zip(epochs(alone, 2), epochs(loader, 2), strict=True)
            assert all(same(ours, theirs) for ours, theirs in pairs)

    def test_the_global_random_state_of_torch_is_left_alone(self, dataset: Dataset) -> None:
        before = torch.get_rng_state()
        with TorchLoader(dataset, replace(CONFIG, num_workers=2)) as loader:
            list(loader)
        assert torch.equal(torch.get_rng_state(), before)

    def test_workers_live_on_from_epoch_to_epoch_and_none_is_left_after_close(self, dataset: Dataset) -> None:
        before = children()
        with TorchLoader(dataset, replace(CONFIG, num_workers=2)) as loader:
            list(loader)
            workers = children() - before
            list(loader)
            assert children() - before == workers
            assert len(workers) == 2
        assert children() == before

    def test_a_loader_that_is_dropped_leaves_no_process(self, dataset: Dataset) -> None:
        before = children()
        loader = TorchLoader(dataset, replace(CONFIG, num_workers=2))
        batches = iter(loader)
        next(batches), next(batches)
        assert children() != before
        del batches, loader
        gc.collect()
        assert children() == before

    def test_an_error_in_a_worker_arrives_as_what_it_was(self, tmp_path: Path) -> None:
        path = write_shard(tmp_path / "s.tar", [("a.jpg", jpeg_bytes(0)[:-40]), ("a.cls", b"0"), ("b.jpg", b"")])
        config = replace(CONFIG, batch_size=1, lanes=None, shuffle=False, num_workers=1)
        with TorchLoader(open_dataset([str(path)]), config) as loader, pytest.raises(SampleError) as caught:
            list(loader)
        error = caught.value
        assert (error.shard, error.key, error.offset) == (str(path), "a", 0)
        assert "does not decode" in error.cause

    def test_a_killed_worker_is_an_error_that_names_its_pid_and_the_signal(self, dataset: Dataset) -> None:
        before = children()
        with TorchLoader(dataset, replace(CONFIG, num_workers=1)) as loader:
            batches = iter(loader)
            next(batches), next(batches)  # the first is made here
            (pid,) = children() - before
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(WorkerError, match=f"pid {pid}.* was killed by signal 9"):
                list(batches)

    def test_workers_pass_over_the_signals_of_the_terminal(self, dataset: Dataset) -> None:
        before = children()
        with TorchLoader(dataset, replace(CONFIG, num_workers=1, num_epochs=2)) as loader:
            batches = iter(loader)
            next(batches), next(batches)  # the first is made here
            (pid,) = children() - before
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGINT)
            assert len(list(batches)) == 3

    def test_workers_without_rows_are_not_started_and_one_line_says_so(
        self, dataset: Dataset, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, logger="wdsloader")
        before = children()
        config = replace(CONFIG, batch_size=2, lanes=2, num_workers=5)
        with TorchLoader(dataset, config) as loader:
            batches = iter(loader)
            next(batches)
            assert children() == before
            next(batches)
            assert len(children() - before) == 2
        assert [record.message for record in caplog.records] == [
            "2 of 5 workers have rows to fill; the others are not started"
        ]


class TestRemote:
    def test_shards_behind_a_manifest_url_are_exact_and_fetched_once_by_all_workers(self, tmp_path: Path) -> None:
        write_packed(tmp_path / "far", [7, 0, 9, 8])
        config = replace(CONFIG, batch_size=6, lanes=None, tail="pad")
        with serve(tmp_path / "far") as server:
            far = open_dataset([server.url + "/t.manifest.json"], cache_dir=tmp_path / "cache")
            with TorchLoader(far, replace(config, num_workers=2)) as loader:
                assert loader.state_dict()["lanes"] == 6
                batches = epochs(loader, 2)
            assert [server.count(f"/t-0{number}.tar") for number in (0, 2, 3)] == [1, 1, 1]
        here = open_dataset([str(tmp_path / "far/t-*.tar")])
        with TorchLoader(here, replace(config, lanes=6)) as loader:
            assert all(same(ours, theirs) for ours, theirs in zip(epochs(loader, 2), batches, strict=True))


class TestInexact:
    def test_shards_without_counts_are_streamed_and_have_no_length(self, tmp_path: Path) -> None:
        for number in range(3):
            write_samples(tmp_path / f"far/s-{number}.tar", 5, first=5 * number)
        config = replace(CONFIG, batch_size=4, lanes=None, tail="ragged")
        with serve(tmp_path / "far") as server:
            dataset = open_dataset([server.url + "/s-<0..2>.tar"], cache_dir=tmp_path / "cache")
            with TorchLoader(dataset, config) as loader:
                assert sorted(str(key) for batch in loader for key in batch.keys) == [f"{n:06d}" for n in range(15)]
                second = list(loader)
                assert (second[-1].epoch, second[-1].position) == (1, 15)
                with pytest.raises(NoLengthError, match="not known"):
                    len(loader)

    @pytest.mark.parametrize(("num_workers", "dropped"), [(0, 3), (2, 1 + 2)])
    def test_what_fills_no_batch_is_in_the_account(self, tmp_path: Path, num_workers: int, dropped: int) -> None:
        for number, samples in enumerate((8, 9)):
            write_samples(tmp_path / f"far/s-{number}.tar", samples, first=10 * number)
        config = replace(CONFIG, batch_size=7, lanes=None, num_workers=num_workers)
        with serve(tmp_path / "far") as server:
            dataset = open_dataset([server.url + "/s-<0..1>.tar"], cache_dir=tmp_path / "cache")
            with TorchLoader(dataset, replace(config, shuffle=False)) as loader:
                delivered = sum(len(batch.keys) for batch in loader)
                account = loader.account
        assert account is not None
        assert (account.delivered, account.dropped) == (delivered, dropped)

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_an_epoch_that_is_closed_while_it_is_read_is_an_error_and_no_end(
        self, tmp_path: Path, num_workers: int
    ) -> None:
        for number in range(2):
            write_samples(tmp_path / f"far/s-{number}.tar", 8, first=8 * number)
        config = replace(CONFIG, batch_size=2, lanes=None, num_workers=num_workers)
        with serve(tmp_path / "far") as server:
            dataset = open_dataset([server.url + "/s-<0..1>.tar"], cache_dir=tmp_path / "cache")
            with TorchLoader(dataset, config) as loader:
                for interfere in (loader.close, lambda: next(iter(loader))):
                    batches = iter(loader)
                    next(batches)
                    interfere()
                    with pytest.raises(WorkerError, match="was closed, or began another epoch"):
                        next(batches)
                    assert loader.state_dict()["epoch"] == 0
                assert len(list(loader)) == 8

    def test_the_accounts_of_all_ranks_add_up_to_every_sample_of_the_shards(self, tmp_path: Path) -> None:
        for number, samples in enumerate((8, 9)):
            write_samples(tmp_path / f"far/s-{number}.tar", samples, first=10 * number)
        config = replace(CONFIG, batch_size=7, lanes=None, shuffle=False)
        accounts = []
        with serve(tmp_path / "far") as server:
            dataset = open_dataset([server.url + "/s-<0..1>.tar"], cache_dir=tmp_path / "cache")
            for rank in range(2):
                with TorchLoader(dataset, config, rank=rank, world_size=2) as loader:
                    assert len(list(loader)) == 1
                    assert loader.account is not None
                    accounts.append(loader.account)
        whole = merge_accounts(accounts)
        assert (whole.delivered, whole.dropped) == (14, 1 + 2)

    def test_exact_makes_it_an_error(self, tmp_path: Path) -> None:
        dataset = open_dataset(["http://host/s-{0..3}.tar"], cache_dir=tmp_path)
        with pytest.raises(DatasetError, match="wds index"):
            TorchLoader(dataset, replace(CONFIG, exact=True))


def children() -> set[int]:
    return {process.pid or 0 for process in multiprocessing.active_children()}
