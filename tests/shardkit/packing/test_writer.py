from __future__ import annotations

import hashlib
import io
import resource
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from shardkit import OutputExistsError, PackError, ShardWriter, build_index, iter_samples
from shardkit.index.shard_index import index_to_json

JPG, CLS = b"\xff\xd8 a picture", b"7"


def write(path: Path, *samples: tuple[str, Sequence[tuple[str, bytes]]]) -> Path:
    with ShardWriter(path) as writer:
        for key, members in samples:
            writer.write_sample(key, members)
    return path


def test_the_bytes_of_a_shard_are_pinned(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.tar",
        ("000000", [("jpg", JPG), ("cls", CLS)]),
        ("folder.1/é", [("jpg", bytes(600)), ("cls", b"")]),
        ("k" * 150, [("json", b"{}"), ("cls", b"1")]),
    )
    # Shards that were packed before must come out the same: a change here is a breaking change.
    assert (
        hashlib.sha256(path.read_bytes()).hexdigest()
        == "fbd03a78a4297b7b05deb2fff9263e56d9daa45876776dbc2cd43285c0705d66"
    )


def test_samples_come_back_as_they_were_given(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", ("a", [("jpg", JPG), ("cls", CLS)]), ("b/c", [("cls", b"1"), ("v2.png", b"")]))
    with path.open("rb") as file:
        samples = list(iter_samples(file, shard="x"))
    assert [(sample.key, list(sample.members.items())) for sample in samples] == [
        ("a", [("jpg", JPG), ("cls", CLS)]),
        ("b/c", [("cls", b"1"), ("v2.png", b"")]),
    ]


def test_headers_hold_neither_time_nor_owner(tmp_path: Path) -> None:
    with tarfile.open(write(tmp_path / "x.tar", ("a", [("jpg", JPG), ("cls", CLS)]))) as tar:
        infos = tar.getmembers()
    assert {(i.mtime, i.uid, i.gid, i.uname, i.gname, i.mode) for i in infos} == {(0, 0, 0, "", "", 0o644)}


def test_short_names_are_plain_ustar_and_the_end_is_two_zero_blocks(tmp_path: Path) -> None:
    data = write(tmp_path / "x.tar", ("a", [("jpg", JPG), ("cls", CLS)])).read_bytes()
    assert len(data) == 4 * 512 + 1024
    assert data[257:265] == b"ustar\x0000"
    assert data[-1024:] == bytes(1024)


def test_the_index_is_the_one_that_reading_gives(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with ShardWriter(path) as writer:
        writer.write_sample("a", [("jpg", JPG), ("cls", CLS)])
        writer.write_sample("k" * 200, [("jpg", bytes(512)), ("cls", b"tench"), ("json", b"{}")])
    assert index_to_json(writer.index) == index_to_json(build_index(path))


def test_origins_are_kept_in_the_index(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "x.tar") as writer:
        writer.write_sample("a", [("jpg", JPG)], origin="n01/with space.jpg")
    assert writer.index.origins == ("n01/with space.jpg",)


@pytest.mark.parametrize(
    ("key", "members", "reason"),
    [
        ("first", [("jpg", JPG), ("cls", CLS)], "key 'first' is there already"),
        ("a.b", [("jpg", JPG)], "would be read as"),
        (".a", [("jpg", JPG)], "would be read as"),
        ("", [("jpg", JPG)], "would be read as"),
        ("a/", [("jpg", JPG)], "would be read as"),
        ("a", [("jpg", JPG), ("JSON", b"")], "would be read as"),
        ("a", [("jpg", JPG), ("x/y", b"")], "would be read as"),
        ("a", [("jpg", JPG), ("jpg", JPG)], "two members of one extension"),
        ("a", [("json", b"{}")], "neither a picture nor a label"),
        ("a", [], "neither a picture nor a label"),
        ("a\0b", [("jpg", JPG)], "cannot be a member name"),
    ],
)
def test_a_sample_that_would_not_come_back_is_refused_whole(
    tmp_path: Path, key: str, members: list[tuple[str, bytes]], reason: str
) -> None:
    path = tmp_path / "x.tar"
    with ShardWriter(path) as writer:
        writer.write_sample("first", [("jpg", JPG), ("cls", CLS)])
        with pytest.raises(PackError, match=reason):
            writer.write_sample(key, members)
        writer.write_sample("last", [("jpg", JPG), ("cls", CLS)])
    assert writer.index.keys == ("first", "last")
    assert [sample.key for sample in iter_samples(io.BytesIO(path.read_bytes()), shard="x")] == ["first", "last"]


def test_nothing_that_is_there_is_overwritten_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(b"old")
    with pytest.raises(OutputExistsError), ShardWriter(path) as writer:
        writer.write_sample("a", [("jpg", JPG)])
    assert path.read_bytes() == b"old"
    with ShardWriter(path, replace=True) as writer:
        writer.write_sample("a", [("jpg", JPG)])
    assert build_index(path).keys == ("a",)


def test_an_error_in_the_block_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(PackError), ShardWriter(tmp_path / "x.tar") as writer:
        writer.write_sample("a.b", [("jpg", JPG)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", [1000, 512 * 1024, 512 * 1024 + 512])
def test_a_disk_that_fills_up_is_an_error_that_names_the_shard_and_leaves_no_file(tmp_path: Path, limit: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: .*x\.tar"):  # noqa: SIM117  # all of it may fail
            with ShardWriter(tmp_path / "x.tar") as writer:
                writer.write_sample("a", [("jpg", bytes(512 * 1023))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_shard_is_a_tar(tmp_path: Path) -> None:
    assert write(tmp_path / "x.tar").read_bytes() == bytes(1024)
