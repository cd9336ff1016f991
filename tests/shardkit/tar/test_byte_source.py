from __future__ import annotations

import gzip
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from shardkit.tar.byte_source import ByteSource, MemorySource, open_source, stream_source

DATA = bytes(range(256)) * 8


class OneByteAtATime(io.RawIOBase):
    """A pipe from which bytes come singly."""

    def __init__(self, data: bytes) -> None:
        self._rest = data

    def read(self, size: int = -1) -> bytes:
        piece, self._rest = self._rest[:1], self._rest[1:]
        return piece if size else b""


def consume(source: ByteSource) -> None:
    """Read, skip, go back, and meet the end, as the walk does."""
    assert source.take(512) == DATA[:512]
    assert source.skip(512) == 512
    assert source.position == 1024
    source.put_back(source.take(512))
    assert source.position == 1024
    assert source.take(512) == DATA[1024:1536]
    assert source.holds(512)
    assert source.take(4096) == DATA[1536:]
    assert source.skip(1 << 62) == 0
    assert source.take(1) == b""
    assert source.position == len(DATA)
    assert source.broken is None


def test_bytes_at_hand_are_read_forward() -> None:
    consume(MemorySource(DATA))


def test_bytes_at_hand_know_their_place_and_their_end() -> None:
    source = MemorySource(DATA, first=5000)
    assert source.position == 5000
    assert source.holds(len(DATA))
    assert not source.holds(len(DATA) + 1)
    assert source.take(3) == DATA[:3]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_file_is_read_forward_whatever_it_is_called(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(pack(DATA))
    with open_source(path) as source:
        assert (source.gunzip is not None) is (pack is gzip.compress)
        consume(source)


def test_a_plain_file_knows_its_end(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(DATA)
    with open_source(path) as source:
        assert not source.holds(len(DATA) + 1)


def test_an_empty_file_has_no_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.touch()
    with open_source(path) as source:
        assert source.take(512) == b""


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_named_pipe_is_read_forward(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(pack(DATA),))
    writer.start()
    with open_source(path) as source:
        consume(source)
    writer.join()


def test_a_device_is_read_forward() -> None:
    with open_source("/dev/zero") as source:
        assert source.take(512) == bytes(512)


def test_standard_input_is_read_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(DATA)))
    with open_source("-") as source:
        consume(source)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_gzip_is_told_by_content_even_if_bytes_come_singly(pack: Callable[[bytes], bytes]) -> None:
    stream = OneByteAtATime(pack(DATA))
    source = stream_source(stream)  # type: ignore[arg-type]  # as much of a BinaryIO as a response or a pipe is
    assert (source.gunzip is not None) is (pack is gzip.compress)
    consume(source)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_the_caller_keeps_the_stream(pack: Callable[[bytes], bytes]) -> None:
    stream = io.BytesIO(pack(DATA))
    source = stream_source(stream)
    source.take(512)
    del source
    assert not stream.closed


@pytest.mark.parametrize(
    ("damage", "broken"),
    [
        (lambda packed: packed[:-300], "the gzip stream ends early"),
        (lambda packed: packed[:-4], "the gzip stream ends early"),
        (
            lambda packed: packed[:-8] + b"\0\0\0\0" + packed[-4:],
            "the gzip stream is damaged (Error -3 while decompressing data: incorrect data check",
        ),
        (lambda packed: packed + b"log: done", "the gzip stream is damaged (other bytes follow it"),
        (lambda packed: packed[:40] + b"\xff" * 40 + packed[80:], "the gzip stream is damaged (Error -3"),
        (
            lambda packed: packed[:2] + b"\xff" + packed[3:],
            "the gzip stream is damaged (Error -3 while decompressing data: unknown compression method",
        ),
    ],
    ids=["cut", "cut in the trailer", "wrong checksum", "text behind", "broken data", "broken header"],
)
def test_a_damaged_gzip_stream_says_why_it_ended(damage: Callable[[bytes], bytes], broken: str) -> None:
    noise = bytes(value * 97 % 251 for value in range(3000))
    source = stream_source(io.BytesIO(damage(gzip.compress(noise))))
    while source.take(512):
        pass
    assert str(source.broken).startswith(broken)


def test_two_gzip_members_are_one_stream() -> None:
    consume(stream_source(io.BytesIO(gzip.compress(DATA[:700]) + gzip.compress(DATA[700:]))))
