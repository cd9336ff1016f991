"""A device or a stream may go on for ever: it is read no further than 256 MiB behind its end or behind damage."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from shardkit import CheckOptions, ShardReadError, build_index, check_shards, iter_samples
from tests.helpers.shards import raw_member, rules_in, sample_members, tar_bytes


class Endless(io.RawIOBase):
    """A stream of these bytes, then one piece over and over. It gives up at 1 GiB; ``given``: how many were read."""

    def __init__(self, head: bytes, piece: bytes) -> None:
        self._head, self._piece = head, piece * (1 << 20)
        self.given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if self.given > 1 << 30:
            return 0
        piece, self._head = (self._head or self._piece)[: len(buffer)], self._head[len(buffer) :]
        buffer[: len(piece)] = piece
        self.given += len(piece)
        return len(piece)


BROKEN = b"\1" + raw_member(b"9.jpg", b"x")[1:]
ENDLESS = {
    "nothing but zeros": (b"", b"\0", 0, ["WDS017"]),
    "zeros behind the end": (tar_bytes(sample_members(2)), b"\0", 2, ["WDS017"]),
    "text behind the end": (tar_bytes(sample_members(2)), b"log text", 2, ["WDS017"]),
    "text behind damage": (tar_bytes(sample_members(2))[:5120] + BROKEN, b"log text", 2, ["WDS003", "WDS017"]),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_stream_without_an_end_is_read_no_further_than_256_mib(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    head, piece, num_samples, expected = ENDLESS[kind]
    stream = Endless(head, piece)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(stream)))
    (report,) = check_shards(["-"], CheckOptions())
    assert (report.summary.samples, rules_in(report)) == (num_samples, expected)
    assert stream.given < 260 << 20


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="a device of Unix")
def test_a_device_without_an_end_is_an_error() -> None:
    (report,) = check_shards(["/dev/zero"], CheckOptions())
    assert rules_in(report) == ["WDS017"]
    with pytest.raises(ShardReadError, match=r"more than 256 MiB behind .*stopped there \(WDS017\)"):
        build_index("/dev/zero")


def test_readers_that_want_good_data_have_the_samples_first() -> None:
    samples = iter_samples(io.BufferedReader(Endless(tar_bytes(sample_members(2)), b"\0")), shard="x")
    assert next(samples).key == "000000"
    with pytest.raises(ShardReadError, match=r"stopped there \(WDS017\)"):
        next(samples)


def test_padding_of_many_mib_is_nothing_to_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`dd` and tape drives fill up to whole blocks; a file's padding may have any length."""
    shard = tar_bytes(sample_members(2))
    (tmp_path / "x.tar").write_bytes(shard)
    os.truncate(tmp_path / "x.tar", 300 << 20)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(shard + bytes(64 << 20))))
    reports = check_shards([str(tmp_path / "x.tar"), "-"], CheckOptions())
    assert [(report.summary.samples, rules_in(report)) for report in reports] == [(2, []), (2, [])]
