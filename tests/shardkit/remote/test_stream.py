from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from shardkit import CheckOptions, RemoteError, check_shards
from shardkit.errors import RemoteChangedError
from shardkit.remote.patience import RemoteLimits
from shardkit.remote.stream import RemotePool, RemoteStream, open_remote
from shardkit.tar.byte_source import open_source
from tests.helpers.http_server import Misdeed, serve
from tests.helpers.shards import rules_in, sample_members, tar_bytes, write_samples

QUICK = RemoteLimits(connect_s=2, read_s=0.5, retries=1, backoff_s=0.01)
DATA = tar_bytes(sample_members(5))


@pytest.fixture
def store() -> Iterator[fsspec.AbstractFileSystem]:
    """A store in memory, empty at first, whose shards are memory://s/.."""
    memory = fsspec.filesystem("memory")
    memory.makedirs("/s", exist_ok=True)
    yield memory
    memory.rm("/s", recursive=True)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_shard_in_a_store_is_read_like_a_file(store: fsspec.AbstractFileSystem, packed: bool) -> None:
    stored = gzip.compress(DATA) if packed else DATA
    store.pipe("/s/a.tar", stored)
    with open_source("memory://s/a.tar") as source:
        assert (source.gunzip is not None, source.num_bytes) == (packed, len(stored))
        assert source.take(1 << 30) == DATA
    report = next(check_shards(["memory://s/a.tar"], CheckOptions()))
    assert (report.summary.whole, report.summary.num_bytes) == (5, len(stored))


def test_a_shard_that_a_store_lacks_is_named(store: fsspec.AbstractFileSystem) -> None:
    with pytest.raises(RemoteError, match=r"memory://s/none\.tar: no such file"), open_source("memory://s/none.tar"):
        pass


class Flaky:
    """What a store's own method does, with a number of failures before."""

    def __init__(self, method: Callable[..., Any], errors: list[Exception | bytes]) -> None:
        self.method, self.errors, self.asked = method, errors, [0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.asked.append(kwargs.get("start") or 0)
        trouble = self.errors.pop(0) if self.errors else None
        if isinstance(trouble, Exception):
            raise trouble
        return self.method(*args, **kwargs) if trouble is None else trouble


def read_all(stream: RemoteStream) -> bytes:
    return b"".join(iter(lambda: stream.read(4096), b""))


def test_a_store_that_breaks_off_is_asked_again_at_the_byte_where_it_broke(
    store: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.pipe("/s/a.tar", DATA)
    flaky = Flaky(store.cat_file, [DATA[:5000], OSError("reset"), DATA[5000:9000], TimeoutError("slow")])
    monkeypatch.setattr(store, "cat_file", flaky)
    with open_remote("memory://s/a.tar", limits=QUICK) as stream:
        assert read_all(stream) == DATA
        assert stream.failure is None
    assert flaky.asked == [0, 0, 5000, 5000, 9000, 9000]
    assert f"a.tar: 5000 of {len(DATA)} bytes, then OSError: reset; trying again (1 try left)" in caplog.text


def test_a_store_that_stays_short_is_a_failure_and_no_end(
    store: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.pipe("/s/a.tar", DATA)
    monkeypatch.setattr(store, "info", lambda path: {"name": path, "size": len(DATA) + 1, "type": "file"})
    with open_remote("memory://s/a.tar", limits=QUICK) as stream:
        assert read_all(stream) == DATA
        assert stream.failure is not None
        assert stream.failure.startswith(f"{len(DATA)} of {len(DATA) + 1} bytes, then nothing came")


def test_a_file_of_a_store_that_changes_meanwhile_is_never_mixed(store: fsspec.AbstractFileSystem) -> None:
    store.pipe("/s/a.tar", DATA * 300)
    with open_remote("memory://s/a.tar", limits=QUICK) as stream:
        assert stream.read(4096)
        store.pipe("/s/a.tar", b"\1" + DATA * 300)
        read_all(stream)
        assert isinstance(stream.error, RemoteChangedError)


def test_a_part_of_a_file_is_asked_for_by_its_bytes(store: fsspec.AbstractFileSystem) -> None:
    store.pipe("/s/a.tar", DATA)
    pool = RemotePool(QUICK)
    part = pool.open_part("memory://s/a.tar", first=512, stop=1536)
    assert (part.first, part.num_bytes, read_all(part)) == (512, len(DATA), DATA[512:1536])
    again = pool.open_part("memory://s/a.tar", first=0, stop=512, version=part.version)
    assert read_all(again) == DATA[:512]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://k:SECRET@b/a.tar", r"s3://\*\*\*@b/a\.tar: .*pip install 'wds\[s3\]'"),
        ("gs://b/a.tar", r"pip install 'wds\[gs\]'"),
        ("hf://b/a.tar", r"pip install 'wds\[hf\]'"),
        ("az://b/a.tar", "pip install adlfs"),
    ],
)
def test_a_package_that_is_missing_is_named_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, url: str, words: str
) -> None:
    def missing(_url: str, **_settings: object) -> None:
        raise ImportError("Install x to access it")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(RemoteError, match=words), open_remote(url):
        pass


def test_a_scheme_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(RemoteError, match="nothing here reads foo:// URLs"), open_remote("foo://b/a.tar"):
        pass


@pytest.mark.parametrize(("package", "url"), [("fsspec", "memory://a.tar"), ("urllib3", "http://127.0.0.1:1/a.tar")])
def test_without_the_reading_package_the_error_says_what_to_install(package: str, url: str) -> None:
    script = f"""
import sys
sys.modules[{package!r}] = None
from shardkit.tar.byte_source import open_source
try:
    with open_source({url!r}): pass
except OSError as error: print(error)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == f"{url}: reading it needs {package}. Install it: pip install 'shardkit[remote]'\n"


def test_shardkit_imports_neither_fsspec_nor_urllib3() -> None:
    script = "import sys, shardkit; print(sorted({'fsspec', 'urllib3', 'jinja2'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_command_is_not_run_unless_allowed(tmp_path: Path) -> None:
    """SEC-01."""
    command = f"pipe:touch {tmp_path}/CANARY; cat x.tar"
    with pytest.raises(RemoteError, match="only where that is allowed"), open_source(command):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_allowed_command_is_read_like_a_file(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.tar", 5)
    with open_source(f"pipe:cat {path}", allow_commands=True) as source:
        assert source.take(1 << 30) == path.read_bytes()
        assert source.broken is None


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_command_that_fails_after_all_bytes_is_found_behind_the_last_sample(tmp_path: Path, packed: bool) -> None:
    """PIPE-01."""
    (tmp_path / "a.tar").write_bytes(gzip.compress(DATA) if packed else DATA)
    command = f"pipe:cat {tmp_path}/a.tar; exit 3"
    report = next(check_shards([command], CheckOptions(allow_commands=True)))
    assert report.summary.whole == 5
    assert [f.rule for f in report.findings if f.severity == "error"] == ["WDS002"]
    assert any("ended with status 3" in finding.message for finding in report.findings)


def test_text_in_front_of_a_commands_output_is_named(tmp_path: Path) -> None:
    """TAR-06."""
    (tmp_path / "a.tar").write_bytes(DATA)
    report = next(check_shards([f"pipe:echo 'download: x'; cat {tmp_path}/a.tar"], CheckOptions(allow_commands=True)))
    assert rules_in(report) == ["WDS001"]
    assert "beginning with 'download: x'" in report.findings[0].message


def test_one_missing_shard_of_a_range_over_http_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    """URL-05, NET-04."""
    for number in (0, 1, 3):
        write_samples(tmp_path / f"a-{number}.tar", 7)
    with serve(tmp_path) as server:
        reports = list(check_shards([f"{server.url}/a-{number}.tar" for number in range(4)], CheckOptions()))
    assert [report.summary.whole for report in reports] == [7, 7, 0, 7]
    assert [rules_in(report) for report in reports] == [[], [], ["WDS000"], []]
    assert reports[2].findings[0].message == "cannot be read: status 404: no such file"


def test_a_gzip_shard_over_http_is_told_by_content(tmp_path: Path) -> None:
    """TAR-08."""
    (tmp_path / "a.tar").write_bytes(gzip.compress(DATA))
    with serve(tmp_path) as server:
        server.misdeeds["/a.tar"] = [Misdeed(headers={"Content-Encoding": "gzip"})]
        report = next(check_shards([f"{server.url}/a.tar"], CheckOptions()))
    assert (report.summary.whole, report.summary.compressed) == (5, True)


def test_a_file_url_is_the_local_file(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a b.tar", 2)
    with open_source(path.as_uri()) as source:
        assert source.num_bytes == path.stat().st_size


def test_a_remote_error_survives_pickling_without_showing_secrets() -> None:
    error = pickle.loads(pickle.dumps(RemoteError("http://h/a?sig=SECRET", "status 404")))
    assert str(error) == "http://h/a?sig=***: status 404"
    assert (error.reason, error.strerror) == ("status 404", "status 404")


def test_what_is_left_in_the_middle_leaves_nothing_open(store: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    """CACHE-01."""
    path = write_samples(tmp_path / "a.tar", 200)
    store.put(str(path), "/s/a.tar")
    with serve(tmp_path) as server:
        places = [f"{server.url}/a.tar", "memory://s/a.tar", f"pipe:cat {path} -"]
        counts = []
        for _ in range(6):
            for place in places:
                with open_source(place, allow_commands=True) as source:
                    source.take(1024)
            counts.append(len(os.listdir("/proc/self/fd")))
    # The server's own end of a connection may still be closing.
    assert max(counts[1:]) - counts[0] <= 2
