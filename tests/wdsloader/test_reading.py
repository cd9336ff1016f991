"""What `on_error` does, from the shard to the batch: an error, or a masked row and an entry in the books."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from tests.helpers.damaged import write_with_bad_pictures
from tests.helpers.http_server import serve
from tests.helpers.packed import write_packed
from tests.helpers.shards import jpeg_bytes, sample_members, write_samples, write_shard
from wdsloader import (
    AugmentConfig,
    Batch,
    Dataset,
    DatasetError,
    EpochAccount,
    LoaderConfig,
    SampleError,
    SkipLimitError,
    TorchLoader,
    merge_accounts,
    open_dataset,
)

CONFIG = LoaderConfig(
    batch_size=8, image_size=12, augment=AugmentConfig(), num_workers=0, lanes=4, block=4, tail="pad", num_epochs=1,
    on_error="skip", max_skipped=1000,
)  # fmt: skip
BAD = {3, 4, 17, 30}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards of 13, 9 and 21 samples; pictures 3, 4, 17 and 30 are cut."""
    folder = tmp_path_factory.mktemp("shards")
    for number, (first, count) in enumerate([(0, 13), (13, 9), (22, 21)]):
        write_with_bad_pictures(folder / f"s-{number}.tar", count, bad=BAD, first=first)
        write_samples(folder / f"whole/s-{number}.tar", count, first=first)
    return folder


def run(dataset: Dataset, config: LoaderConfig, **layout: Any) -> tuple[list[Batch], EpochAccount]:
    with TorchLoader(dataset, config, **layout) as loader:
        batches = list(loader)
        assert loader.account is not None
        return batches, loader.account


def keys(batches: list[Batch]) -> list[list[str | None]]:
    return [list(batch.keys) for batch in batches]


class TestSkip:
    def test_a_bad_sample_is_a_masked_row_and_no_other_row_moves(self, folder: Path) -> None:
        with_gaps, account = run(open_dataset([str(folder / "s-*.tar")]), CONFIG)
        whole, _ = run(open_dataset([str(folder / "whole/s-*.tar")]), CONFIG)
        for gaps, sound in zip(with_gaps, whole, strict=True):
            for row, key in enumerate(sound.keys):
                if key is not None and int(key) in BAD:
                    assert (gaps.keys[row], float(gaps.weights[row])) == (None, 0.0)
                    first = next(i for i, k in enumerate(gaps.keys) if k is not None)
                    assert torch.equal(gaps.images[row], gaps.images[first])
                    assert gaps.labels[row] == gaps.labels[first]
                elif key is not None:
                    assert gaps.keys[row] == key
                    assert torch.equal(gaps.images[row], sound.images[row])
        assert (account.expected, account.delivered, account.replaced) == (43, 39, 4)
        assert {fault.key for fault in account.faults} == {f"{n:06d}" for n in BAD}
        assert all(fault.rule == "WDS040" and fault.offset is not None for fault in account.faults)

    @pytest.mark.parametrize("num_workers", [1, 3])
    def test_the_account_and_the_batches_are_the_same_for_any_number_of_workers(
        self, folder: Path, num_workers: int
    ) -> None:
        dataset = open_dataset([str(folder / "s-*.tar")])
        alone, books = run(dataset, CONFIG)
        shared, others = run(dataset, replace(CONFIG, num_workers=num_workers))
        assert others == books
        for ours, theirs in zip(alone, shared, strict=True):
            assert ours.keys == theirs.keys
            assert torch.equal(ours.images, theirs.images)

    @pytest.mark.parametrize(("tail", "shuffle", "dropped"), [("pad", True, 0), ("drop", True, 3), ("drop", False, 3)])
    def test_the_accounts_of_all_ranks_add_up_to_that_of_one(
        self, folder: Path, tail: Literal["pad", "drop"], shuffle: bool, dropped: int
    ) -> None:
        dataset = open_dataset([str(folder / "s-*.tar")])
        whole = replace(CONFIG, tail=tail, shuffle=shuffle, lanes=CONFIG.lanes if shuffle else None)
        _, alone = run(dataset, whole)
        assert alone.dropped == dropped
        for world_size in (2, 4):
            config = replace(whole, batch_size=8 // world_size)
            ranks = [run(dataset, config, rank=rank, world_size=world_size)[1] for rank in range(world_size)]
            assert merge_accounts(ranks) == alone

    def test_a_resume_shifts_nothing_and_the_account_says_from_where_it_counts(self, folder: Path) -> None:
        dataset = open_dataset([str(folder / "s-*.tar")])
        whole, books = run(dataset, CONFIG)
        with TorchLoader(dataset, CONFIG) as loader:
            loader.load_state_dict(whole[1].state)
            rest = list(loader)
            account = loader.account
        assert keys(rest) == keys(whole[2:])
        assert all(torch.equal(a.images, b.images) for a, b in zip(rest, whole[2:], strict=True))
        assert account is not None
        assert (account.start, account.expected) == (16, 27)
        assert account.faults == tuple(fault for fault in books.faults if fault.position >= 16)

    def test_a_batch_without_a_good_row_repeats_the_last_good_one_before_it_also_after_a_resume(
        self, tmp_path: Path
    ) -> None:
        write_with_bad_pictures(tmp_path / "s.tar", 12, bad=set(range(4, 12)))
        config = replace(CONFIG, batch_size=4, shuffle=False, augment=None, lanes=None, block=None)
        dataset = open_dataset([str(tmp_path / "s.tar")])
        whole, _ = run(dataset, config)
        assert whole[2].weights.sum() == 0
        assert all(torch.equal(image, whole[0].images[3]) for image in whole[2].images)
        with TorchLoader(dataset, config) as loader:
            loader.load_state_dict(whole[1].state)
            (last,) = list(loader)
        assert torch.equal(last.images, whole[2].images)
        assert torch.equal(last.labels, whole[2].labels)

    def test_the_end_of_an_epoch_is_one_line_a_warning_where_something_is_missing(
        self, folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, logger="wdsloader")
        for pattern in ("s-*.tar", "whole/s-*.tar"):
            dataset = open_dataset([str(folder / pattern)])
            caplog.clear()
            run(dataset, CONFIG)
            (record,) = caplog.records
            assert record.levelname == ("WARNING" if pattern == "s-*.tar" else "INFO")
            assert record.message.startswith("epoch 1: 43 samples expected, ")

    def test_crossing_the_limit_ends_the_run_with_one_error(self, folder: Path) -> None:
        dataset = open_dataset([str(folder / "s-*.tar")])
        with pytest.raises(SkipLimitError, match=r"max_skipped=0.05 of 43 samples is 2\. First: .*s-\d.tar: '0000"):
            run(dataset, replace(CONFIG, max_skipped=0.05))
        run(dataset, replace(CONFIG, max_skipped=4))

    def test_the_limit_is_for_each_epoch_anew(self, folder: Path) -> None:
        with TorchLoader(
            open_dataset([str(folder / "s-*.tar")]), replace(CONFIG, max_skipped=4, num_epochs=3)
        ) as loader:
            for epoch in range(3):
                assert len(list(loader)) == 6
                assert loader.account is not None
                assert (loader.account.epoch, loader.account.replaced) == (epoch, 4)


class TestLostShards:
    def test_a_shard_that_its_manifest_counts_is_replaced_whole(self, tmp_path: Path) -> None:
        """URL-05 with a manifest: 7 of 28 samples replaced, one shard missing."""
        write_packed(tmp_path, [7, 7, 7, 7])
        patterns = [str(tmp_path / "t-{00..03}.tar")]
        whole, _ = run(open_dataset(patterns), CONFIG)
        (tmp_path / "t-02.tar").unlink()
        with pytest.raises(DatasetError, match=r"t-02.tar: No such file \(1 of 4 shards\)"):
            open_dataset(patterns)
        gaps, account = run(open_dataset(patterns, on_error="skip"), CONFIG)
        assert (account.expected, account.delivered, account.replaced) == (28, 21, 7)
        assert account.lost_shards == (str(tmp_path / "t-02.tar"),)
        assert {fault.cause for fault in account.faults} == {"No such file or directory"}
        lost = {f"{n:06d}" for n in range(200, 207)}
        assert keys(gaps) == [[None if key in lost else key for key in row] for row in keys(whole)]

    def test_a_missing_shard_without_a_manifest_is_named_and_the_rest_delivered(self, tmp_path: Path) -> None:
        """URL-05: 21 samples and "1 shard missing"."""
        for number in (0, 1, 3):
            write_samples(tmp_path / f"s-{number}.tar", 7, first=7 * number)
        dataset = open_dataset([str(tmp_path / "s-{0..3}.tar")], on_error="skip")
        _, account = run(dataset, CONFIG)
        assert (account.expected, account.delivered, account.replaced) == (21, 21, 0)
        assert "1 shard missing or damaged" in str(account)
        with pytest.raises(DatasetError, match=r"s-2.tar: missing or damaged, 1 such shard"):
            TorchLoader(dataset, replace(CONFIG, on_error="stop"))
        with pytest.raises(SkipLimitError, match="1 shard of unknown length"):
            run(dataset, replace(CONFIG, max_skipped=0))

    def test_a_shard_that_its_server_lost_is_not_asked_for_by_every_sample(self, tmp_path: Path) -> None:
        write_packed(tmp_path / "far", [7, 7, 7, 7])
        with serve(tmp_path / "far") as server:
            (tmp_path / "far/t-02.tar").unlink()
            dataset = open_dataset([server.url + "/t.manifest.json"], cache_dir=tmp_path / "cache", on_error="skip")
            with pytest.raises(Exception, match=r"t-02.tar: status 404"):
                run(dataset, replace(CONFIG, on_error="stop"))
            before = server.count("/t-02.tar")
            _, account = run(dataset, CONFIG)
            assert (account.delivered, account.replaced, len(account.lost_shards)) == (21, 7, 1)
            # Once to read it and, where shards are fetched ahead, once for that: not for each of its seven samples.
            assert 1 <= server.count("/t-02.tar") - before <= 2

    def test_without_counts_a_lost_shard_is_named_and_its_samples_are_unknown(self, tmp_path: Path) -> None:
        for number in (0, 1, 3):
            write_samples(tmp_path / f"far/s-{number}.tar", 7, first=7 * number)
        config = replace(CONFIG, lanes=None, block=None, tail="ragged")
        with serve(tmp_path / "far") as server:
            dataset = open_dataset([server.url + "/s-{0..3}.tar"], cache_dir=tmp_path / "cache", on_error="skip")
            for num_workers in (0, 2):
                batches, account = run(dataset, replace(config, num_workers=num_workers))
                assert sum(len(batch.keys) for batch in batches) == account.delivered == 21
                assert [name.rpartition("/")[2] for name in account.lost_shards] == ["s-2.tar"]

    def test_a_shard_cut_since_it_was_counted_is_replaced_whole(self, tmp_path: Path) -> None:
        paths = write_packed(tmp_path, [7, 7])
        paths[1].write_bytes(paths[1].read_bytes()[:5000])
        with pytest.raises(DatasetError, match="5000 bytes"):
            open_dataset([str(tmp_path / "t-*.tar")])
        _, account = run(open_dataset([str(tmp_path / "t-*.tar")], on_error="skip"), CONFIG)
        assert (account.delivered, account.replaced) == (7, 7)


class TestDamagedShards:
    """Local shards without an index, of which nobody knew before that they are damaged."""

    def account_of(self, path: Path) -> EpochAccount:
        return run(open_dataset([str(path)], on_error="skip"), CONFIG)[1]

    def test_a_name_twice_in_a_sample_costs_that_sample(self, tmp_path: Path) -> None:
        """KEY-03: under skip exactly 4 samples and 1 counted."""
        members = sample_members(5)
        members.insert(5, members[4])
        account = self.account_of(write_shard(tmp_path / "s.tar", members))
        assert (account.delivered, account.by_cause) == (4, {"unreadable (WDS004)": 1})
        assert account.faults[0].key == "000002"

    def test_parts_that_lie_apart_are_never_a_sample(self, tmp_path: Path) -> None:
        """KEY-01: five keys, ten halves."""
        members = sample_members(5)
        account = self.account_of(write_shard(tmp_path / "s.tar", members[::2] + members[1::2]))
        assert (account.expected, account.delivered, account.by_cause) == (5, 0, {"unreadable (WDS020)": 5})

    def test_a_cut_shard_is_read_up_to_the_cut(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path / "s.tar", 6)
        path.write_bytes(path.read_bytes()[:8300])
        account = self.account_of(path)
        assert account.delivered == 3
        assert account.by_cause == {"unreadable (WDS002)": 1}
        assert account.faults[0].key == "000003"

    @pytest.mark.parametrize("spoiled", [b"<html>not here</html>", b""])
    def test_what_is_no_shard_at_all_is_a_lost_one(self, tmp_path: Path, spoiled: bytes) -> None:
        (tmp_path / "a.tar").write_bytes(spoiled)
        write_samples(tmp_path / "b.tar", 4)
        account = self.account_of(tmp_path)
        assert (account.delivered, account.lost_shards) == (4, (str(tmp_path / "a.tar"),))

    def test_missing_and_unusable_parts_are_counted_by_cause(self, tmp_path: Path) -> None:
        """KEY-12, KEY-13: a sample without a picture or a usable label is an error, or under skip a count."""
        members = [
            ("a.jpg", jpeg_bytes(0)), ("a.cls", b"1"), ("b.jpg", jpeg_bytes(1)), ("c.cls", b"2"),
            ("d.jpg", jpeg_bytes(2)), ("d.cls", b" "), ("e.jpg", b""), ("e.cls", b"3"),
        ]  # fmt: skip
        path = write_shard(tmp_path / "s.tar", members)
        account = self.account_of(path)
        assert account.delivered == 1
        assert account.by_cause == {
            "no label (WDS022)": 1, "no label (WDS030)": 1, "no picture (WDS021)": 1, "undecodable picture (WDS043)": 1,
        }  # fmt: skip
        found = open_dataset([str(path)], on_error="skip").label_range()
        assert found is not None
        assert (found.lowest, found.highest) == (1, 3)
        with pytest.raises(SampleError, match="'b' at byte 2560: no label"):
            run(open_dataset([str(path)]), replace(CONFIG, on_error="stop", shuffle=False, lanes=None))

    def test_labels_may_be_optional(self, tmp_path: Path) -> None:
        path = write_shard(tmp_path / "s.tar", [("a.jpg", jpeg_bytes(0)), ("b.jpg", jpeg_bytes(1))])
        (batch,), account = run(open_dataset([str(path)]), replace(CONFIG, labels="optional", on_error="stop"))
        assert account.delivered == 2
        assert batch.labels[:2].tolist() == [-1, -1]


def test_equal_keys_in_two_shards_stay_two_samples(tmp_path: Path) -> None:
    """KEY-04: labels 1 and 2, in any order; halves in two shards are never joined."""
    for number in (1, 2):
        members = [("sample.jpg", jpeg_bytes(number)), ("sample.cls", str(number).encode())]
        write_shard(tmp_path / f"x-{number}.tar", members)
        write_shard(tmp_path / f"y-{number}.tar", members[number - 1 : number])
    for seed in range(4):
        config = replace(CONFIG, seed=seed)
        (batch,), _ = run(open_dataset([str(tmp_path / "x-*.tar")]), config)
        assert sorted(batch.labels[:2].tolist()) == [1, 2]
        _, account = run(open_dataset([str(tmp_path / "y-*.tar")]), config)
        assert (account.delivered, account.replaced) == (0, 2)


def test_stop_names_shard_key_offset_and_cause_also_from_a_worker(folder: Path) -> None:
    """TRN-06."""
    config = replace(CONFIG, on_error="stop", shuffle=False, lanes=None, num_workers=1)
    with pytest.raises(SampleError) as caught:
        run(open_dataset([str(folder / "s-*.tar")]), config)
    error = caught.value
    assert (error.shard, error.key, error.rule) == (str(folder / "s-0.tar"), "000003", "WDS040")
    assert error.offset is not None
    assert str(error).startswith(f"{error.shard}: '000003' at byte {error.offset}: jpg: ")


def test_an_index_made_before_the_damage_still_finds_it(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "whole", tmp_path / "s")
    dataset = open_dataset([str(tmp_path / "s")])
    path = tmp_path / "s/s-1.tar"
    data = bytearray(path.read_bytes())
    data[512 * 5 : 512 * 6] = bytes(np.full(512, 255, np.uint8))
    path.write_bytes(data)
    _, account = run(dataset, CONFIG)
    assert account.replaced >= 1
    assert account.delivered + account.replaced == 43
