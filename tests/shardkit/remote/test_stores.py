"""Shards of hf, gs and az, read by their own packages from a server here that answers as they do; s3: test_s3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkit import CheckOptions, RemoteError, ShardReport, check_shards, expand_manifests
from shardkit.remote.stream import open_remote
from tests.helpers.packed import write_packed
from tests.helpers.stores import Stores, stores_of

fsspec = pytest.importorskip("fsspec")

# Theirs: loops and sockets that are left open.
pytestmark = pytest.mark.filterwarnings("ignore")
PACKAGES = {"hf": "huggingface_hub", "gs": "gcsfs", "az": "adlfs"}
PLACES = {"hf": "hf://datasets/me/data", "gs": "gs://data", "az": "az://data"}
COUNTS = [3, 4]


@pytest.fixture(params=list(PACKAGES))
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    # It would ask over another protocol whether the bucket is of a special kind.
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    pytest.importorskip(PACKAGES[request.param])
    return PLACES[request.param]


@pytest.fixture
def stores(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stores]:
    write_packed(tmp_path, COUNTS)
    kind = place.partition(":")[0]
    with stores_of(tmp_path) as stores:
        account = f"DefaultEndpointsProtocol=http;AccountName=me;AccountKey=U0VDUkVU;BlobEndpoint={stores.url}/me;"
        settings = {
            "hf": {"endpoint": stores.url, "token": False},
            "gs": {"endpoint_url": stores.url, "token": "anon"},
            "az": {"connection_string": account},
        }
        monkeypatch.setitem(fsspec.config.conf, kind, settings[kind])
        yield stores
        fsspec.get_filesystem_class(kind).clear_instance_cache()


def check(url: str) -> ShardReport:
    return next(check_shards([url], CheckOptions()))


def test_a_manifest_names_the_shards_and_they_are_read(place: str, stores: Stores) -> None:
    shards, _ = expand_manifests([f"{place}/t.manifest.json"])
    assert shards == [f"{place}/t-00.tar", f"{place}/t-01.tar"]
    assert [(report.summary.whole, list(report.findings)) for report in map(check, shards)] == [(3, []), (4, [])]


def test_no_byte_is_asked_for_twice_and_no_folder_listed(place: str, stores: Stores) -> None:
    num_bytes = 10 << 20
    (stores.folder / "large.tar").write_bytes(bytes(num_bytes))
    with open_remote(f"{place}/large.tar") as stream:
        assert sum(iter(lambda: len(stream.read(1 << 20)), 0)) == num_bytes
    ends = [part.removeprefix("bytes=").split("-") for _, part in stores.parts]
    assert sum(int(last) - int(first) + 1 for first, last in ends) == num_bytes
    assert len(stores.parts) == 3
    assert not [path for path in stores.asked if "/tree/" in path]
    # Whatever they ask first, before each piece they ask nothing.
    assert len(stores.asked) <= 5 + len(stores.parts)


def test_a_file_that_changes_on_the_way_to_one_of_the_same_size_is_told(place: str, stores: Stores) -> None:
    file = stores.folder / "large.tar"
    file.write_bytes(bytes(10 << 20))
    with open_remote(f"{place}/large.tar") as stream:
        stream.read(1)
        file.write_bytes(b"1" * (10 << 20))
        while stream.read(1 << 20):
            pass
        assert "has changed while it was read" in str(stream.error)


@pytest.mark.slow  # their packages wait for seconds between tries of their own
@pytest.mark.parametrize("failures", [[503, 503], [0], [0, 500, 0]], ids=["503", "cut", "all kinds"])
def test_a_store_that_misbehaves_changes_nothing_of_what_comes(place: str, stores: Stores, failures: list[int]) -> None:
    stores.failures["t-01.tar"] = list(failures)
    report = check(f"{place}/t-01.tar")
    assert (report.summary.whole, list(report.findings), stores.failures["t-01.tar"]) == (4, [], [])


def test_a_file_that_is_not_there_is_named_at_once(place: str, stores: Stores) -> None:
    with pytest.raises(RemoteError, match=rf"^{place}/none\.manifest\.json: no such file$") as caught:
        expand_manifests([f"{place}/none.manifest.json"])
    assert caught.value.status == 404


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_is_final(place: str, stores: Stores, caplog: pytest.LogCaptureFixture, status: int) -> None:
    stores.failures["t-00.tar"] = [status] * 9
    report = check(f"{place}/t-00.tar")
    assert report.summary.whole == 0
    assert report.findings
    assert "trying again" not in caplog.text
    assert "U0VDUkVU" not in str(report)
