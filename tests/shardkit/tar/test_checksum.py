from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from shardkit.tar.byte_source import ByteSource, FileSource, MemorySource, StreamSource
from shardkit.tar.checksum import HashingSource, file_checksum

STEPS = st.lists(st.tuples(st.sampled_from(["take", "skip", "put back"]), st.integers(0, 700)), max_size=30)


@given(data=st.binary(max_size=3000), steps=STEPS, kind=st.sampled_from(["memory", "file", "stream"]))
def test_each_byte_is_hashed_once_however_it_is_read(data: bytes, steps: list[tuple[str, int]], kind: str) -> None:
    inner: ByteSource
    if kind == "memory":
        inner = MemorySource(data)
    elif kind == "file":
        inner = FileSource(io.BytesIO(data), num_bytes=len(data))
    else:
        inner = StreamSource(io.BytesIO(data))
    hasher = xxhash.xxh3_128()
    source = HashingSource(inner, hashers=(hasher,))
    last = b""
    for step, count in steps:
        if step == "take":
            last = source.take(count)
        elif step == "skip":
            source.skip(count)
            last = b""
        else:
            source.put_back(last)
            last = b""
    source.skip(1 << 62)
    assert source.position == len(data)
    assert hasher.hexdigest() == xxhash.xxh3_128_hexdigest(data)


def test_what_is_handed_out_is_what_the_source_has() -> None:
    source = HashingSource(MemorySource(b"abcdefgh"), hashers=())
    assert (source.take(3), source.position, source.holds(5), source.holds(6)) == (b"abc", 3, True, False)
    source.put_back(b"bc")
    assert (source.skip(1), source.take(9), source.take(1)) == (1, b"cdefgh", b"")


def test_several_checksums_come_from_one_reading() -> None:
    md5, sha = hashlib.md5(), hashlib.sha256()
    HashingSource(MemorySource(b"abc"), hashers=(md5, sha)).skip(3)
    assert (md5.hexdigest(), sha.hexdigest()) == (hashlib.md5(b"abc").hexdigest(), hashlib.sha256(b"abc").hexdigest())


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, (1 << 20) + 1])
def test_a_file_is_hashed_whole(tmp_path: Path, size: int) -> None:
    (tmp_path / "x").write_bytes(bytes(size))
    assert file_checksum(tmp_path / "x") == xxhash.xxh3_128_hexdigest(bytes(size))
