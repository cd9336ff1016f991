from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable

import pytest

from shardkit import ShardReadError
from shardkit.tar.byte_source import MemorySource, stream_source
from shardkit.tar.header import build_headers
from shardkit.tar.walk import Ending, Member, ShardWalk
from tests.helpers.shards import END_MARKER, layout, raw_member, sample_members, tar_bytes, tar_entry

TWO = sample_members(2)


def walk(data: bytes, **options: Callable[[ShardReadError], None]) -> ShardWalk:
    return ShardWalk(MemorySource(data), shard="x.tar", want=lambda _: True, **options)


def members(data: bytes) -> list[Member]:
    return [member for member, _ in walk(data)]


def error_of(data: bytes) -> ShardReadError:
    with pytest.raises(ShardReadError) as caught:
        list(walk(data))
    return caught.value


def pax_bytes(name: str, content: bytes, *, headers: dict[str, str]) -> bytes:
    """Return a member as tarfile writes it with pax headers of our choice, without end marker."""
    info = tarfile.TarInfo(name)
    info.size, info.pax_headers = len(content), headers
    return info.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % 512)


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_and_places_are_those_that_tarfile_finds(format: int) -> None:
    names = ["a.jpg", "é.jpg", "d" * 60 + "/" + "k" * 89 + ".jpg", "/".join(["e" * 70] * 3) + "/q.jpg", "z.cls"]
    data = tar_bytes([(name, name.encode() * 30) for name in names], format=format)
    found = list(walk(data))
    assert [(m.name, m.header_offset, m.offset, m.size) for m, _ in found] == [
        (place.name, place.header, place.content, place.size) for place in layout(data)
    ]
    assert [content for _, content in found] == [name.encode() * 30 for name in names]


def test_content_that_is_not_wanted_is_passed_over() -> None:
    found = ShardWalk(MemorySource(tar_bytes(TWO)), shard="x", want=lambda member: member.name.endswith("cls"))
    assert [content for _, content in found] == [None, b"0", None, b"1"]


def test_the_standard_end_marker_has_two_zero_blocks() -> None:
    found = walk(tar_bytes(TWO))
    list(found)
    assert found.ending == Ending(zero_blocks=2)


@pytest.mark.parametrize(("tail", "zero_blocks"), [(b"", 0), (bytes(512), 1), (bytes(1024), 2)])
def test_a_short_end_marker_is_no_error(tail: bytes, zero_blocks: int) -> None:
    data = tar_bytes(TWO)
    last = layout(data)[-1]
    found = walk(data[: last.content + 512] + tail)
    assert len(list(found)) == 4
    assert found.ending == Ending(zero_blocks=zero_blocks)


@pytest.mark.parametrize("lead", [0, 512, 700])
def test_bytes_behind_the_end_are_counted_from_the_first_that_is_not_zero(lead: int) -> None:
    data = tar_bytes(TWO)
    found = walk(data + bytes(lead) + b"log text" * 100)
    list(found)
    assert found.ending == Ending(zero_blocks=2, trailing_bytes=800, trailing_offset=len(data) + lead)


@pytest.mark.parametrize("zero_blocks", [1, 2, 20])
def test_another_archive_behind_the_end_is_found(zero_blocks: int) -> None:
    first = raw_member(b"a.jpg", b"1") + bytes(512 * zero_blocks)
    found = walk(first + tar_bytes(TWO))
    assert len(list(found)) == 1
    assert found.ending == Ending(zero_blocks=min(zero_blocks, 2), trailing_offset=len(first), next_archive=True)


def test_a_header_that_is_cut_behind_the_end_is_no_archive() -> None:
    found = walk(raw_member(b"a.jpg") + END_MARKER + raw_member(b"b.jpg")[:511])
    list(found)
    assert found.ending is not None
    assert not found.ending.next_archive


def test_a_cut_in_a_member_names_it_and_the_byte() -> None:
    data = tar_bytes(TWO)
    place = layout(data)[2]
    error = error_of(data[: place.content + 100])
    assert (error.rule, error.member, error.offset) == ("WDS002", "000001.jpg", place.header)
    assert f"cut at byte {place.content + 100}" in error.reason


def test_a_cut_in_a_header_names_the_byte() -> None:
    data = tar_bytes(TWO)
    error = error_of(data[: layout(data)[2].header + 100])
    assert (error.rule, error.reason) == ("WDS002", f"cut at byte {layout(data)[2].header + 100}")


def test_a_cut_in_an_extended_header_is_a_cut() -> None:
    data = tar_bytes([("n" * 150 + ".jpg", b"")], format=tarfile.PAX_FORMAT)
    assert error_of(data[:600]).rule == "WDS002"


def test_an_empty_file_is_called_empty() -> None:
    error = error_of(b"")
    assert (error.rule, error.reason) == ("WDS008", "empty file (0 bytes)")


@pytest.mark.parametrize("data", [b"<html>" + b"x" * 100, b"\xff\xd8\xff" * 300, bytes(100), b"x"])
def test_a_file_that_does_not_begin_with_a_header_is_no_tar(data: bytes) -> None:
    error = error_of(data)
    assert (error.rule, error.offset) == ("WDS001", 0)
    assert error.reason.startswith("not a tar: ")


def test_a_damaged_first_header_is_no_foreign_file() -> None:
    data = bytearray(tar_bytes(TWO))
    data[0] ^= 1
    assert (error_of(bytes(data)).rule, error_of(bytes(data)).offset) == ("WDS003", 0)


def test_a_damaged_header_is_told_once_and_the_walk_goes_on_behind_it() -> None:
    data = bytearray(tar_bytes(sample_members(3)))
    place = layout(bytes(data))[2]
    data[place.header + 3] ^= 0x20
    damage: list[ShardReadError] = []
    names = [member.name for member, _ in walk(bytes(data), on_damage=damage.append)]
    assert names == ["000000.jpg", "000000.cls", "000001.cls", "000002.jpg", "000002.cls"]
    assert [(error.rule, error.offset) for error in damage] == [("WDS003", place.header)]


def test_an_extended_header_of_absurd_size_is_not_read() -> None:
    data = raw_member(b"long", fields={156: b"L", 124: b"\x80" + (2**60).to_bytes(11, "big")}) + tar_bytes(TWO)
    error = error_of(data)
    assert error.rule == "WDS003"
    assert "an extended header of 1152921504606846976 bytes" in error.reason


@pytest.mark.parametrize("size", [2**33, 2**62, 2**93])
@pytest.mark.parametrize("source", [MemorySource, lambda data: stream_source(io.BytesIO(data))], ids=["memory", "pipe"])
def test_a_member_of_absurd_size_is_cut(size: int, source: Callable[[bytes], MemorySource]) -> None:
    data = raw_member(b"a.jpg", fields={124: (1 << 95 | size).to_bytes(12, "big")}) + bytes(5000)
    with pytest.raises(ShardReadError, match=f"needs {size} bytes"):
        list(ShardWalk(source(data), shard="x.tar", want=lambda _: True))


def test_the_size_of_a_pax_header_wins_over_the_header() -> None:
    header = raw_member(b"a.jpg")
    data = raw_member(b"pax", b"12 size=600\n", fields={156: b"x"}) + header + b"x" * 600 + bytes(424) + END_MARKER
    assert [(m.name, m.size) for m in members(data)] == [("a.jpg", 600)]


@pytest.mark.parametrize("digits", [b"-1", b"1e3", b"9" * 5000])
def test_a_pax_size_that_is_no_number_is_damage(digits: bytes) -> None:
    body = b" size=" + digits + b"\n"
    record = next(b"%d" % n + body for n in range(len(body), len(body) + 9) if len(b"%d" % n + body) == n)
    error = error_of(raw_member(b"pax", record, fields={156: b"x"}) + raw_member(b"a.jpg") + END_MARKER)
    assert (error.rule, "no number of bytes" in error.reason) == ("WDS003", True)


def test_pax_headers_that_concern_no_name_change_nothing() -> None:
    data = pax_bytes("a.jpg", b"1", headers={"mtime": "1234567890.5", "comment": "made for a test"}) + END_MARKER
    assert [m.name for m in members(data)] == ["a.jpg"]


def test_a_global_pax_header_is_passed_over() -> None:
    data = raw_member(b"pax", b"13 comment=x\n", fields={156: b"g"}) + tar_bytes(TWO)
    assert [m.name for m in members(data)] == ["000000.jpg", "000000.cls", "000001.jpg", "000001.cls"]


def test_damage_in_a_pax_header_is_found() -> None:
    error = error_of(raw_member(b"pax", b"99 path=x\n", fields={156: b"x"}) + tar_bytes(TWO))
    assert (error.rule, "pax record" in error.reason) == ("WDS003", True)


def test_kinds_are_told_apart_and_links_have_their_target() -> None:
    entries = [
        tar_entry("l.jpg", kind=tarfile.SYMTYPE, linkname="a.jpg"),
        tar_entry("h.jpg", kind=tarfile.LNKTYPE, linkname="b.jpg"),
        tar_entry("d", kind=tarfile.DIRTYPE),
        tar_entry("p", kind=tarfile.FIFOTYPE),
        tar_entry("c", kind=tarfile.CHRTYPE),
        tar_entry("u", kind=b"Z"),
    ]
    found = [(m.kind, m.linkname) for m in members(tar_bytes(entries))]
    assert found[:2] == [("symbolic link", "a.jpg"), ("hard link", "b.jpg")]
    assert [kind for kind, _ in found[2:]] == ["folder", "fifo", "device", "unknown"]


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_long_link_target_is_whole(format: int) -> None:
    data = tar_bytes([tar_entry("l.jpg", kind=tarfile.SYMTYPE, linkname="t" * 300)], format=format)
    assert [m.linkname for m in members(data)] == ["t" * 300]


def test_a_name_that_is_not_utf8_survives() -> None:
    assert [m.name for m in members(raw_member(b"caf\xe9.jpg") + END_MARKER)] == ["caf\udce9.jpg"]


def test_the_map_of_an_old_sparse_file_is_passed_over() -> None:
    header = raw_member(b"s.jpg", fields={156: b"S", 257: b"ustar  \0", 482: b"\1", 124: b"00000000003\0"})
    more = bytes(504) + b"\1" + bytes(7), bytes(512)
    data = header + b"".join(more) + b"abc".ljust(512, b"\0") + tar_bytes(TWO)
    assert [(m.name, m.kind, m.offset) for m in members(data)][:2] == [
        ("s.jpg", "sparse file", 1536),
        ("000000.jpg", "file", 2560),
    ]


def test_a_sparse_file_of_pax_format_is_told() -> None:
    data = pax_bytes("GNUSparseFile.0/s.jpg", b"map", headers={"GNU.sparse.major": "1"}) + END_MARKER
    assert [m.kind for m in members(data)] == ["sparse file"]


def test_damage_of_gzip_behind_the_last_member_is_found() -> None:
    packed = gzip.compress(tar_bytes(TWO))
    with pytest.raises(ShardReadError, match=r"incorrect data check.*behind the last member") as caught:
        list(ShardWalk(stream_source(io.BytesIO(packed[:-8] + bytes(4) + packed[-4:])), shard="x", want=lambda _: True))
    assert caught.value.rule == "WDS002"


def test_what_we_write_is_walked_byte_for_byte() -> None:
    data = build_headers("n" * 200 + ".jpg", num_bytes=0) + END_MARKER
    assert [(m.name, m.header_offset, m.offset) for m in members(data)] == [("n" * 200 + ".jpg", 0, 1536)]
