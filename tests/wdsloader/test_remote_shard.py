from __future__ import annotations

import functools
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardkit import RemoteLimits
from tests.helpers.http_server import Misdeed, Server, serve
from tests.helpers.packed import write_packed
from wdsloader.arriving import CHUNK_BYTES
from wdsloader.cache import ShardCache
from wdsloader.cache_entries import own_bytes
from wdsloader.config import LoaderConfig
from wdsloader.config_cache import CacheConfig
from wdsloader.dataset import Dataset, open_dataset
from wdsloader.errors import ConfigError, DatasetError, FetchError
from wdsloader.shards import SampleReader
from wdsloader.torch_adapter import TorchLoader

# Some 1.5 MiB a shard, so two chunks.
PICTURE = (1440, 1080)
COUNTS = [30, 30, 30]


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("far")
    for path in write_packed(folder, COUNTS, size=PICTURE):
        assert CHUNK_BYTES < path.stat().st_size < 2 * CHUNK_BYTES
    return folder


@pytest.fixture(params=[True, False], ids=["ranges", "no ranges"])
def server(far: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    with serve(far) as running:
        running.ranges = request.param
        yield running


def opened(server: Server, folder: Path, **settings: object) -> Dataset:
    cache = CacheConfig(folder=folder, **settings)  # type: ignore[arg-type]  # of its fields
    dataset = open_dataset([server.url + "/t.manifest.json"], cache=cache)
    assert dataset.table.fetcher is not None
    dataset.table.fetcher.pool.limits = RemoteLimits(connect_s=2, read_s=1, retries=3, backoff_s=0.02)
    return dataset


def keys(reader: SampleReader, numbers: range) -> list[str]:
    return [str(reader.read(number).content.key) for number in numbers]


def keys_of(counts: list[int]) -> list[str]:
    return [f"{100 * shard + n:06d}" for shard, count in enumerate(counts) for n in range(count)]


def wait_until(true: Callable[[], object], *, within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def shards_in(folder: Path) -> int:
    return len([path for path in folder.glob("*.tar") if not path.name.startswith(".")])


def test_one_sample_of_each_shard_costs_a_chunk_and_the_rest_follows(server: Server, far: Path, tmp_path: Path) -> None:
    reader = SampleReader(opened(server, tmp_path).table, max_indexes=4)
    for number in (0, 30, 60):
        reader.read(number)
    wait_until(lambda: shards_in(tmp_path) == 3)
    for shard in range(3):
        assert server.count(f"/t-0{shard}.tar") == (2 if server.ranges else 1)
    for kept in tmp_path.glob("*.tar"):
        assert kept.read_bytes() == (far / kept.name[25:]).read_bytes()
    assert keys(reader, range(90)) == keys_of(COUNTS)
    reader.close()
    assert not list(tmp_path.glob(".unfinished-*"))


def test_what_the_cache_has_is_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    """CACHE-12, over http."""
    for _ in range(3):
        reader = SampleReader(opened(server, tmp_path).table, max_indexes=4)
        assert keys(reader, range(90)) == keys_of(COUNTS)
        wait_until(lambda: shards_in(tmp_path) == 3)
        reader.close()
    assert len([request for request in server.requests if request.path.endswith(".tar")]) <= 6
    assert sum(request.path.endswith(".index.json") for request in server.requests) == 3


def test_another_reader_waits_for_the_one_who_fetches(server: Server, tmp_path: Path) -> None:
    """CACHE-07."""
    server.bytes_per_s = 3e6
    readers = [SampleReader(opened(server, tmp_path).table, max_indexes=4) for _ in range(3)]
    for reader in readers:
        assert reader.read(29).content.key == "000029"
    assert server.count("/t-00.tar") == (2 if server.ranges else 1)
    for reader in readers:
        reader.close()


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_fetches_holds_nobody_up(server: Server, tmp_path: Path) -> None:
    """CACHE-03, CACHE-10."""
    script = f"""
import sys
from pathlib import Path
from wdsloader.config_cache import CacheConfig
from wdsloader.dataset import open_dataset
from wdsloader.shards import SampleReader
dataset = open_dataset([{server.url!r} + "/t.manifest.json"], cache=CacheConfig(folder=Path({str(tmp_path)!r})))
SampleReader(dataset.table, max_indexes=1).read(int(sys.argv[1]))
"""
    for shard in range(3):
        server.misdeeds[f"/t-0{shard}.tar"] = [Misdeed(cut_after=5000, stall_s=60)]
        process = subprocess.Popen([sys.executable, "-c", script, str(30 * shard + 29)])
        wait_until(functools.partial(server.count, f"/t-0{shard}.tar"))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not list(tmp_path.glob(f"*-t-0{shard}.tar"))
        started = time.monotonic()
        reader = SampleReader(opened(server, tmp_path).table, max_indexes=1)
        assert reader.read(30 * shard).content.key == f"{100 * shard:06d}"
        assert time.monotonic() - started < 30  # the stalled reply takes 60
        reader.close()
    assert not list(tmp_path.glob(".unfinished-*"))


def test_the_next_samples_are_fetched_before_they_are_asked_for(server: Server, tmp_path: Path) -> None:
    reader = SampleReader(opened(server, tmp_path).table, max_indexes=4)
    reader.will_need(range(60, 90))
    wait_until(lambda: shards_in(tmp_path) == 1)
    asked = len(server.requests)
    reader.will_need(range(60, 90))
    assert keys(reader, range(60, 90)) == keys_of(COUNTS)[60:]
    assert len(server.requests) == asked
    reader.close()


def test_no_more_is_fetched_ahead_than_allowed(server: Server, tmp_path: Path) -> None:
    if not server.ranges:
        pytest.skip("what is begun comes whole")
    reader = SampleReader(opened(server, tmp_path, ahead_bytes=CHUNK_BYTES).table, max_indexes=4)
    reader.will_need(range(90))
    wait_until(lambda: shards_in(tmp_path) == 1)
    assert server.count("/t-01.tar") == server.count("/t-02.tar") == 0
    reader.close()


def test_a_limit_below_what_is_open_is_read_past_with_one_warning(
    server: Server, far: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CACHE-05, CACHE-06."""
    limit = int(1.2 * (far / "t-00.tar").stat().st_size)
    dataset = opened(server, tmp_path, limit_bytes=limit)
    reader = SampleReader(dataset.table, max_indexes=4)
    found = [str(reader.read(shard * 30 + n).content.key) for n in range(30) for shard in range(3)]
    assert sorted(found) == keys_of(COUNTS)
    assert sum("is less than the shards that are open at once need" in line for line in caplog.messages) == 1
    reader.close()
    dataset.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limit


def test_a_limit_below_one_shard_is_an_error_at_the_start(server: Server, tmp_path: Path) -> None:
    """CACHE-05."""
    with pytest.raises(ConfigError, match=r"limit of 15360 bytes is below one shard: http.*t-0.\.tar has \d+ bytes"):
        opened(server, tmp_path, limit_bytes=15360)


def test_a_server_without_ranges_is_said_once(server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = SampleReader(opened(server, tmp_path).table, max_indexes=4)
    keys(reader, range(90))
    said = [line for line in caplog.messages if "serves no parts of files" in line]
    assert len(said) == (0 if server.ranges else 1)
    reader.close()


def test_bytes_that_are_not_the_manifests_are_found_when_all_are_here(
    server: Server, far: Path, tmp_path: Path
) -> None:
    """CACHE-04: a picture's bytes differ, which no header shows."""
    content = bytearray((far / "t-00.tar").read_bytes())
    content[1000] ^= 1
    server.misdeeds["/t-00.tar"] = [Misdeed(body=bytes(content)), Misdeed(body=bytes(content))]
    reader = SampleReader(opened(server, tmp_path).table, max_indexes=4)
    with pytest.raises(FetchError, match="checksum"):
        wait_until(lambda: reader.read(0) is None)
    reader.close()
    assert not list(tmp_path.glob("*-t-00.tar"))


@pytest.mark.slow
def test_failing_requests_change_nothing_of_what_comes(server: Server, tmp_path: Path) -> None:
    """NET-06, NET-15."""
    server.one_fails_in = 3
    reader = SampleReader(opened(server, tmp_path).table, max_indexes=4)
    assert keys(reader, range(90)) == keys_of(COUNTS)
    reader.close()


def test_a_shard_that_is_not_there_is_named(server: Server, tmp_path: Path) -> None:
    """URL-05, NET-04, by the loader."""
    dataset = opened(server, tmp_path)
    server.misdeeds["/t-01.tar"] = [Misdeed(status=404, body=b"")] * 9
    server.misdeeds["/t-01.tar.index.json"] = [Misdeed(status=404, body=b"")] * 9
    reader = SampleReader(dataset.table, max_indexes=4)
    assert keys(reader, range(30)) == keys_of(COUNTS)[:30]
    with pytest.raises((FetchError, DatasetError), match=r"t-01\.tar: status 404: no such file"):
        reader.read(30)
    assert server.count("/t-01.tar") == 1
    reader.close()


def test_neither_files_nor_threads_are_left_open(server: Server, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3):
        reader = SampleReader(opened(server, tmp_path / str(number)).table, max_indexes=4)
        reader.will_need(range(90))
        reader.read(0)
        reader.close()
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before + 3)


def background() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("fetch ahead")}


@pytest.mark.parametrize(
    "misdeed",
    [
        Misdeed(cut_after=5000, stall_s=20),
        Misdeed(wait_s=20),
        Misdeed(status=503, body=b"busy", headers={"Retry-After": "20"}),
    ],
    ids=["in a body", "before an answer", "asked to wait"],
)
def test_closing_the_dataset_leaves_no_thread_and_no_unfinished_file_whatever_is_waited_for(
    server: Server, tmp_path: Path, misdeed: Misdeed
) -> None:
    before = background()
    dataset = opened(server, tmp_path)
    assert dataset.table.fetcher is not None
    dataset.table.fetcher.pool.limits = RemoteLimits()
    reader = SampleReader(dataset.table, max_indexes=4)
    for shard in range(3):
        server.misdeeds[f"/t-0{shard}.tar"] = [misdeed] * 4
    reader.will_need(range(90))
    wait_until(lambda: sum(server.count(f"/t-0{shard}.tar") for shard in range(3)) >= 3)
    assert background() - before
    dataset.close()
    assert not background() - before
    assert not list(tmp_path.glob(".unfinished-*"))


def test_closing_waits_for_a_file_that_is_being_given_its_name(server: Server, tmp_path: Path) -> None:
    for number in range(6):
        folder = tmp_path / str(number)
        reader = SampleReader(opened(server, folder).table, max_indexes=4)
        for sample in range(30):
            reader.read(sample)
        reader.close()
        assert not list(folder.glob(".unfinished-*.tar-*"))


def test_where_bad_samples_are_passed_over_a_damaged_shard_stops_no_other(
    server: Server, far: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = bytearray((far / "t-00.tar").read_bytes())
    content[1000] ^= 1
    server.misdeeds["/t-00.tar"] = [Misdeed(body=bytes(content)), Misdeed(body=bytes(content))]
    reader = SampleReader(opened(server, tmp_path).table, max_indexes=4, stop_on_damage=False)
    with pytest.raises(FetchError, match="checksum"):
        wait_until(lambda: reader.read(0) is None)
    assert "Samples of it that were delivered may be damaged" in caplog.text
    assert keys(reader, range(30, 90)) == keys_of(COUNTS)[30:]
    reader.close()


@pytest.mark.parametrize("named", ["t.manifest.json", "t-{00..01}.tar"], ids=["exact", "inexact"])
def test_a_cache_that_cannot_be_written_is_no_bad_sample_to_skip(tmp_path: Path, named: str) -> None:
    write_packed(tmp_path / "far", [9, 7])
    config = LoaderConfig(batch_size=4, image_size=8, num_workers=0, on_error="skip", max_skipped=1.0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with serve(tmp_path / "far") as server:
        dataset = open_dataset([f"{server.url}/{named}"], cache_dir=tmp_path / "cache", on_error="skip")
        try:
            # As a disk that has room for the indexes alone.
            resource.setrlimit(resource.RLIMIT_FSIZE, (8000, limits[1]))
            with TorchLoader(dataset, config) as loader, pytest.raises(ConfigError, match=r"cache.*cannot be written"):
                list(loader)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def delivered(loader: TorchLoader) -> Iterator[list[str]]:
    for batch in loader:
        yield [str(key) for key in batch.keys]


SMALL = LoaderConfig(batch_size=4, image_size=8, num_workers=0, tail="ragged", num_epochs=2)


def test_emptying_the_cache_while_a_loader_reads_costs_no_sample(tmp_path: Path) -> None:
    write_packed(tmp_path / "far", [9, 7, 8])
    with serve(tmp_path / "far") as server:
        server.ranges = True
        dataset = open_dataset([server.url + "/t.manifest.json"], cache_dir=tmp_path / "cache")
        with dataset, TorchLoader(dataset, SMALL) as loader:
            for _ in range(2):
                found = []
                for batch in delivered(loader):
                    found += batch
                    ShardCache(CacheConfig(folder=tmp_path / "cache")).clear()
                assert sorted(found) == keys_of([9, 7, 8])


def test_loaders_that_share_a_cache_with_different_limits_deliver_all_of_it(tmp_path: Path) -> None:
    shards = write_packed(tmp_path / "far", [9, 7, 8, 5])
    limit = 2 * max(path.stat().st_size for path in shards) + 5000
    with serve(tmp_path / "far") as server:
        server.ranges = True
        caches = [CacheConfig(folder=tmp_path / "cache", limit_bytes=most) for most in (None, limit)]
        datasets = [open_dataset([server.url + "/t.manifest.json"], cache=cache) for cache in caches]
        loaders = [TorchLoader(dataset, SMALL) for dataset in datasets]
        for _ in range(2):
            rounds = list(zip(*map(delivered, loaders), strict=True))
            assert all(ours == theirs for ours, theirs in rounds)
            assert sorted(key for batch, _ in rounds for key in batch) == keys_of([9, 7, 8, 5])
        for dataset in datasets:
            dataset.close()
    assert own_bytes(tmp_path / "cache") <= limit
    assert not list((tmp_path / "cache").glob(".unfinished-*"))


@pytest.mark.slow
def test_a_worker_that_ends_while_it_fetches_leaves_no_unfinished_file(tmp_path: Path) -> None:
    write_packed(tmp_path / "far", [9, 7])
    config = LoaderConfig(batch_size=4, image_size=8, num_workers=1, shuffle=False)
    with serve(tmp_path / "far") as server:
        server.ranges = True
        server.misdeeds["/t-01.tar.index.json"] = [Misdeed(wait_s=30)]
        dataset = open_dataset([server.url + "/t.manifest.json"], cache_dir=tmp_path / "cache")
        with dataset, TorchLoader(dataset, config) as loader:
            next(iter(loader))
            wait_until(lambda: server.count("/t-01.tar.index.json"))
            assert list((tmp_path / "cache").glob(".unfinished-*"))
        assert not list((tmp_path / "cache").glob(".unfinished-*"))
