"""One 512-byte tar header -> its fields, and back. Pure: no I/O.

Reads ustar, pax, GNU and old (v7) headers; writes ustar, with a pax record before a name that ustar cannot hold.
Spec: POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar manual, "Basic Tar Format".
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple
from zlib import adler32

__all__ = [
    "BLOCK_BYTES",
    "GNU_SPARSE",
    "Header",
    "HeaderError",
    "begins_archive",
    "build_headers",
    "padded",
    "parse_header",
    "parse_pax_records",
    "parse_pax_size",
    "parse_plain",
]

BLOCK_BYTES = 512
_NAME_BYTES = 100
_PREFIX_BYTES = 155
_REGULAR = b"0"
# Enough for any file, and few enough for int(), which refuses thousands.
_MAX_DIGITS = 20
GNU_SPARSE = b"S"
# The bytes of a header that a machine with signed characters counted as negative.
_LOW_BYTES = bytes(range(128))
# Name; size, and what ends it; checksum; what ends it, the kind and the link's target; all from the prefix on.
_unpack_plain = Struct("100s24x11ss12x6s103s88x167s").unpack
_FILE_WITHOUT_LINK = b"\0 0" + bytes(100)
_NO_PREFIX = bytes(167)


class HeaderError(ValueError):
    """A block that is no tar header; the message says why."""


class Header(NamedTuple):
    """The fields of a header that matter here. Names are raw bytes, ``kind`` is the type flag, ``size`` is in bytes.

    ``more_map``: blocks that go on with the map of a GNU sparse file follow the header.
    """

    name: bytes
    size: int
    kind: bytes
    linkname: bytes
    more_map: bool = False


def padded(num_bytes: int) -> int:
    """Return the number of bytes that content of this length takes up in a tar: the next multiple of 512."""
    return -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES


def parse_header(block: bytes) -> Header:
    """Return the fields of a header block of 512 bytes.

    Raises: HeaderError: fewer bytes, a wrong checksum, or a number that is none or is negative.
    """
    if len(block) != BLOCK_BYTES:
        raise HeaderError(f"{len(block)} bytes are too few for a header")
    # 256 bytes never reach Adler-32's modulus 65521, so its low half is 1 + their sum: seven times as fast as sum().
    total = (adler32(block[:256]) & 0xFFFF) + (adler32(block[256:]) & 0xFFFF) - (adler32(block[148:156]) & 0xFFFF)
    stored = _number(block[148:156])
    if stored != total + 255 and stored != _signed_sum(block):
        raise HeaderError(f"header checksum is {total + 255}, the header says {stored}")
    size = _number(block[124:136])
    if size < 0:
        raise HeaderError(f"negative size {size}")
    name = block[:100].partition(b"\0")[0]
    kind = block[156:157]
    # GNU headers ("ustar  ") keep times where POSIX keeps the prefix.
    if block[345] and block[257:263] == b"ustar\0":
        name = block[345:500].partition(b"\0")[0] + b"/" + name
    if kind == b"\0" and name.endswith(b"/"):
        kind = b"5"
    linkname = block[157:257].partition(b"\0")[0] if block[157] else b""
    # tuple.__new__ is what Header() calls, at half the time.
    return tuple.__new__(Header, (name, size, kind, linkname, kind == GNU_SPARSE and block[482] != 0))


def begins_archive(head: bytes) -> bool:
    """Tell whether the bytes begin like a tar (with a header, or its end marker), or like gzip."""
    if head.startswith(b"\x1f\x8b"):
        return True
    if len(head) < BLOCK_BYTES:
        return False
    try:
        parse_header(head[:BLOCK_BYTES])
    except HeaderError:
        return not head[:BLOCK_BYTES].strip(b"\0")
    return True


def parse_plain(block: bytes) -> tuple[str, int] | None:
    """Return (name, size) of a regular file's header as nearly all are written, at a third of the time.

    None says nothing of the block: :func:`parse_header` does. Where this returns a pair, that returns the same.
    """
    if len(block) != BLOCK_BYTES:
        return None
    name, size, size_end, stored, rest, prefix = _unpack_plain(block)
    # A name of 100 bytes, links, prefixes, other kinds, and numbers written otherwise go the long way.
    if rest != _FILE_WITHOUT_LINK or prefix != _NO_PREFIX or size_end != b"\0":
        return None
    # 245 bytes that are no zeros never reach Adler-32's modulus 65521, so its low half is 1 + their sum.
    if not size.isdigit() or adler32(block) & 0xFFFF != _sum_with_digits(stored):
        return None
    text, end, _ = name.partition(b"\0")
    try:
        return (text.decode(), int(size, 8)) if end else None
    except ValueError:  # a name that is no UTF-8, a size with an 8 or a 9
        return None


@functools.lru_cache(maxsize=4096)  # a sum is one of few thousand, and looking it up takes a fifth of the time
def _sum_with_digits(stored: bytes) -> int:
    """Return what Adler-32 makes of a block whose checksum is this one, and stands in it; -1 where it is no number.

    A NUL and a space stand behind the six digits, for which the checksum counts eight spaces.
    """
    if not stored.isdigit() or stored.strip(b"01234567"):
        return -1
    return int(stored, 8) - 7 * 32 + (adler32(stored) & 0xFFFF)


def parse_pax_records(content: bytes) -> dict[str, bytes]:
    """Return the ``length keyword=value`` records of a pax extended header.

    Raises: HeaderError: a record whose length field is wrong.
    """
    records: dict[str, bytes] = {}
    content = content.rstrip(b"\0")
    position = 0
    while position < len(content):
        digits, space, _ = content[position : position + _MAX_DIGITS].partition(b" ")
        end = position + int(digits) if digits.isdigit() else 0
        keyword, equals, value = content[position + len(digits) + 1 : end - 1].partition(b"=")
        if not space or not equals or end > len(content) or content[end - 1 : end] != b"\n":
            raise HeaderError("pax record with a wrong length")
        records[keyword.decode("utf-8", "replace")] = value
        position = end
    return records


def parse_pax_size(records: Mapping[str, bytes], *, default: int) -> int:
    """Return the member's size as a pax header has it, else the default. Raises: HeaderError: no whole number."""
    digits = records.get("size", b"")
    if "size" not in records:
        return default
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise HeaderError(f"pax size {digits[:_MAX_DIGITS]!r} is no number of bytes")
    return int(digits)


def build_headers(name: str, *, num_bytes: int) -> bytes:
    """Return the header block(s) of a regular file: mode 0644, owner 0, time 0, so that equal input gives equal bytes.

    One ustar block, or three with a pax record where the name does not fit into ustar.
    Raises: HeaderError: a name that no tar can store (empty, or with a NUL), or content of 8 GiB and more.
    """
    raw = name.encode("utf-8", "surrogateescape")
    if not raw or b"\0" in raw:
        raise HeaderError(f"{name!r} cannot be a member name")
    if num_bytes >= 8**11:
        raise HeaderError(f"{num_bytes} bytes: members of 8 GiB and more are not written")
    fitting = _split_for_ustar(raw)
    if fitting is not None:
        return _block(fitting[0], prefix=fitting[1], num_bytes=num_bytes, kind=_REGULAR)
    record = _pax_record(b"path", raw)
    pax = _block(b"././@PaxHeader", prefix=b"", num_bytes=len(record), kind=b"x")
    record = record.ljust(padded(len(record)), b"\0")
    return pax + record + _block(raw[:100], prefix=b"", num_bytes=num_bytes, kind=_REGULAR)


def _split_for_ustar(raw: bytes) -> tuple[bytes, bytes] | None:
    """Return (name, prefix) as ustar holds them, or None where they do not fit."""
    if len(raw) <= _NAME_BYTES:
        return raw, b""
    for slash in range(len(raw) - 1, 0, -1):
        if raw[slash : slash + 1] == b"/" and slash <= _PREFIX_BYTES and 0 < len(raw) - slash - 1 <= _NAME_BYTES:
            return raw[slash + 1 :], raw[:slash]
    return None


def _pax_record(keyword: bytes, value: bytes) -> bytes:
    """Write one record; its length field counts its own digits too."""
    body = b" " + keyword + b"=" + value + b"\n"
    length = len(body) + 1
    while len(str(length)) + len(body) != length:
        length = len(str(length)) + len(body)
    return str(length).encode() + body


def _block(name: bytes, *, prefix: bytes, num_bytes: int, kind: bytes) -> bytes:
    fields = b"".join(
        (
            name.ljust(100, b"\0"),
            b"0000644\0",
            b"0000000\0" * 2,
            b"%011o\0" % num_bytes,
            b"00000000000\0",
            b" " * 8,
            kind.ljust(101, b"\0"),
            (b"ustar\0" + b"00").ljust(72, b"\0"),
            b"0000000\0" * 2,
            prefix.ljust(167, b"\0"),
        )
    )
    return fields[:148] + b"%06o\0 " % sum(fields) + fields[156:]


def _number(field: bytes) -> int:
    """Read an octal number, or a base-256 one where the first bit is set (GNU, for large files)."""
    digits = field.rstrip(b"\0 ")
    if not digits.isdigit():
        if field[0] & 0x80:
            value = int.from_bytes(field, "big", signed=False) & ((1 << (8 * len(field) - 1)) - 1)
            return value - (1 << (8 * len(field) - 1)) if field[0] & 0x40 else value
        digits = field.partition(b"\0")[0].strip()
        if not digits:
            return 0
        if digits.strip(b"01234567"):
            raise HeaderError(f"{digits!r} is not an octal number")
    try:
        return int(digits, 8)
    except ValueError:
        raise HeaderError(f"{digits!r} is not an octal number") from None


def _signed_sum(block: bytes) -> int:
    """Return the checksum as tars of signed-char machines computed it."""
    rest = block[:148] + block[156:]
    return sum(rest) + 256 - 256 * len(rest.translate(None, _LOW_BYTES))
