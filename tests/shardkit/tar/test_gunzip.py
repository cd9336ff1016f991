from __future__ import annotations

import gzip
import io
import zlib

import pytest

from shardkit.tar.gunzip import GunzipStream

TEXT = bytes(range(256)) * 3000


@pytest.mark.parametrize(
    "pieces", [[TEXT], [TEXT[:7], TEXT[7:]], [b"", TEXT, b""], [TEXT[n : n + 1] for n in range(50)]]
)
@pytest.mark.parametrize("between", [b"", bytes(1), bytes(300_000)])
def test_members_are_unpacked_in_a_row_and_counted(pieces: list[bytes], between: bytes) -> None:
    stream = GunzipStream(io.BytesIO(between.join(map(gzip.compress, pieces)) + between))
    assert stream.readall() == b"".join(pieces)
    assert (stream.num_members, stream.over_limit) == (len(pieces), False)


@pytest.mark.parametrize("cut", [1, 5, 12, 2000])
def test_a_file_that_ends_early_says_so(cut: int) -> None:
    packed = gzip.compress(TEXT)
    stream = GunzipStream(io.BytesIO(packed[:-cut] if cut < 2000 else packed[: len(packed) // 2]))
    with pytest.raises(EOFError):
        stream.readall()


@pytest.mark.parametrize("tail", [b"x", b"log text", b"\x1f", b"\0\0x"])
def test_other_bytes_behind_it_are_damage(tail: bytes) -> None:
    stream = GunzipStream(io.BytesIO(gzip.compress(TEXT) + tail))
    with pytest.raises(gzip.BadGzipFile, match="other bytes follow it"):
        stream.readall()


@pytest.mark.parametrize("position", [-1, -6, 40])
def test_a_wrong_byte_is_damage(position: int) -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[position] ^= 1
    with pytest.raises((zlib.error, EOFError, gzip.BadGzipFile)):
        GunzipStream(io.BytesIO(bytes(packed))).readall()


def test_no_bytes_are_no_members() -> None:
    stream = GunzipStream(io.BytesIO(b""))
    assert (stream.readall(), stream.num_members) == (b"", 0)


def test_a_small_file_may_unpack_to_many_times_its_size() -> None:
    stream = GunzipStream(io.BytesIO(gzip.compress(bytes(1 << 22))), max_ratio=2)
    assert (len(stream.readall()), stream.over_limit) == (1 << 22, False)


def test_all_in_front_of_the_damage_is_handed_out_first() -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[-6] ^= 1
    stream = GunzipStream(io.BytesIO(bytes(packed)))
    assert b"".join(iter(lambda: stream.read(100_000) if stream.unpacked_bytes < len(TEXT) else b"", b"")) == TEXT
    for _ in range(2):
        with pytest.raises(zlib.error, match="incorrect data check"):
            stream.read(1)


@pytest.mark.parametrize("members", [1, 3])
def test_the_number_of_packed_bytes_is_known_at_the_end(members: int) -> None:
    packed = gzip.compress(TEXT) * members
    stream = GunzipStream(io.BytesIO(packed))
    stream.readall()
    assert (stream.at_end, stream.packed_bytes) == (True, len(packed))
