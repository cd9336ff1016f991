from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from shardkit import RemoteLimits, RemotePool
from tests.helpers.http_server import Misdeed, Server, serve
from wdsloader.arriving import CHUNK_BYTES, ArrivingShard
from wdsloader.cache import WantedFile
from wdsloader.errors import FetchError

CONTENT = np.random.Generator(np.random.Philox(5)).bytes(3 * CHUNK_BYTES + 1234)
QUICK = RemoteLimits(connect_s=2, read_s=1, retries=2, backoff_s=0.02)


@pytest.fixture(params=[True, False], ids=["ranges", "no ranges"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    (tmp_path / "far").mkdir()
    (tmp_path / "far/a.tar").write_bytes(CONTENT)
    with serve(tmp_path / "far") as running:
        running.ranges = request.param
        yield running


@pytest.fixture
def arriving(server: Server, tmp_path: Path) -> Iterator[ArrivingShard]:
    descriptor = os.open(tmp_path / "here", os.O_CREAT | os.O_RDWR)
    os.truncate(descriptor, len(CONTENT))
    wanted = WantedFile(server.url + "/a.tar")
    shard = ArrivingShard(wanted, num_bytes=len(CONTENT), descriptor=descriptor, pool=RemotePool(QUICK))
    yield shard
    shard.close()


def test_a_reader_gets_its_bytes_and_asks_for_their_chunks_alone(server: Server, arriving: ArrivingShard) -> None:
    offset = 2 * CHUNK_BYTES - 10
    assert arriving.read(offset, 20) == CONTENT[offset : offset + 20]
    if server.ranges:
        assert [request.range for request in server.requests] == [f"bytes={CHUNK_BYTES}-{3 * CHUNK_BYTES - 1}"]
        assert not arriving.complete
    else:
        assert arriving.complete
        assert not arriving.serves_parts
    assert server.count("/a.tar") == 1


def test_the_rest_comes_when_asked_for_and_no_byte_twice(server: Server, arriving: ArrivingShard) -> None:
    arriving.read(CHUNK_BYTES, 1)
    while arriving.bring_more():
        pass
    assert arriving.complete
    assert arriving.read(0, len(CONTENT)) == CONTENT
    asked = ["bytes=1048576-2097151", "bytes=0-1048575", "bytes=2097152-3146961"]
    assert [request.range for request in server.requests] == asked[: 3 if server.ranges else 1]


def test_many_threads_bring_each_chunk_once(server: Server, arriving: ArrivingShard) -> None:
    server.bytes_per_s = 2e7
    offsets = [*range(0, len(CONTENT) - 100, 65536)] * 2
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda offset: arriving.read(offset, 100), offsets))
    assert found == [CONTENT[offset : offset + 100] for offset in offsets]
    assert len(server.requests) <= (4 if server.ranges else 8)


@pytest.mark.parametrize("cut_after", [0, 1000, CHUNK_BYTES + 77])
def test_a_part_that_breaks_goes_on_where_it_broke(server: Server, arriving: ArrivingShard, cut_after: int) -> None:
    """NET-15."""
    server.misdeeds["/a.tar"] = [Misdeed(cut_after=cut_after, reset=True), Misdeed(status=503, body=b"")]
    assert arriving.read(0, len(CONTENT)) == CONTENT


def test_an_error_is_that_of_the_reader_and_the_next_one_tries_again(server: Server, arriving: ArrivingShard) -> None:
    server.misdeeds["/a.tar"] = [Misdeed(status=404, body=b"")]
    with pytest.raises(FetchError, match="status 404"):
        arriving.read(0, 10)
    assert arriving.read(0, 10) == CONTENT[:10]


def test_a_shard_of_another_length_than_recorded_is_stale(
    server: Server, arriving: ArrivingShard, tmp_path: Path
) -> None:
    (tmp_path / "far/a.tar").write_bytes(CONTENT[:-1])
    with pytest.raises(FetchError, match=f"has {len(CONTENT) - 1} bytes, the manifest says {len(CONTENT)}"):
        arriving.read(0, 10)


def test_parts_of_two_states_are_never_mixed(server: Server, arriving: ArrivingShard, tmp_path: Path) -> None:
    arriving.read(0, 10)
    (tmp_path / "far/a.tar").write_bytes(CONTENT[::-1])
    if server.ranges:
        with pytest.raises(FetchError, match="the file has changed"):
            arriving.read(2 * CHUNK_BYTES, 10)
    else:
        assert arriving.read(2 * CHUNK_BYTES, 10) == CONTENT[2 * CHUNK_BYTES : 2 * CHUNK_BYTES + 10]


def test_closing_while_it_comes_stops_it_and_closes_the_file(server: Server, arriving: ArrivingShard) -> None:
    server.bytes_per_s = 1e6
    thread = threading.Thread(target=arriving.bring_more)
    before = len(os.listdir("/proc/self/fd"))
    thread.start()
    while not server.requests:
        pass
    arriving.close()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert len(os.listdir("/proc/self/fd")) <= before
