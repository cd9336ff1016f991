from __future__ import annotations

import logging
import os
import pickle
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from shardkit import (
    IndexFileError,
    PackConfig,
    PatternError,
    ShardReadError,
    index_path_of,
    open_folder,
    pack,
    plan_shards,
    read_index,
    read_manifest,
    write_index,
    write_manifest,
)
from tests.helpers.folders import image_folder
from tests.helpers.http_server import Misdeed, serve
from tests.helpers.packed import write_packed
from tests.helpers.shards import write_samples
from wdsloader.dataset import open_dataset
from wdsloader.errors import DatasetError, FetchError
from wdsloader.shards import SampleReader


def test_a_manifest_beside_the_shards_gives_counts_digest_and_classes(tmp_path: Path) -> None:
    write_packed(tmp_path, [3, 0, 5], shuffled=True)
    dataset = open_dataset([str(tmp_path / "t-<00..02>.tar")])
    assert dataset.counts == (3, 0, 5)
    assert dataset.num_samples == 8
    assert dataset.digest == read_manifest(tmp_path / "t.manifest.json").digest
    assert dataset.classes == tuple("abcdefghij")
    assert dataset.packed_shuffled
    labels = dataset.label_range()
    assert labels is not None
    assert (labels.lowest, labels.highest) == (0, 4)
    assert labels.highest_at == f"{tmp_path / 't-02.tar'}: '000204'"


def test_a_shard_that_its_manifest_lists_and_its_folder_has_lost_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_packed(tmp_path, [3, 2, 5])
    (tmp_path / "t-01.tar").unlink()
    assert open_dataset([str(tmp_path)]).counts == (3, 5)
    assert "t.manifest.json: 1 of its 3 shards are gone, first t-01.tar" in caplog.text


def test_the_digest_is_the_same_with_and_without_a_manifest(tmp_path: Path) -> None:
    write_packed(tmp_path, [3, 5])
    with_manifest = open_dataset([str(tmp_path / "t-*.tar")])
    (tmp_path / "t.manifest.json").unlink()
    without = open_dataset([str(tmp_path / "t-*.tar")])
    assert without.classes is None
    assert without.digest == with_manifest.digest


def test_some_shards_of_a_manifest_are_another_dataset(tmp_path: Path) -> None:
    paths = write_packed(tmp_path, [3, 5])
    whole, part = open_dataset([str(path) for path in paths]), open_dataset([str(paths[0])])
    turned = open_dataset([str(path) for path in reversed(paths)])
    assert len({whole.digest, part.digest, turned.digest}) == 3
    assert part.counts == (3,)


def test_shards_without_an_index_are_indexed_on_first_use_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    paths = [write_samples(tmp_path / f"s-{i}.tar", 2, first=2 * i) for i in range(3)]
    dataset = open_dataset([str(tmp_path / "s-*.tar")])
    assert dataset.counts == (2, 2, 2)
    assert [record.message.split(" in ")[0] for record in caplog.records] == ["indexed 3 shards on their first use,"]
    assert read_index(Path(index_path_of(str(paths[0])))).keys == ("000000", "000001")
    caplog.clear()
    open_dataset([str(tmp_path / "s-*.tar")])
    assert not caplog.records


def unwritable_index(folder: Path) -> Path:
    """Write a shard whose index has no room beside it: the temporary name is too long, for root as for anybody."""
    return write_samples(folder / ("s" * 226 + ".tar"), 2)


def test_an_index_that_cannot_lie_beside_its_shard_is_kept_in_the_cache_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = unwritable_index(tmp_path / "data")
    for lines in (1, 1):  # made once, found again
        dataset = open_dataset([str(path)], cache_dir=tmp_path / "cache")
        assert SampleReader(dataset.table, max_indexes=1).read(1).content.key == "000001"
        assert len(caplog.records) == lines
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_an_index_in_the_cache_folder_that_is_older_than_its_shard_is_made_again(tmp_path: Path) -> None:
    path = unwritable_index(tmp_path / "data")
    open_dataset([str(path)], cache_dir=tmp_path / "cache")
    # The same size, other keys.
    write_samples(path, 2, first=7)
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 10**9))
    dataset = open_dataset([str(path)], cache_dir=tmp_path / "cache")
    assert SampleReader(dataset.table, max_indexes=1).read(1).content.key == "000008"


@pytest.mark.parametrize("listed", [True, False])
def test_shards_newer_than_their_indexes_are_used_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, listed: bool
) -> None:
    paths = write_packed(tmp_path, [2, 3, 4])
    if not listed:
        (tmp_path / "t.manifest.json").unlink()
    assert open_dataset([str(tmp_path)]).counts == (2, 3, 4)
    assert not caplog.records
    for path in paths[:2]:
        os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 10**9))
    assert open_dataset([str(tmp_path)]).counts == (2, 3, 4)
    (record,) = caplog.records
    assert record.message.startswith(f"{paths[0]}: newer than its index, 2 shards in all. Sizes agree")


def test_an_index_of_another_size_than_its_shard_is_refused_at_once(tmp_path: Path) -> None:
    path = write_packed(tmp_path, [2])[0]
    index_path = Path(index_path_of(str(path)))
    write_index(replace(read_index(index_path), num_bytes=512), index_path)
    with pytest.raises(DatasetError, match="its index says 512: the shard was changed or cut"):
        open_dataset([str(path)])


def test_an_index_that_can_be_kept_nowhere_stays_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    dataset = open_dataset([str(unwritable_index(tmp_path))])
    labels = dataset.label_range()
    assert labels is not None
    assert (labels.lowest, labels.highest) == (0, 1)
    assert SampleReader(pickle.loads(pickle.dumps(dataset.table)), max_indexes=1).read(1).content.key == "000001"
    assert "kept in memory" in caplog.text


def test_a_shard_of_another_size_than_its_manifest_says_is_stale(tmp_path: Path) -> None:
    paths = write_packed(tmp_path, [3, 5])
    write_samples(paths[1], 40)
    with pytest.raises(DatasetError, match=r"t-01.tar: has \d+ bytes, t.manifest.json says \d+: the shard was changed"):
        open_dataset([str(path) for path in paths])


def test_a_shard_of_another_size_than_its_index_says_is_stale(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 2)
    open_dataset([str(path)])
    write_samples(path, 30)
    with pytest.raises(DatasetError, match=r"s.tar: has \d+ bytes, its index says \d+"):
        open_dataset([str(path)])


def test_all_missing_shards_are_named_in_one_error(tmp_path: Path) -> None:
    write_packed(tmp_path, [3])
    with pytest.raises(DatasetError, match=r"t-01\.tar, .*t-02\.tar: No such file \(2 of 3 shards\)"):
        open_dataset([str(tmp_path / "t-{00..02}.tar")])
    with pytest.raises(DatasetError, match=r"t-05\.tar and 94 more: No such file \(99 of 100 shards\)"):
        open_dataset([str(tmp_path / "t-{00..99}.tar")])


def test_a_shard_named_twice_is_refused(tmp_path: Path) -> None:
    write_packed(tmp_path, [3])
    with pytest.raises(DatasetError, match=r"t-00\.tar: named twice"):
        open_dataset([str(tmp_path / "t-00.tar"), str(tmp_path / "t-*.tar")])


def test_a_shard_named_twice_in_two_spellings_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_packed(tmp_path, [3])
    (tmp_path / "link.tar").symlink_to(tmp_path / "t-00.tar")
    monkeypatch.chdir(tmp_path)
    for other in ("./t-00.tar", str(tmp_path / "t-00.tar"), "link.tar"):
        with pytest.raises(DatasetError, match=r"named twice, also as t-00\.tar"):
            open_dataset(["t-00.tar", other])


def test_shards_of_two_manifests_with_one_class_list_keep_it(tmp_path: Path) -> None:
    write_packed(tmp_path / "a", [3])
    write_packed(tmp_path / "b", [5])
    assert open_dataset([str(tmp_path / "a"), str(tmp_path / "b")]).classes == tuple("abcdefghij")


def test_shards_of_two_manifests_with_different_class_lists_are_refused(tmp_path: Path) -> None:
    write_packed(tmp_path / "a", [3])
    write_packed(tmp_path / "b", [5])
    path = tmp_path / "b/t.manifest.json"
    write_manifest(replace(read_manifest(path), classes=tuple("bacdefghij")), path, replace=True)
    with pytest.raises(DatasetError, match=r"a/t\.manifest\.json and .*b/t\.manifest\.json have different class lists"):
        open_dataset([str(tmp_path / "a"), str(tmp_path / "b")])


def test_shards_without_a_single_sample_are_refused(tmp_path: Path) -> None:
    write_packed(tmp_path, [0, 0])
    with pytest.raises(DatasetError, match="2 shards without a single sample"):
        open_dataset([str(tmp_path / "t-*.tar")])


def test_a_damaged_shard_is_not_indexed(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 4)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ShardReadError, match="cut at byte 3000"):
        open_dataset([str(path)])


def test_a_pattern_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PatternError, match="no file matches"):
        open_dataset([str(tmp_path / "none-*.tar")])


class TestRemote:
    """ORDER.md, "No index": remote shards are exact with a manifest, openly inexact without."""

    def test_a_manifest_url_gives_counts_and_workers_fetch_shards_and_indexes(self, tmp_path: Path) -> None:
        write_packed(tmp_path / "far", [3, 5])
        with serve(tmp_path / "far") as server:
            dataset = open_dataset([server.url + "/t.manifest.json"], cache_dir=tmp_path / "cache")
            assert dataset.urls == (server.url + "/t-00.tar", server.url + "/t-01.tar")
            assert dataset.counts == (3, 5)
            assert dataset.label_range() is None
            assert server.count("/t-00.tar") == 0
            reader = SampleReader(dataset.table, max_indexes=1)
            assert [reader.read(number).content.key for number in (7, 0, 7)] == ["000104", "000000", "000104"]
            reader.close()
            assert server.count("/t-01.tar") == server.count("/t-01.tar.index.json") == 1

    def test_the_digest_of_a_copy_elsewhere_is_the_same(self, tmp_path: Path) -> None:
        write_packed(tmp_path / "far", [3, 5])
        here = open_dataset([str(tmp_path / "far" / "t-*.tar")])
        with serve(tmp_path / "far") as server:
            there = open_dataset([server.url + "/t.manifest.json"], cache_dir=tmp_path / "cache")
        assert there.digest == here.digest

    def test_a_server_without_indexes_has_them_made_from_the_fetched_shards(self, tmp_path: Path) -> None:
        write_packed(tmp_path / "far", [3], index=False)
        with serve(tmp_path / "far") as server:
            dataset = open_dataset([server.url + "/t.manifest.json"], cache_dir=tmp_path / "cache")
            for _ in range(2):
                assert SampleReader(dataset.table, max_indexes=1).read(2).content.key == "000002"
            assert server.count("/t-00.tar.index.json") == 1

    def test_an_index_that_does_not_fit_its_shard_is_an_error(self, tmp_path: Path) -> None:
        paths = write_packed(tmp_path / "far", [3])
        index_path = Path(index_path_of(str(paths[0])))
        write_index(replace(read_index(index_path), num_bytes=512), index_path)
        with serve(tmp_path / "far") as server:
            dataset = open_dataset([server.url + "/t.manifest.json"], cache_dir=tmp_path / "cache")
            with pytest.raises(DatasetError, match="its index says 512"):
                SampleReader(dataset.table, max_indexes=1).read(0)

    def test_shards_packed_anew_under_the_same_urls_replace_what_the_cache_has(self, tmp_path: Path) -> None:
        with serve(tmp_path / "far") as server:
            for count in (3, 60):
                write_packed(tmp_path / "far", [count])
                dataset = open_dataset([server.url + "/t.manifest.json"], cache_dir=tmp_path / "cache")
                reader = SampleReader(dataset.table, max_indexes=1)
                assert reader.read(count - 1).content.key == f"{count - 1:06d}"

    def test_shards_without_a_manifest_have_no_counts_and_one_warning_says_so(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        dataset = open_dataset(["http://host/s-{0..3}.tar?token=SECRET"], cache_dir=tmp_path)
        assert dataset.counts is None
        assert dataset.num_samples is None
        assert dataset.digest is None
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "4 such shards" in caplog.text
        assert "wds index" in caplog.text
        assert "SECRET" not in caplog.text

    def test_exact_makes_unknown_counts_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match="an exact order needs counts"):
            open_dataset(["http://host/s-0.tar"], cache_dir=tmp_path, exact=True)

    def test_a_manifest_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        with serve(tmp_path) as server, pytest.raises(FetchError, match=r"t\.manifest\.json: status 404"):
            open_dataset([server.url + "/t.manifest.json"], cache_dir=tmp_path)

    def test_a_dataset_that_cannot_be_opened_leaves_no_temporary_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
        with serve(tmp_path) as server, pytest.raises(FetchError) as caught:
            open_dataset([server.url + "/t.manifest.json"])
        assert caught.value.status == 404
        assert list((tmp_path / "temporary").iterdir()) == []

    def test_json_that_is_no_manifest_is_an_error_with_its_url(self, tmp_path: Path) -> None:
        with serve(tmp_path) as server:
            server.misdeeds["/t.manifest.json"] = [Misdeed(body=b'{"shards": []}')]
            with pytest.raises(DatasetError, match=r"t.manifest.json: not a manifest"):
                open_dataset([server.url + "/t.manifest.json"], cache_dir=tmp_path)

    def test_without_a_cache_folder_a_temporary_one_lives_until_the_dataset_is_closed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        write_packed(tmp_path / "far", [3])
        with serve(tmp_path / "far") as server:
            with open_dataset([server.url + "/t.manifest.json"]) as dataset:
                assert dataset.table.fetcher is not None
                folder = dataset.table.fetcher.cache.folder
                SampleReader(dataset.table, max_indexes=1).read(0)
                assert any(folder.iterdir())
            assert not folder.exists()
        assert "no cache folder given" in caplog.text


def test_an_index_file_that_is_none_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 2)
    Path(index_path_of(str(path))).write_bytes(b"{}")
    with pytest.raises(DatasetError, match=r"s.tar.index.json: not an index file") as caught:
        open_dataset([str(path)])
    assert isinstance(caught.value.__cause__, IndexFileError)


def test_the_shards_of_two_splits_are_not_one_set(tmp_path: Path) -> None:
    for split in ("train", "val"):
        source = open_folder(image_folder(tmp_path / split, per_class=2), split=split)
        plan = plan_shards(source, prefix=split, num_shards=1)
        pack(source, plan, config=PackConfig(folder=tmp_path / "out", prefix=split), on_shard=lambda _: None)
    with pytest.raises(DatasetError, match=r"train.manifest.json is train, .*val.manifest.json is val"):
        open_dataset([str(tmp_path / "out")])
    assert open_dataset([str(tmp_path / "out" / "val.manifest.json")]).num_samples == 6
