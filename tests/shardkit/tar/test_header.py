from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.tar.header import (
    Header,
    HeaderError,
    build_headers,
    padded,
    parse_header,
    parse_pax_records,
    parse_pax_size,
    parse_plain,
)
from tests.helpers.shards import raw_member


def block(**fields: str | int | bytes) -> bytes:
    """Return a header as Python's tarfile writes it."""
    info = tarfile.TarInfo("name.jpg")
    for name, value in fields.items():
        setattr(info, name, value)
    return info.tobuf(tarfile.USTAR_FORMAT)[:512]


@pytest.mark.parametrize(("num_bytes", "expected"), [(0, 0), (1, 512), (512, 512), (513, 1024)])
def test_content_takes_up_whole_blocks(num_bytes: int, expected: int) -> None:
    assert padded(num_bytes) == expected


def test_a_header_of_tarfile_is_read() -> None:
    header = parse_header(block(size=700))
    assert header == Header(name=b"name.jpg", size=700, kind=b"0", linkname=b"")


def test_a_link_has_its_target() -> None:
    header = parse_header(block(type=tarfile.SYMTYPE, linkname="else.jpg"))
    assert (header.kind, header.linkname) == (b"2", b"else.jpg")


def test_our_header_has_mode_0644_owner_0_and_time_0() -> None:
    info = tarfile.TarInfo.frombuf(build_headers("folder/name.jpg", num_bytes=700), "utf-8", "strict")
    assert (info.name, info.size, info.mode) == ("folder/name.jpg", 700, 0o644)
    assert (info.mtime, info.uid, info.gid, info.uname, info.gname) == (0, 0, 0, "", "")


@pytest.mark.parametrize(
    "name", ["short.jpg", "é" * 20 + ".jpg", "d" * 100 + "/" + "n" * 50 + ".cls", "/absolute/name.jpg", "n" * 100]
)
def test_a_name_that_fits_ustar_takes_one_block(name: str) -> None:
    headers = build_headers(name, num_bytes=3)
    assert len(headers) == 512
    assert parse_header(headers).name == name.encode()


@pytest.mark.parametrize("name", ["n" * 101, "d" * 156 + "/n.jpg", "d/" + "n" * 101, "é" * 60 + ".jpg"])
def test_a_name_that_does_not_fit_has_a_pax_record_before_it(name: str) -> None:
    headers = build_headers(name, num_bytes=3)
    assert len(headers) == 3 * 512
    assert parse_header(headers[:512]).kind == b"x"
    assert parse_pax_records(headers[512:1024]) == {"path": name.encode()}
    assert parse_header(headers[1024:]).size == 3


@pytest.mark.parametrize("length", [90, 91, 92, 93, 990, 991, 992])
def test_the_length_of_a_pax_record_counts_its_own_digits(length: int) -> None:
    name = "d/" + "n" * (length + 100)
    headers = build_headers(name, num_bytes=0)
    assert parse_pax_records(headers[512:-512])["path"] == name.encode()
    with tarfile.open(fileobj=io.BytesIO(headers + bytes(1024))) as tar:
        assert tar.getnames() == [name]


@pytest.mark.parametrize("name", ["", "a\0b.jpg"])
def test_a_name_that_no_tar_can_hold_is_refused(name: str) -> None:
    with pytest.raises(HeaderError, match="cannot be a member name"):
        build_headers(name, num_bytes=0)


def test_content_of_8_gib_is_refused() -> None:
    with pytest.raises(HeaderError, match="8 GiB"):
        build_headers("a.jpg", num_bytes=8**11)


def test_the_prefix_of_ustar_comes_before_the_name() -> None:
    assert parse_header(raw_member(b"name.jpg", fields={345: b"folder/sub"})).name == b"folder/sub/name.jpg"


def test_gnu_headers_have_no_prefix() -> None:
    fields = {257: b"ustar  \0", 345: b"00000000001\0"}
    assert parse_header(raw_member(b"name.jpg", fields=fields)).name == b"name.jpg"


def test_an_old_header_without_magic_is_read() -> None:
    header = parse_header(raw_member(b"name.jpg", fields={156: b"\0", 257: bytes(8)}))
    assert (header.name, header.kind) == (b"name.jpg", b"\0")


def test_an_old_header_whose_name_ends_with_a_slash_is_a_folder() -> None:
    assert parse_header(raw_member(b"folder/", fields={156: b"\0", 257: bytes(8)})).kind == b"5"


def test_a_size_in_base_256_is_read() -> None:
    field = b"\x80" + (2**40).to_bytes(11, "big")
    assert parse_header(raw_member(b"a.jpg", fields={124: field})).size == 2**40


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(HeaderError, match="negative size -1"):
        parse_header(raw_member(b"a.jpg", fields={124: b"\xff" * 12}))


@pytest.mark.parametrize("field", [b"-0000000001\0", b"00000000009\0", b"0x000000010\0"])
def test_a_size_that_is_no_octal_number_is_refused(field: bytes) -> None:
    with pytest.raises(HeaderError, match="not an octal number"):
        parse_header(raw_member(b"a.jpg", fields={124: field}))


def test_a_wrong_checksum_is_refused_with_both_numbers() -> None:
    damaged = b"X" + block(size=1)[1:]
    with pytest.raises(HeaderError, match=r"header checksum is \d+, the header says \d+"):
        parse_header(damaged)


def test_a_checksum_of_signed_characters_is_taken() -> None:
    header = bytearray(raw_member("é.jpg".encode())[:512])
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % (sum(header) - 256 * sum(byte > 127 for byte in header))
    assert parse_header(bytes(header)).name == "é.jpg".encode()


@pytest.mark.parametrize("num_bytes", [0, 1, 156, 511])
def test_fewer_bytes_than_a_block_are_no_header(num_bytes: int) -> None:
    with pytest.raises(HeaderError, match="too few"):
        parse_header(block()[:num_bytes])


def test_a_block_of_zeros_is_no_header() -> None:
    with pytest.raises(HeaderError):
        parse_header(bytes(512))


def test_zeros_behind_the_pax_records_are_padding() -> None:
    content = b"12 path=abc\n" + b"10 size=7\n" + bytes(20)
    assert parse_pax_records(content) == {"path": b"abc", "size": b"7"}


def test_a_pax_value_may_hold_newlines_and_equals_signs() -> None:
    assert parse_pax_records(b"13 path=a\n=b\n") == {"path": b"a\n=b"}


@pytest.mark.parametrize(
    "content",
    [
        b"0 path=a\n",
        b"99 path=a\n",
        b"8 path=a\n",
        b"\0 path=a\n",
        b"9 path=a\n\0009 path=b\n",
        b"path=a\n",
        b"x path=a\n",
        b"-9 path=a\n",
        b"5 a\n\n",
        b"4 =",
    ],
)
def test_a_pax_record_of_a_wrong_length_is_refused(content: bytes) -> None:
    with pytest.raises(HeaderError, match="wrong length"):
        parse_pax_records(content)


def test_the_size_of_a_pax_header_wins() -> None:
    assert parse_pax_size({"size": b"9000000000"}, default=1) == 9_000_000_000
    assert parse_pax_size({}, default=1) == 1


@pytest.mark.parametrize("digits", [b"", b"-1", b"1.5", b"0x10", b"9" * 5000])
def test_a_pax_size_that_is_no_number_of_bytes_is_refused(digits: bytes) -> None:
    with pytest.raises(HeaderError, match="no number of bytes"):
        parse_pax_size({"size": digits}, default=1)


@pytest.mark.parametrize("num_bytes", [0, 1, 110_000, 8**11 - 1])
@pytest.mark.parametrize("name", ["a.jpg", "é.jpg", "n" * 99])
def test_the_short_way_reads_our_headers(name: str, num_bytes: int) -> None:
    assert parse_plain(build_headers(name, num_bytes=num_bytes)) == (name, num_bytes)


@pytest.mark.parametrize("name", ["n" * 100, "d" * 90 + "/" + "n" * 50])
def test_the_short_way_leaves_long_names_to_the_long_one(name: str) -> None:
    assert parse_plain(build_headers(name, num_bytes=3)) is None


@given(st.lists(st.tuples(st.integers(0, 511), st.sampled_from(b"\0 01789_-a\x80\xff")), max_size=4), st.booleans())
def test_the_short_way_and_the_long_one_say_the_same(changes: list[tuple[int, int]], fits: bool) -> None:
    """Of a header with any bytes changed, with its checksum corrected or not."""
    changed = bytearray(build_headers("folder/name.jpg", num_bytes=110_123))
    for place, value in changes:
        changed[place] = value
    if fits:
        changed[148:156] = b" " * 8
        changed[148:156] = b"%06o\0 " % sum(changed)
    agree(bytes(changed))


@pytest.mark.parametrize("value", [0, 32, 48, 56, 255])
def test_no_byte_of_a_header_differs_unseen_by_the_short_way(value: int) -> None:
    original = build_headers("folder/name.jpg", num_bytes=110_123)
    for place in range(len(original)):
        changed = original[:place] + bytes([value]) + original[place + 1 :]
        assert changed == original or parse_plain(changed) is None


def agree(header_block: bytes) -> None:
    """Require the short way to say nothing, or what the long one says."""
    plain = parse_plain(header_block)
    if plain is not None:
        header = parse_header(header_block)
        assert (header.kind, header.linkname, header.more_map) == (b"0", b"", False)
        assert (header.name.decode("utf-8", "surrogateescape"), header.size) == plain


def test_a_checksum_that_is_off_by_what_the_sum_of_the_bytes_wraps_at_is_wrong() -> None:
    # The short way looks at 16 bits of a sum, the checksum has 18.
    block = bytearray(build_headers("a.jpg", num_bytes=3))
    block[148:154] = b"%06o" % (int(block[148:154], 8) + (1 << 16))
    assert parse_plain(bytes(block)) is None


@pytest.mark.parametrize("count", range(0, 512, 51))
def test_the_short_way_leaves_short_blocks_to_the_long_one(count: int) -> None:
    assert parse_plain(build_headers("a.jpg", num_bytes=3)[:count]) is None
