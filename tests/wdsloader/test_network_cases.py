"""Shards over http and from commands, by the loader: what users of tar shards report, each case by its number."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkit import PatternError, RemoteLimits, build_index
from tests.helpers.http_server import Misdeed, Server, serve
from tests.helpers.packed import write_packed
from tests.helpers.shards import write_samples
from tests.helpers.slots import fresh_slots
from wdsloader.config import AugmentConfig, LoaderConfig
from wdsloader.config_cache import CacheConfig
from wdsloader.dataset import Dataset, open_dataset
from wdsloader.errors import ConfigError, FetchError
from wdsloader.streaming import StreamTask, stream_parts
from wdsloader.torch_adapter import TorchLoader

KEYS = [f"{n:06d}" for n in range(10)]
CONFIG = LoaderConfig(batch_size=4, image_size=8, augment=AugmentConfig(), tail="ragged", shuffle=False)
QUICK = RemoteLimits(connect_s=2, read_s=0.7, retries=2, backoff_s=0.05, longest_wait_s=1)


@pytest.fixture(params=[True, False], ids=["ranges", "no ranges"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    write_samples(tmp_path / "far/base.tar", 10)
    with serve(tmp_path / "far") as running:
        running.ranges = request.param
        yield running


def opened(folder: Path, *patterns: str, allow_commands: bool = False) -> Dataset:
    dataset = open_dataset(patterns, cache=CacheConfig(folder=folder / "cache"), allow_commands=allow_commands)
    assert dataset.table.fetcher is not None
    dataset.table.fetcher.pool.limits = QUICK
    return dataset


def keys(dataset: Dataset, *, epoch: int = 0) -> list[str | None]:
    task = StreamTask(table=dataset.table, config=CONFIG, epoch=epoch)
    return [key for part in stream_parts(task, fresh_slots(CONFIG)) for key in part.keys]


def cached(folder: Path) -> list[str]:
    return sorted(path.name[25:] for path in (folder / "cache").glob("*") if not path.name.endswith(".json"))


@pytest.mark.parametrize(
    "misdeeds",
    [
        pytest.param([Misdeed(cut_after=12800)], id="NET-01"),
        pytest.param([Misdeed(status=503, body=b"")] * 2, id="NET-06 503"),
        pytest.param([Misdeed(status=429, body=b"")] * 2, id="NET-06 429"),
        pytest.param([Misdeed(cut_after=12800, stall_s=2)], id="NET-09"),
        pytest.param([Misdeed(cut_after=12800, reset=True)], id="NET-15"),
        pytest.param([Misdeed(cut_after=13412, reset=True)], id="NET-15 inside a picture"),
    ],
)
def test_passing_trouble_costs_no_sample_and_gives_none_twice(
    server: Server, tmp_path: Path, misdeeds: list[Misdeed]
) -> None:
    server.misdeeds["/base.tar"] = list(misdeeds)
    assert keys(opened(tmp_path, server.url + "/base.tar")) == KEYS
    kept = next((tmp_path / "cache").glob("*-base.tar"))
    here, there = (hashlib.sha256(path.read_bytes()).digest() for path in (kept, tmp_path / "far/base.tar"))
    assert here == there
    assert server.count("/base.tar") == len(misdeeds) + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("misdeed", "words", "max_requests"),
    [
        pytest.param(Misdeed(cut_after=12800), r"12800 of \d+ bytes", 3, id="NET-01"),
        pytest.param(Misdeed(status=404, body=b""), "status 404: no such file", 1, id="NET-04"),
        pytest.param(Misdeed(status=403, body=b""), "status 403: .*may have expired", 1, id="NET-05"),
        pytest.param(Misdeed(status=410, body=b""), "status 410", 1, id="410"),
        pytest.param(
            Misdeed(body=b"<!DOCTYPE html><title>Sign in</title>", headers={"Content-Type": "text/html"}),
            "got text/html, not a tar; it begins with '<!DOCTYPE html><title>Sign in</title>'",
            1,
            id="NET-08",
        ),
        pytest.param(Misdeed(cut_after=0, stall_s=1), "TimeoutError|connection broke", 3, id="NET-09"),
        pytest.param(Misdeed(status=302, body=b"", headers={"Location": "/base.tar"}), "circle", 6, id="NET-10"),
    ],
)
def test_lasting_trouble_is_one_error_that_names_it_and_leaves_nothing(
    server: Server, tmp_path: Path, misdeed: Misdeed, words: str, max_requests: int
) -> None:
    server.ranges = False
    server.misdeeds["/base.tar"] = [misdeed] * 99
    with pytest.raises(FetchError, match=words) as caught:
        keys(opened(tmp_path, server.url.replace("//", "//me:SECRET@") + "/base.tar?sig=SECRET"))
    assert "SECRET" not in str(caught.value)
    assert server.count("/base.tar") <= max_requests
    assert list((tmp_path / "cache").iterdir()) == []


def test_waits_grow_and_each_retry_is_one_line(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """NET-06."""
    server.misdeeds["/base.tar"] = [Misdeed(status=500, body=b"")] * 2
    dataset = opened(tmp_path, server.url + "/base.tar")
    caplog.clear()
    assert keys(dataset) == KEYS
    lines = [record for record in caplog.records if "trying again" in record.message]
    assert len(lines) == 2
    first, second = server.arrivals[1] - server.arrivals[0], server.arrivals[2] - server.arrivals[1]
    assert second > first


@pytest.mark.parametrize("same_host", [True, False])
def test_credentials_follow_redirects_on_their_host_alone(server: Server, tmp_path: Path, same_host: bool) -> None:
    """NET-10."""
    with serve(tmp_path / "far") as other:
        target = server if same_host else other
        server.misdeeds["/moved.tar"] = [
            Misdeed(status=302, body=b"", headers={"Location": target.url + "/base.tar"}),
        ]
        url = server.url.replace("//", "//me:SECRET@") + "/moved.tar"
        assert keys(opened(tmp_path, url)) == KEYS
        assert server.requests[0].authorization is not None
        assert (target.requests[-1].authorization is not None) is same_host


def test_a_file_that_changes_on_the_way_is_begun_anew(server: Server, tmp_path: Path) -> None:
    """NET-11: never one half of each."""
    old = (tmp_path / "far/base.tar").read_bytes()
    server.misdeeds["/base.tar"] = [Misdeed(body=old, cut_after=12800)]
    write_samples(tmp_path / "far/base.tar", 10, first=50)
    assert keys(opened(tmp_path, server.url + "/base.tar")) == [f"{n:06d}" for n in range(50, 60)]


def test_shards_of_one_name_are_cached_apart(tmp_path: Path) -> None:
    """CACHE-01."""
    for block in (0, 1):
        write_samples(tmp_path / f"far/block_0000{block}/part_00008.tar", 10, first=10 * block)
    with serve(tmp_path / "far") as server:
        dataset = opened(tmp_path, server.url + "/block_0000{0,1}/part_00008.tar")
        for epoch in range(2):
            assert keys(dataset, epoch=epoch) == [f"{n:06d}" for n in range(20)]
    assert cached(tmp_path) == ["part_00008.tar", "part_00008.tar"]


@pytest.mark.slow
def test_many_processes_that_start_together_download_once(tmp_path: Path) -> None:
    """CACHE-07."""
    write_samples(tmp_path / "far/base.tar", 10)
    script = f"""
import sys
from pathlib import Path
from wdsloader import AugmentConfig, CacheConfig, LoaderConfig, TorchLoader, open_dataset
def main():
    dataset = open_dataset([sys.argv[1]], cache=CacheConfig(folder=Path({str(tmp_path / "cache")!r})))
    config = LoaderConfig(batch_size=5, image_size=8, augment=AugmentConfig(), num_workers=2, num_epochs=1)
    with TorchLoader(dataset, config) as loader:
        print(sorted(key for batch in loader for key in batch.keys))
if __name__ == "__main__":
    main()
"""
    (tmp_path / "run.py").write_text(script)
    with serve(tmp_path / "far") as server:
        server.bytes_per_s = 20000
        command = [sys.executable, str(tmp_path / "run.py"), server.url + "/base.tar"]
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        outputs = [process.communicate(timeout=120)[0] for process in started]
        assert server.count("/base.tar") == 1
    assert outputs == [f"{KEYS}\n"] * 4
    assert not list((tmp_path / "cache").glob(".unfinished*"))


class TestCommands:
    def test_a_command_is_run_only_when_allowed_and_never_from_a_list(self, tmp_path: Path) -> None:
        """SEC-01."""
        command = f"pipe:touch {tmp_path}/CANARY; cat x.tar"
        with pytest.raises(ConfigError, match=r"^pipe:curl http://h/a\?s=\*\*\*: .* only where commands are allowed"):
            open_dataset(["a.tar", "pipe:curl http://h/a?s=SECRET"])
        with pytest.raises(ConfigError, match="only where commands are allowed"):
            open_dataset([command], cache_dir=tmp_path / "cache")
        (tmp_path / "list.txt").write_text(command + "\n")
        with pytest.raises(PatternError):
            open_dataset([f"@{tmp_path}/list.txt"], cache_dir=tmp_path / "cache", allow_commands=True)
        for name in (f"{tmp_path}/x.tar; touch {tmp_path}/CANARY", f"$(touch {tmp_path}/CANARY).tar"):
            with pytest.raises(Exception, match=r"[Nn]o (such )?file"):
                open_dataset([name], cache_dir=tmp_path / "cache", allow_commands=True)
        assert not (tmp_path / "CANARY").exists()

    def test_a_command_runs_once_for_all_epochs(self, tmp_path: Path) -> None:
        """CACHE-12."""
        for number in range(2):
            write_samples(tmp_path / f"s-{number}.tar", 5, first=5 * number)
        command = f"pipe:echo run >> {tmp_path}/log; cat {tmp_path}/s-{{0..1}}.tar"
        for _ in range(2):
            dataset = opened(tmp_path, command, allow_commands=True)
            for epoch in range(3):
                assert keys(dataset, epoch=epoch) == KEYS
        assert (tmp_path / "log").read_text() == "run\n" * 2
        assert cached(tmp_path) == ["command", "command"]

    @pytest.mark.parametrize("command", ["cat {0}; echo no more >&2; exit 3", "head -c 12800 {0}; exit 3"])
    def test_a_command_that_fails_is_an_error_whatever_it_wrote(self, tmp_path: Path, command: str) -> None:
        """PIPE-01."""
        path = write_samples(tmp_path / "base.tar", 10)
        dataset = opened(tmp_path, "pipe:" + command.format(path), allow_commands=True)
        with pytest.raises(FetchError, match="the command ended with status 3"):
            keys(dataset)
        assert cached(tmp_path) == []

    def test_a_command_that_hides_its_failure_is_warned_of_and_not_kept(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """PIPE-01, the third; TAR-02."""
        path = write_samples(tmp_path / "base.tar", 10)
        cut = boundary_of(path, 5)
        dataset = opened(tmp_path, f"pipe:head -c {cut} {path} || true", allow_commands=True)
        assert keys(dataset) == KEYS[:5]
        assert "it may be cut" in caplog.text
        assert cached(tmp_path) == []


def boundary_of(path: Path, samples: int) -> int:
    """Return the byte behind so many samples."""
    return int(build_index(path).offsets[samples])


def test_a_shard_that_is_missing_in_a_range_is_named_when_its_turn_comes(tmp_path: Path) -> None:
    """URL-05 over http."""
    for number in (0, 1, 3):
        write_samples(tmp_path / f"far/shard-00000{number}.tar", 7, first=7 * number)
    with serve(tmp_path / "far") as server:
        with pytest.raises(FetchError, match=r"shard-000002\.tar: status 404: no such file"):
            keys(opened(tmp_path, server.url + "/shard-{000000..000003}.tar"))
        assert server.count("/shard-000002.tar") == 1


def test_no_default_waits_for_ever() -> None:
    """NET-09."""
    assert 0 < RemoteLimits().connect_s <= 60
    assert 0 < RemoteLimits().read_s <= 120


@pytest.mark.slow
def test_a_limited_cache_stays_within_its_limit_under_four_workers(tmp_path: Path) -> None:
    """CACHE-06."""
    write_packed(tmp_path / "far", [10] * 6)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/notes.txt").write_text("mine")
    sizes = [path.stat().st_size for path in (tmp_path / "far").glob("*.tar")]
    limit = 2 * max(sizes) + 8000
    config = LoaderConfig(batch_size=4, image_size=8, augment=AugmentConfig(), num_workers=4, num_epochs=3, tail="pad")
    most = [0]
    with serve(tmp_path / "far") as server:
        server.ranges = True
        cache = CacheConfig(folder=tmp_path / "cache", limit_bytes=limit)
        with (
            open_dataset([server.url + "/t.manifest.json"], cache=cache) as dataset,
            TorchLoader(dataset, config) as loader,
        ):
            for _ in range(3):
                found = []
                for batch in loader:
                    found += [key for key in batch.keys if key is not None]
                    most[0] = max(most[0], folder_bytes(tmp_path / "cache"))
                assert sorted(found) == [f"{100 * shard + n:06d}" for shard in range(6) for n in range(10)]
    assert most[0] <= limit + 4 * max(sizes)
    assert folder_bytes(tmp_path / "cache") <= limit
    assert (tmp_path / "cache/notes.txt").exists()


def folder_bytes(folder: Path) -> int:
    total = 0
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
