"""Hidden files for a time, and gzip unpacked into them."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import remove_leftovers
from shardkit.tar.scratch import scratch_file, unpack


def unpacked(data: bytes) -> tuple[bytes, str | None]:
    file = io.BytesIO()
    reason = unpack(io.BytesIO(data), file)
    return file.getvalue(), reason


def test_the_file_is_hidden_while_it_is_there_and_gone_afterwards(tmp_path: Path) -> None:
    with scratch_file(tmp_path, name="t-unpacked") as (path, file):
        file.write(b"x")
        assert path.name.startswith(".unfinished-t-unpacked-")
        # Alive: nobody takes it for a leftover.
        assert remove_leftovers(tmp_path, name_prefix="t") == []
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_goes_with_the_next_one(tmp_path: Path) -> None:
    (tmp_path / ".unfinished-t-unpacked-00").touch()
    (tmp_path / ".unfinished-other-unpacked-00").touch()
    with scratch_file(tmp_path, name="t-unpacked"):
        assert len(list(tmp_path.iterdir())) == 2
    assert [path.name for path in tmp_path.iterdir()] == [".unfinished-other-unpacked-00"]


@given(st.lists(st.binary(max_size=5000), min_size=1, max_size=4), st.integers(0, 600))
def test_any_number_of_gzip_members_unpack_to_what_was_packed(contents: list[bytes], num_zeros: int) -> None:
    packed = b"".join(gzip.compress(content) for content in contents)
    assert unpacked(packed + bytes(num_zeros)) == (b"".join(contents), None)


@given(st.binary(min_size=50, max_size=3000), st.floats(0, 1))
def test_a_cut_stream_gives_all_that_zlib_can_unpack(content: bytes, where: float) -> None:
    packed = gzip.compress(content)
    cut = packed[: 2 + int(where * (len(packed) - 3))]
    data, reason = unpacked(cut)
    assert reason == "the gzip stream ends early"
    assert data == zlib.decompressobj(31).decompress(cut)


def test_damage_costs_nothing_of_what_is_in_front_of_it() -> None:
    # Two blocks, of which the second has a type that does not exist.
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    first = packer.compress(b"first" * 1000) + packer.flush(zlib.Z_FULL_FLUSH)
    data, reason = unpacked(first + b"\xff" * 100)
    assert data == b"first" * 1000
    assert str(reason).startswith("the gzip stream is damaged")


def test_what_is_no_gzip_is_copied_and_what_follows_gzip_is_told() -> None:
    assert unpacked(b"plain") == (b"plain", None)
    assert unpacked(b"") == (b"", None)
    data, reason = unpacked(gzip.compress(b"x") + b"log text")
    assert (data, reason) == (b"x", "bytes that are no gzip follow the gzip stream")


@pytest.mark.slow
def test_a_bomb_is_unpacked_no_further_than_it_must() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join(packer.compress(bytes(1 << 24)) for _ in range(64)) + packer.flush()
    data, reason = unpacked(packed)
    assert "more than 100 times" in str(reason)
    assert len(data) < (1 << 28) + (1 << 23)
