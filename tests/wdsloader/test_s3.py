from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardkit import CheckOptions, check_shards
from tests.helpers.http_server import Misdeed
from tests.helpers.packed import write_packed
from tests.helpers.proxy import Proxy, proxy_of
from wdsloader.config_cache import CacheConfig
from wdsloader.dataset import open_dataset
from wdsloader.errors import FetchError
from wdsloader.shards import SampleReader

COUNTS = [20, 20]
KEYS = [f"{100 * shard + n:06d}" for shard in range(2) for n in range(20)]
# Theirs: a loop that is left open, credentials that are looked for, times without a zone.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("far")
    write_packed(folder, COUNTS, size=(1440, 1080))
    return folder


@pytest.fixture(scope="module")
def moto() -> Iterator[Any]:
    # Takes a second: not where tests are but collected.
    moto_server = pytest.importorskip("moto.server")
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def store(moto: Any, far: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A bucket ``data`` on a real S3 server, behind a proxy that spoils replies."""
    s3fs = pytest.importorskip("s3fs")
    with proxy_of(moto.get_host_and_port()[1]) as proxy:
        for name, value in {
            "AWS_ENDPOINT_URL": proxy.url,
            "AWS_ACCESS_KEY_ID": "me",
            "AWS_SECRET_ACCESS_KEY": "SECRET123",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        files = s3fs.S3FileSystem()
        files.mkdirs("data", exist_ok=True)
        for path in far.iterdir():
            files.pipe(f"data/{path.name}", path.read_bytes())
        proxy.gets.clear()
        yield proxy
        s3fs.S3FileSystem.clear_instance_cache()


def keys(folder: Path) -> list[str]:
    with open_dataset(["s3://data/t.manifest.json"], cache=CacheConfig(folder=folder)) as dataset:
        reader = SampleReader(dataset.table, max_indexes=4)
        found = [str(reader.read(number).content.key) for number in range(sum(COUNTS))]
        reader.close()
    return found


def test_shards_of_a_bucket_are_read_by_parts_through_the_cache(store: Proxy, tmp_path: Path) -> None:
    assert keys(tmp_path) == KEYS
    assert keys(tmp_path) == KEYS


@pytest.mark.parametrize(
    "deeds",
    [
        [Misdeed(status=503)] * 3,
        [Misdeed(cut_after=1000)] * 2,
        [Misdeed(cut_after=600_000), Misdeed(status=500), Misdeed(cut_after=0)],
        [Misdeed(wait_s=1.0)] * 2,
    ],
    ids=["503", "cut", "all kinds", "slow"],
)
def test_a_store_that_misbehaves_changes_nothing_of_what_comes(
    store: Proxy, tmp_path: Path, deeds: list[Misdeed]
) -> None:
    """NET-01, NET-06, NET-09, NET-15 on s3."""
    store.misdeeds = {".tar": list(deeds), ".json": list(deeds[:1])}
    assert keys(tmp_path) == KEYS
    assert not store.misdeeds[".tar"]


def test_a_shard_that_a_bucket_lacks_is_named_at_once_and_without_secrets(
    store: Proxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """NET-04, NET-05 on s3."""
    with pytest.raises(FetchError, match=r"s3://data/none\.manifest\.json: no such file") as caught:
        open_dataset(["s3://data/none.manifest.json"], cache_dir=tmp_path)
    assert caught.value.status == 404
    assert "SECRET" not in str(caught.value) + caplog.text


def test_shards_of_a_bucket_are_inspected_too(store: Proxy) -> None:
    report = next(check_shards(["s3://data/t-00.tar"], CheckOptions()))
    assert report.summary.whole == COUNTS[0]
