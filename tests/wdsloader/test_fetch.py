from __future__ import annotations

import logging
import pickle
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkit import RemoteLimits
from tests.helpers.http_server import Misdeed, Server, serve
from tests.helpers.shards import write_samples
from wdsloader.cache import WantedFile
from wdsloader.config_cache import CacheConfig
from wdsloader.errors import FetchError
from wdsloader.fetch import Fetcher, mask_url

QUICK = RemoteLimits(connect_s=2, read_s=0.5, retries=2, backoff_s=0.02, longest_wait_s=1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    write_samples(tmp_path / "remote/a.tar", 5)
    with serve(tmp_path / "remote") as running:
        yield running


@pytest.fixture
def fetcher(tmp_path: Path) -> Fetcher:
    return Fetcher(CacheConfig(folder=tmp_path / "cache"), limits=QUICK)


def shard_files(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "cache").glob("*")]


def fetched(fetcher: Fetcher, url: str, *, num_bytes: int | None = None) -> bytes:
    with fetcher.open(WantedFile(url, num_bytes=num_bytes)) as file:
        return file.read()


def test_a_shard_comes_whole_and_once(server: Server, fetcher: Fetcher, tmp_path: Path) -> None:
    for _ in range(2):
        assert fetched(fetcher, server.url + "/a.tar") == (tmp_path / "remote/a.tar").read_bytes()
    assert server.count("/a.tar") == 1
    assert [name[24:] for name in sorted(shard_files(tmp_path))] == ["-a.tar", "-a.tar.origin.json"]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_passing_trouble_is_tried_again_with_one_line_each(
    server: Server, fetcher: Fetcher, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    server.misdeeds["/a.tar"] = [Misdeed(status=status, body=b"busy")] * 2
    fetched(fetcher, server.url + "/a.tar")
    assert server.count("/a.tar") == 3
    assert len(caplog.records) == 2
    assert f"status {status}; trying again" in caplog.text


def test_a_server_that_asks_for_a_pause_gets_it(server: Server, fetcher: Fetcher) -> None:
    server.misdeeds["/a.tar"] = [Misdeed(status=503, body=b"", headers={"Retry-After": "1"})]
    started = time.monotonic()
    fetched(fetcher, server.url + "/a.tar")
    assert time.monotonic() - started >= 1


@pytest.mark.parametrize(("status", "words"), [(403, "may have expired"), (404, "no such file"), (401, "credentials")])
def test_a_refusal_is_final_at_once_and_names_the_url(
    server: Server, fetcher: Fetcher, status: int, words: str
) -> None:
    server.misdeeds["/a.tar"] = [Misdeed(status=status, body=b"no")] * 9
    with pytest.raises(FetchError, match=rf"{server.url}/a.tar: status {status}: .*{words}") as caught:
        fetched(fetcher, server.url + "/a.tar")
    assert caught.value.status == status
    assert server.count("/a.tar") == 1


def test_a_body_cut_short_is_fetched_again(server: Server, fetcher: Fetcher, tmp_path: Path) -> None:
    server.misdeeds["/a.tar"] = [Misdeed(cut_after=5000)]
    assert fetched(fetcher, server.url + "/a.tar") == (tmp_path / "remote/a.tar").read_bytes()


def test_a_body_that_stays_short_is_an_error_with_both_lengths(
    server: Server, fetcher: Fetcher, tmp_path: Path
) -> None:
    whole = (tmp_path / "remote/a.tar").stat().st_size
    server.misdeeds["/a.tar"] = [Misdeed(cut_after=5000)] * 9
    with pytest.raises(FetchError, match=rf"a.tar: 5000 of {whole} bytes.*gave up after 3 tries"):
        fetched(fetcher, server.url + "/a.tar")
    assert shard_files(tmp_path) == []


def test_a_server_that_goes_quiet_is_given_up_on(server: Server, fetcher: Fetcher) -> None:
    server.misdeeds["/a.tar"] = [Misdeed(cut_after=5000, stall_s=3600)]  # longer than this test may take
    fetched(fetcher, server.url + "/a.tar")


def test_a_page_of_html_is_no_shard(server: Server, fetcher: Fetcher, tmp_path: Path) -> None:
    page = Misdeed(
        body=b"<!doctype html>\n<title>Sign in</title>", headers={"Content-Type": "text/html; charset=utf-8"}
    )
    server.misdeeds["/a.tar"] = [page]
    with pytest.raises(FetchError, match="got text/html, not a tar; it begins with '<!doctype html> <title>Sign in"):
        fetched(fetcher, server.url + "/a.tar")
    assert shard_files(tmp_path) == []


def test_an_empty_body_is_no_shard(server: Server, fetcher: Fetcher) -> None:
    server.misdeeds["/a.tar"] = [Misdeed(body=b"")]
    with pytest.raises(FetchError, match="not a tar"):
        fetched(fetcher, server.url + "/a.tar")


def test_a_shard_of_another_length_than_its_record_is_an_error(
    server: Server, fetcher: Fetcher, tmp_path: Path
) -> None:
    with pytest.raises(FetchError, match="the manifest says 1024"):
        fetched(fetcher, server.url + "/a.tar", num_bytes=1024)
    assert shard_files(tmp_path) == []


def test_redirects_are_followed_and_a_circle_is_final(server: Server, fetcher: Fetcher) -> None:
    server.misdeeds["/moved.tar"] = [Misdeed(status=302, body=b"", headers={"Location": "/a.tar"})]
    assert fetched(fetcher, server.url + "/moved.tar")
    server.misdeeds["/circle.tar"] = [Misdeed(status=302, body=b"", headers={"Location": "/circle.tar"})] * 30
    with pytest.raises(FetchError, match="circle"):
        fetched(fetcher, server.url + "/circle.tar")
    assert server.count("/circle.tar") == 6


def test_credentials_go_to_their_host_and_to_no_other(tmp_path: Path, server: Server, fetcher: Fetcher) -> None:
    with serve(tmp_path / "remote") as elsewhere:
        server.misdeeds["/far.tar"] = [Misdeed(status=302, body=b"", headers={"Location": elsewhere.url + "/a.tar"})]
        fetched(fetcher, server.url.replace("//", "//user:SECRET123@") + "/far.tar")
        assert server.requests[0].authorization == "Basic dXNlcjpTRUNSRVQxMjM="
        assert elsewhere.requests[0].authorization is None


def test_secrets_appear_in_no_message_no_log_line_and_no_file_name(
    server: Server, fetcher: Fetcher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    url = server.url.replace("//", "//user:SECRET123@") + "/a.tar?X-Amz-Signature=SECRET456&part=1"
    server.misdeeds["/a.tar"] = [Misdeed(status=503, body=b""), Misdeed(cut_after=10), Misdeed(status=403, body=b"")]
    with pytest.raises(FetchError) as caught:
        fetched(fetcher, url)
    fetched(fetcher, url)
    told = str(caught.value) + repr(caught.value) + caplog.text + "".join(shard_files(tmp_path))
    assert "SECRET" not in told
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_host_that_does_not_answer_is_an_error_without_the_secret(fetcher: Fetcher) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/a.tar?token=SECRET123"
        with pytest.raises(FetchError, match=r"token=\*\*\*: NewConnectionError.*gave up after 3 tries") as caught:
            fetched(fetcher, url)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("http://host/a.tar", "http://host/a.tar"),
        ("https://me:pw@host:8/a.tar#x", "https://***@host:8/a.tar"),
        ("https://host/a.tar?sig=abc%3D&exp=60", "https://host/a.tar?sig=***&exp=***"),
        ("https://host/a.tar?bare-token", "https://host/a.tar?***"),
        ("local/a=b.tar?x=1", "local/a=b.tar?x=1"),
    ],
)
def test_masking_keeps_what_is_no_secret(url: str, masked: str) -> None:
    assert mask_url(url) == masked


def test_a_fetcher_that_was_used_can_be_sent_to_another_process(server: Server, fetcher: Fetcher) -> None:
    assert fetched(fetcher, server.url + "/a.tar") == fetched(
        pickle.loads(pickle.dumps(fetcher)), server.url + "/a.tar"
    )


def test_a_document_that_is_no_json_is_refused(server: Server, fetcher: Fetcher) -> None:
    with pytest.raises(FetchError, match="not JSON"):
        fetcher.read(server.url + "/a.tar")
