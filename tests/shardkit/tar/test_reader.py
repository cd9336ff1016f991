from __future__ import annotations

import gzip
import io
import logging
from pathlib import Path

import pytest

from shardkit import Sample, ShardFile, ShardReadError, build_index, iter_samples
from tests.helpers.shards import END_MARKER, jpeg_bytes, layout, sample_members, tar_bytes, write_samples, write_shard

FIVE = sample_members(5)


def read(data: bytes) -> list[Sample]:
    return list(iter_samples(io.BytesIO(data), shard="x.tar"))


def read_until_error(data: bytes) -> tuple[list[str], ShardReadError]:
    """Return the keys that came before the error, and the error."""
    keys: list[str] = []
    samples = iter_samples(io.BytesIO(data), shard="x.tar")
    with pytest.raises(ShardReadError) as caught:
        keys.extend(sample.key for sample in samples)
    return keys, caught.value


class TestForward:
    def test_samples_come_whole_and_in_order(self) -> None:
        samples = read(tar_bytes(FIVE))
        assert [sample.key for sample in samples] == [f"{n:06d}" for n in range(5)]
        assert samples[3].members == {"jpg": jpeg_bytes(3), "cls": b"3"}
        assert samples[1].offset == layout(tar_bytes(FIVE))[2].header

    def test_a_gzip_stream_gives_the_same(self) -> None:
        assert read(gzip.compress(tar_bytes(FIVE))) == read(tar_bytes(FIVE))

    def test_a_cut_in_a_member_gives_the_whole_samples_before_it(self) -> None:
        data = tar_bytes(FIVE)
        keys, error = read_until_error(data[: layout(data)[6].content + 100])
        assert (keys, error.member, error.rule) == (["000000", "000001", "000002"], "000003.jpg", "WDS002")

    def test_a_cut_between_two_samples_is_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        data = tar_bytes(FIVE)
        with caplog.at_level(logging.WARNING):
            assert len(read(data[: layout(data)[6].header])) == 3
        assert "x.tar: 3 samples, end-of-archive marker missing: the file may be cut (WDS005)" in caplog.text

    @pytest.mark.parametrize("number", [3, 1])
    def test_a_cut_between_two_members_gives_no_half_sample(self, number: int) -> None:
        data = tar_bytes(FIVE)
        keys, error = read_until_error(data[: layout(data)[2 * number + 1].header])
        assert keys == [f"{n:06d}" for n in range(number)]
        assert (error.rule, error.member) == ("WDS002", f"{number:06d}")
        assert "lacks cls, and the end-of-archive marker is missing" in error.reason

    def test_a_cut_in_the_only_sample_gives_no_half_sample(self) -> None:
        data = tar_bytes(FIVE)
        assert read_until_error(data[: layout(data)[1].header])[0] == []

    def test_a_half_sample_is_told_though_pictures_differ_in_extension(self) -> None:
        members = [("a.cls", b"0"), ("a.jpg", b"j"), ("b.cls", b"1"), ("b.png", b"p"), ("c.cls", b"2"), ("c.jpg", b"j")]
        data = tar_bytes(members)
        assert read_until_error(data[: layout(data)[5].header])[0] == ["a", "b"]

    def test_parts_apart_are_an_error_at_the_first_repeat(self) -> None:
        keys, error = read_until_error(tar_bytes([FIVE[0], FIVE[2], FIVE[1], FIVE[3]]))
        assert (keys, error.rule, error.member) == (["000000", "000001"], "WDS020", "000000.cls")

    def test_a_member_twice_is_an_error_with_both_offsets(self) -> None:
        keys, error = read_until_error(tar_bytes([*FIVE[:2], FIVE[2], FIVE[2], FIVE[3]]))
        assert (keys, error.rule) == (["000000"], "WDS004")
        assert str(error).startswith("x.tar: '000001.jpg' at byte 4096: duplicate member name, first at byte 2560")

    def test_names_that_differ_in_case_alone_are_one_member_twice(self) -> None:
        assert read_until_error(tar_bytes([("a.jpg", b"1"), ("a.JPG", b"2"), ("a.cls", b"0")]))[1].rule == "WDS004"

    def test_another_archive_behind_the_end_is_an_error(self) -> None:
        keys, error = read_until_error(tar_bytes(FIVE) * 2)
        assert (len(keys), error.rule) == (5, "WDS007")

    def test_hidden_members_and_side_files_are_no_samples(self) -> None:
        members = [("README", b"r"), ("._000000.jpg", b"a"), ("notes.txt", b"n"), *FIVE[:2], ("Thumbs.db", b"t")]
        assert [sample.members.keys() for sample in read(tar_bytes(members))] == [{"jpg", "cls"}]

    def test_extensions_are_read_in_lower_case(self) -> None:
        (sample,) = read(tar_bytes([("a.JPG", b"j"), ("a.CLS", b"0")]))
        assert sample.members == {"jpg": b"j", "cls": b"0"}

    def test_equal_base_names_in_two_folders_are_two_samples(self) -> None:
        members = [(f"{folder}/1.{end}", b"1") for folder in ("a", "b") for end in ("jpg", "cls")]
        assert [sample.key for sample in read(tar_bytes(members))] == ["a/1", "b/1"]

    def test_a_shard_of_no_samples_gives_none(self) -> None:
        assert read(END_MARKER) == []

    def test_the_caller_keeps_the_stream(self) -> None:
        stream = io.BytesIO(tar_bytes(FIVE))
        assert len(list(iter_samples(stream, shard="x"))) == 5
        assert not stream.closed


class TestAtOffsets:
    def test_every_sample_is_read_at_its_place(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path / "x.tar", 5)
        index = build_index(path)
        with ShardFile(path) as shard:
            assert shard.num_bytes == path.stat().st_size
            found = [shard.read_sample(int(index.offsets[row]), int(index.sizes[row])) for row in (4, 0, 2)]
        assert found == [read(path.read_bytes())[row] for row in (4, 0, 2)]

    @pytest.mark.parametrize(
        ("offset", "size", "reason"),
        [
            (700, 2560, "no tar header is here"),
            (0, 5120, "2 samples in 5120 bytes"),
            (0, 2**50, "the file has"),
            (2**50, 2560, "the file has"),
            (-512, 2560, "the file has"),
            (0, 0, "the file has"),
            (2560 * 5, 1024, "0 samples in 1024 bytes"),
        ],
    )
    def test_a_place_that_holds_no_sample_says_that_the_index_is_stale(
        self, tmp_path: Path, offset: int, size: int, reason: str
    ) -> None:
        path = write_samples(tmp_path / "x.tar", 5)
        with ShardFile(path) as shard, pytest.raises(ShardReadError, match=reason) as caught:
            shard.read_sample(offset, size)
        assert caught.value.rule == "WDS051"
        assert "index again" in str(caught.value)

    def test_a_damaged_header_is_told_with_its_place(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path / "x.tar", 2)
        data = bytearray(path.read_bytes())
        data[1536 + 3] ^= 1
        path.write_bytes(data)
        with ShardFile(path) as shard, pytest.raises(ShardReadError) as caught:
            shard.read_sample(0, 2560)
        assert (caught.value.rule, caught.value.offset) == ("WDS003", 1536)

    def test_a_closed_shard_cannot_be_read(self, tmp_path: Path) -> None:
        shard = ShardFile(write_shard(tmp_path / "x.tar", FIVE))
        shard.close()
        shard.close()
        with pytest.raises(ValueError, match="is closed"):
            shard.read_sample(0, 512)

    def test_a_missing_shard_is_an_error_of_the_system(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            ShardFile(tmp_path / "none.tar")
