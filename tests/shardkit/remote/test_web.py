from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkit import RemoteChangedError, RemoteError
from shardkit.remote.patience import RemoteLimits
from shardkit.remote.web import WebStream
from shardkit.remote.web_request import WebPool
from tests.helpers.http_server import Misdeed, Server, serve
from tests.helpers.shards import write_samples

QUICK = WebPool(RemoteLimits(connect_s=2, read_s=0.5, retries=2, backoff_s=0.02, longest_wait_s=1))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    write_samples(tmp_path / "a.tar", 5)
    with serve(tmp_path) as running:
        yield running


@pytest.fixture
def content(server: Server, tmp_path: Path) -> bytes:
    return (tmp_path / "a.tar").read_bytes()


def read_all(url: str) -> tuple[bytes, WebStream]:
    stream = WebStream(url, pool=QUICK)
    try:
        return b"".join(iter(lambda: stream.read(4096), b"")), stream
    finally:
        stream.close()


def test_a_body_comes_whole_in_one_request(server: Server, content: bytes) -> None:
    data, stream = read_all(server.url + "/a.tar")
    assert (data, stream.failure, stream.num_bytes) == (content, None, len(content))
    assert server.count("/a.tar") == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_passing_trouble_is_tried_again_with_one_line_each(
    server: Server, content: bytes, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    server.misdeeds["/a.tar"] = [Misdeed(status=status, body=b"busy")] * 2
    assert read_all(server.url + "/a.tar")[0] == content
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert f"status {status}; trying again (2 tries left)" in caplog.text


def test_a_server_that_asks_for_a_pause_gets_it(server: Server) -> None:
    server.misdeeds["/a.tar"] = [Misdeed(status=503, body=b"", headers={"Retry-After": "1"})]
    started = time.monotonic()
    read_all(server.url + "/a.tar")
    assert time.monotonic() - started >= 1


def test_trouble_that_stays_is_an_error_that_says_how_often_it_was_tried(server: Server) -> None:
    server.misdeeds["/a.tar"] = [Misdeed(status=503, body=b"busy")] * 9
    with pytest.raises(RemoteError, match=r"status 503 \(gave up after 3 tries\)"):
        WebStream(server.url + "/a.tar", pool=QUICK)
    assert server.count("/a.tar") == 3


@pytest.mark.parametrize(("status", "words"), [(401, "credentials"), (403, "may have expired"), (404, "no such file")])
def test_a_refusal_is_final_at_once_and_names_the_url(server: Server, status: int, words: str) -> None:
    """NET-04, NET-05."""
    server.misdeeds["/a.tar"] = [Misdeed(status=status, body=b"no")] * 9
    with pytest.raises(RemoteError, match=rf"{server.url}/a.tar: status {status}: .*{words}"):
        WebStream(server.url + "/a.tar", pool=QUICK)
    assert server.count("/a.tar") == 1


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
@pytest.mark.parametrize("cut_after", [0, 100, 512, 5000, 12800])
def test_a_broken_body_goes_on_at_its_next_byte(
    server: Server, content: bytes, caplog: pytest.LogCaptureFixture, ranges: bool, cut_after: int
) -> None:
    """NET-01 with times=1."""
    server.ranges = ranges
    server.misdeeds["/a.tar"] = [Misdeed(cut_after=cut_after)]
    data, stream = read_all(server.url + "/a.tar")
    assert (data, stream.failure) == (content, None)
    asked = [request.range for request in server.requests]
    assert asked == [None, f"bytes={cut_after}-" if ranges and cut_after else None]
    got = f"{cut_after} of {len(content)} bytes, then " if cut_after else ""
    assert f"/a.tar: {got}the connection broke; trying again (2 tries left)" in caplog.text


def test_a_body_that_breaks_often_goes_on_each_time(server: Server, content: bytes) -> None:
    server.ranges = True
    server.misdeeds["/a.tar"] = [Misdeed(cut_after=1000)] * 10
    data, stream = read_all(server.url + "/a.tar")
    assert (data, stream.failure) == (content, None)
    assert server.count("/a.tar") == 11


def test_a_body_that_never_goes_on_ends_with_what_it_had_and_names_both_counts(server: Server, content: bytes) -> None:
    """NET-01 without times."""
    server.misdeeds["/a.tar"] = [Misdeed(cut_after=5000)] * 9
    data, stream = read_all(server.url + "/a.tar")
    assert data == content[:5000]
    assert stream.failure is not None
    assert stream.failure.startswith(f"5000 of {len(content)} bytes, then ")
    assert stream.failure.endswith("(gave up after 3 tries)")


def test_a_server_that_always_breaks_at_the_same_byte_is_given_up_on(server: Server, content: bytes) -> None:
    server.ranges = True
    server.misdeeds["/a.tar"] = [Misdeed(cut_after=5000), *[Misdeed(cut_after=0)] * 99]
    data, stream = read_all(server.url + "/a.tar")
    assert data == content[:5000]
    assert "gave up after 3 tries" in str(stream.failure)
    assert server.count("/a.tar") == 3


def test_a_part_is_asked_for_alone_and_mends_itself(server: Server, content: bytes) -> None:
    server.ranges = True
    server.misdeeds["/a.tar"] = [Misdeed(cut_after=100)]
    stream = WebStream(server.url + "/a.tar", pool=QUICK, first=1024, stop=2048)
    assert (stream.first, stream.num_bytes) == (1024, len(content))
    assert b"".join(iter(lambda: stream.read(4096), b"")) == content[1024:2048]
    assert [request.range for request in server.requests] == ["bytes=1024-2047", "bytes=1124-2047"]


def test_a_server_without_ranges_answers_a_part_with_the_whole(server: Server, content: bytes) -> None:
    """NET-11."""
    stream = WebStream(server.url + "/a.tar", pool=QUICK, first=1024, stop=2048)
    assert stream.first == 0
    assert b"".join(iter(lambda: stream.read(4096), b"")) == content


def test_a_part_of_another_state_is_refused(server: Server, content: bytes, tmp_path: Path) -> None:
    server.ranges = True
    stream = WebStream(server.url + "/a.tar", pool=QUICK, first=0, stop=1024)
    (tmp_path / "a.tar").write_bytes(content[::-1])
    with pytest.raises(RemoteChangedError):
        WebStream(server.url + "/a.tar", pool=QUICK, first=1024, stop=2048, version=stream.version)


def test_a_connection_serves_one_body_after_the_other(server: Server) -> None:
    pool = WebPool(RemoteLimits(retries=0))
    for _ in range(3):
        stream = WebStream(server.url + "/a.tar", pool=pool)
        while stream.read(4096):
            pass
        stream.close()
    assert server.connections == 1


def test_a_server_that_goes_quiet_is_left_and_asked_again(server: Server, content: bytes) -> None:
    """NET-09."""
    server.ranges = True
    server.misdeeds["/a.tar"] = [Misdeed(cut_after=5000, stall_s=2)]
    data, stream = read_all(server.url + "/a.tar")
    assert (data, stream.failure) == (content, None)


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
@pytest.mark.parametrize("other", [lambda data: data[::-1], lambda data: data[:-512]], ids=["bytes", "length"])
def test_a_file_that_changes_meanwhile_is_never_mixed(
    server: Server, content: bytes, tmp_path: Path, ranges: bool, other: object
) -> None:
    assert callable(other)
    server.ranges = ranges
    server.misdeeds["/a.tar"] = [Misdeed(body=content, cut_after=5000)]
    (tmp_path / "a.tar").write_bytes(other(content))
    data, stream = read_all(server.url + "/a.tar")
    assert data == content[:5000]
    assert stream.failure is not None
    assert "the file has changed while it was read" in stream.failure


def test_a_page_in_place_of_a_file_is_named_with_its_beginning(server: Server) -> None:
    """NET-08."""
    page = b"<!DOCTYPE html><html><title>Sign in</title></html>"
    server.misdeeds["/a.tar"] = [Misdeed(body=page, headers={"Content-Type": "text/html; charset=utf-8"})]
    with pytest.raises(RemoteError, match=r"got text/html, not a tar; it begins with '<!DOCTYPE html><html><title>"):
        WebStream(server.url + "/a.tar", pool=QUICK)


def test_a_tar_that_a_server_calls_a_page_is_a_tar(server: Server, content: bytes) -> None:
    server.misdeeds["/a.tar"] = [Misdeed(headers={"Content-Type": "text/html"})]
    assert read_all(server.url + "/a.tar")[0] == content


def test_a_body_packed_on_the_way_comes_as_it_was_sent(server: Server, content: bytes) -> None:
    """TAR-08: what is told by content must not be unpacked twice."""
    server.misdeeds["/a.tar"] = [Misdeed(body=b"\x1f\x8bxyz", headers={"Content-Encoding": "gzip"})]
    assert read_all(server.url + "/a.tar")[0] == b"\x1f\x8bxyz"


@pytest.mark.parametrize("same_host", [True, False])
def test_credentials_follow_a_redirect_to_the_same_host_only(
    server: Server, content: bytes, tmp_path: Path, same_host: bool
) -> None:
    """NET-10."""
    with serve(tmp_path) as other:
        target = server if same_host else other
        server.misdeeds["/moved.tar"] = [Misdeed(status=302, body=b"", headers={"Location": target.url + "/a.tar"})]
        url = server.url.replace("//", "//me:SECRET@") + "/moved.tar"
        assert read_all(url)[0] == content
        assert server.requests[0].authorization is not None
        assert (target.requests[-1].authorization is not None) is same_host


def test_a_circle_of_redirects_is_left_after_five(server: Server) -> None:
    """NET-10."""
    server.misdeeds["/a.tar"] = [Misdeed(status=302, body=b"", headers={"Location": "/a.tar"})] * 20
    with pytest.raises(RemoteError, match="redirected in a circle"):
        WebStream(server.url + "/a.tar", pool=QUICK)
    assert server.count("/a.tar") == 6


def test_a_redirect_to_a_file_is_not_followed(server: Server) -> None:
    server.misdeeds["/a.tar"] = [Misdeed(status=302, body=b"", headers={"Location": "file:" + "///etc/passwd"})]
    with pytest.raises(RemoteError, match="no usable URL"):
        WebStream(server.url + "/a.tar", pool=QUICK)


def test_what_only_looks_like_a_url_is_an_error_of_ours() -> None:
    with pytest.raises(RemoteError, match="no usable URL"):
        WebStream("http://[/a.tar", pool=QUICK)


def test_no_secret_is_in_any_message(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """NET-05."""
    url = server.url.replace("//", "//me:SECRET@") + "/a.tar?sig=SECRET"
    server.misdeeds["/a.tar"] = [Misdeed(cut_after=600)] * 9
    stream = read_all(url)[1]
    with pytest.raises(RemoteError) as refused:
        WebStream(url.replace("a.tar", "none.tar"), pool=QUICK)
    with pytest.raises(RemoteError) as unreachable:
        WebStream("http://me:SECRET@127.0.0.1:1/a.tar?sig=SECRET", pool=QUICK)
    texts = (str(stream.failure), str(refused.value), str(unreachable.value), caplog.text)
    assert all(texts)
    assert not any("SECRET" in text for text in texts)


@pytest.mark.parametrize("cut", [False, True])
def test_a_body_without_a_length_is_read_to_its_end(content: bytes, cut: bool) -> None:
    """Chunked: what breaks off before the last chunk is no end."""
    chunk = b"%x\r\n%s\r\n" % (len(content), content)
    body = chunk[:6000] if cut else chunk + b"0\r\n\r\n"

    def answer(listener: socket.socket) -> None:
        for _ in range(3 if cut else 1):
            connection = listener.accept()[0]
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        data, stream = read_all(f"http://127.0.0.1:{listener.getsockname()[1]}/a.tar")
        thread.join()
    assert stream.num_bytes is None
    assert (stream.failure is not None) is cut
    assert (data == content) is not cut
    assert content.startswith(data)
