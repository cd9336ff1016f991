"""Walk the members of one tar, from bytes to whole members, and say how the tar ends.

Owns tar's structure beyond a single header: extended headers, contents, end marker, what lies behind it. Hands out a
member only when all of its content is there. Spec: POSIX.1-2017, pax, "ustar Interchange Format".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from shardkit.errors import ShardReadError, counted
from shardkit.tar.byte_source import ByteSource
from shardkit.tar.disguise import describe_foreign
from shardkit.tar.header import (
    BLOCK_BYTES,
    GNU_SPARSE,
    Header,
    HeaderError,
    padded,
    parse_header,
    parse_pax_records,
    parse_pax_size,
    parse_plain,
)

__all__ = ["Ending", "Member", "MemberKind", "ShardWalk"]

MemberKind = Literal["file", "hard link", "symbolic link", "device", "folder", "fifo", "sparse file", "unknown"]

_KINDS: dict[bytes, MemberKind] = {
    b"0": "file", b"\0": "file", b"7": "file", b"1": "hard link", b"2": "symbolic link",
    b"3": "device", b"4": "device", b"5": "folder", b"6": "fifo", GNU_SPARSE: "sparse file",
}  # fmt: skip
_ZERO_BLOCK = bytes(BLOCK_BYTES)
_BLOCK_REST = BLOCK_BYTES - 1
# 64 KiB: what is passed over is read in such pieces.
_PIECE_BYTES = 1 << 16
_ZEROS = bytes(_PIECE_BYTES)
_SMALL_BYTES = 4096
_CHECKSUM_BYTES = frozenset(b"01234567 \0")
_EXTENSIONS = frozenset((b"L", b"K", b"x", b"g"))
_NO_RECORDS: dict[str, bytes] = {}
# Real ones come as two or three; a million of them would be read before the first name.
_MAX_EXTENSIONS = 1000
_WITHOUT_CONTENT = frozenset(("hard link", "symbolic link", "device", "folder", "fifo"))
# A name or pax header beyond this is an attack, not a name.
_MAX_EXTENSION_BYTES = 1 << 20
# 256 MiB: `dd` and tape drives pad up to a few. A device or a pipe may go on for ever; a file ends by itself.
_MAX_TAIL_BYTES = 1 << 28
_REPACK = "Fetch or pack the shard again"


class Member(NamedTuple):
    """One file of a shard. Offsets and sizes are in bytes; ``header_offset`` is its first header block."""

    name: str
    kind: MemberKind
    header_offset: int
    offset: int
    size: int
    linkname: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a tar ends.

    ``zero_blocks`` of the end marker (2 as the standard has it); ``trailing_bytes`` behind it that are not zeros, the
    first of them at ``trailing_offset``; ``next_archive``: a further tar begins there.
    """

    zero_blocks: int
    trailing_bytes: int = 0
    trailing_offset: int = 0
    next_archive: bool = False


class ShardWalk:
    """The members of a tar in order, each with its content where wanted. Iterate once; then see ``ending``.

    Raises: ShardReadError: the first damage; with ``on_damage``, tells that and goes on at the next whole header.
    """

    def __init__(
        self,
        source: ByteSource,
        *,
        shard: str,
        want: Callable[[Member], bool],
        on_damage: Callable[[ShardReadError], None] | None = None,
    ) -> None:
        self._source = source
        self._shard = shard
        self._want = want
        self._on_damage = on_damage
        self._start = source.position
        self.ending: Ending | None = None

    def __iter__(self) -> Iterator[tuple[Member, bytes | None]]:
        source, want = self._source, self._want
        take, skip, holds = source.take, source.skip, source.holds
        found: tuple[Member, bytes | None] | None
        while True:
            try:
                header_offset = source.position
                block = take(BLOCK_BYTES)
                if (plain := parse_plain(block)) is None:
                    if (found := self._other_member(block, header_offset)) is None:
                        return
                else:
                    # Nearly every member is such a one. tuple.__new__ is what Member() calls, at half the time.
                    name, size = plain
                    member = tuple.__new__(Member, (name, "file", header_offset, source.position, size, ""))
                    if (wanted := want(member)) and size <= _SMALL_BYTES and holds(size):
                        # One call, where two would take longer than the copy.
                        found = member, take((size + _BLOCK_REST) & -BLOCK_BYTES)[:size]
                        if len(found[1]) < size:
                            raise self._cut(member)
                    elif wanted or not holds(size):
                        found = member, self._content(member, wanted=wanted)
                    elif skip((size + _BLOCK_REST) & -BLOCK_BYTES) < size:
                        raise self._cut(member)
                    else:
                        found = member, None
            except ShardReadError as error:
                if not self._goes_on(error):
                    return
                continue
            yield found

    def _goes_on(self, error: ShardReadError) -> bool:
        """Tell of damage and go on to the next whole header behind it; False where there is none."""
        if self._on_damage is None:
            raise error
        self._on_damage(error)
        if error.rule != "WDS003":
            return False
        try:
            if self._seek_header():
                return True
        except ShardReadError as endless:
            self._on_damage(endless)
            return False
        if self._source.broken is not None:
            self._on_damage(self._error(self._source.broken, "WDS002", offset=None))
        return False

    def _other_member(self, block: bytes, header_offset: int) -> tuple[Member, bytes | None] | None:
        """Return the next whole member, of any kind, from its first block; None at the end of the archive."""
        header = self._header(block)
        if header is None:
            return None
        name, link, pax = header.name, header.linkname, _NO_RECORDS
        if header.kind in _EXTENSIONS:
            extended = self._extended(header)
            if extended is None:
                return None
            header, name, link, pax = extended
        member = self._member(header, pax, header_offset=header_offset, name=name, link=link)
        return member, self._content(member, wanted=self._want(member))

    def _extended(self, header: Header | None) -> tuple[Header, bytes, bytes, dict[str, bytes]] | None:
        """Read extended headers and the header they belong to: (that header, name, link target, pax records)."""
        long_name: bytes | None = None
        long_link: bytes | None = None
        pax = _NO_RECORDS
        num_headers = 0
        while header is not None and header.kind in _EXTENSIONS:
            num_headers += 1
            if num_headers > _MAX_EXTENSIONS:
                reason = f"more than {_MAX_EXTENSIONS} extended headers in front of one member"
                raise self._error(reason, "WDS003", offset=self._source.position - BLOCK_BYTES)
            if header.kind == b"L":
                long_name = self._extension(header).partition(b"\0")[0]
            elif header.kind == b"K":
                long_link = self._extension(header).partition(b"\0")[0]
            elif header.kind == b"x":
                pax = self._pax(header)
            else:
                self._pax(header)
            header = self._header(self._source.take(BLOCK_BYTES))
        if header is None:
            return None
        name = long_name if long_name is not None else pax.get("path", header.name)
        link = long_link if long_link is not None else pax.get("linkpath", header.linkname)
        return header, name, link, pax

    def _header(self, block: bytes) -> Header | None:
        """Return the header in the block that was taken, None (and ``ending`` set) at the end of the archive."""
        offset = self._source.position - len(block)
        if len(block) < BLOCK_BYTES:
            self._end_without_marker(block, offset)
            return None
        if block == _ZERO_BLOCK:
            ending = self._read_ending()
            if self._source.broken is not None:
                # All members were there, but their bytes cannot be trusted: gzip's checksum comes last.
                raise self._error(f"{self._source.broken} behind the last member", "WDS002", offset=None)
            self.ending = ending
            return None
        try:
            return parse_header(block)
        except HeaderError as error:
            if offset == self._start and block[257:262] != b"ustar":
                raise self._not_a_tar(block, error) from error
            raise self._error(str(error), "WDS003", offset=offset) from error

    def _member(self, header: Header, pax: dict[str, bytes], *, header_offset: int, name: bytes, link: bytes) -> Member:
        """Put the member together; the source stands at its content afterwards."""
        kind = _KINDS.get(header.kind, "unknown")
        if pax and any(keyword.startswith("GNU.sparse.") for keyword in pax):
            kind = "sparse file"
        more_map = header.more_map
        while more_map:
            block = self._source.take(BLOCK_BYTES)
            more_map = len(block) == BLOCK_BYTES and block[504] != 0
        size = header.size
        if pax:
            try:
                size = parse_pax_size(pax, default=size)
            except HeaderError as error:
                raise self._error(str(error), "WDS003", offset=header_offset) from error
        if kind in _WITHOUT_CONTENT:
            size = 0
        target = link.decode("utf-8", "surrogateescape") if link else ""
        text = name.decode("utf-8", "surrogateescape")
        return Member(text, kind, header_offset, self._source.position, size, target)

    def _content(self, member: Member, *, wanted: bool) -> bytes | None:
        """Read or pass over a member's content; return it where wanted, once all of it was there."""
        source, size = self._source, member.size
        there = source.holds(size)
        if wanted and there:
            if size <= _SMALL_BYTES:
                # One call, where two would take longer than the copy.
                content = source.take((size + _BLOCK_REST) & -BLOCK_BYTES)[:size]
            else:
                content = source.take(size)
                source.skip(-size % BLOCK_BYTES)
            length = len(content)
            if length == size:
                return content
        elif there or self._on_damage is None:
            length = source.skip((size + _BLOCK_REST) & -BLOCK_BYTES)
            if length >= size:
                return None
        else:
            length = self._seek_behind(member)
        raise self._cut(member)

    def _cut(self, member: Member) -> ShardReadError:
        """Return the error of a member whose content ends where the source stands."""
        reason = (
            f"cut at byte {self._source.position}: the member needs {counted(member.size, 'byte')} from "
            f"byte {member.offset}"
        )
        return self._error(self._broken(reason), "WDS002", offset=member.header_offset, member=member.name)

    def _seek_behind(self, member: Member) -> int:
        """Look for a header behind one whose content goes beyond the end: then its size is wrong, and nothing was cut.

        Raises: ShardReadError: there is one, where the walk goes on (WDS003).
        """
        if self._seek_header():
            reason = (
                f"the size field says {counted(member.size, 'byte')}, which is beyond the end of the file, yet "
                "the next header is "
                f"at byte {self._source.position}"
            )
            raise self._error(reason, "WDS003", offset=member.header_offset, member=member.name)
        return self._source.position - member.offset

    def _extension(self, header: Header) -> bytes:
        if header.size > _MAX_EXTENSION_BYTES:
            reason = f"an extended header of {counted(header.size, 'byte')}; at most {_MAX_EXTENSION_BYTES} are read"
            raise self._error(reason, "WDS003", offset=self._source.position - BLOCK_BYTES)
        offset = self._source.position
        content = self._source.take(header.size)
        if len(content) < header.size:
            raise self._error(self._broken(f"cut at byte {self._source.position}"), "WDS002", offset=offset)
        self._source.skip(padded(header.size) - header.size)
        return content

    def _pax(self, header: Header) -> dict[str, bytes]:
        offset = self._source.position
        try:
            return parse_pax_records(self._extension(header))
        except HeaderError as error:
            raise self._error(str(error), "WDS003", offset=offset) from error

    def _end_without_marker(self, block: bytes, offset: int) -> None:
        if offset == self._start and not block and self._source.broken is None:
            raise self._error("empty file (0 bytes)", "WDS008", offset=None)
        if offset == self._start and self._source.broken is None:
            raise self._not_a_tar(block, HeaderError(f"{len(block)} bytes are too few for a header"))
        if block or self._source.broken is not None:
            raise self._error(self._broken(f"cut at byte {self._source.position}"), "WDS002", offset=offset)
        self.ending = Ending(zero_blocks=0)

    def _read_ending(self) -> Ending:
        """Read what is behind the first zero block, down to the last byte."""
        first = self._source.position
        second = self._source.take(BLOCK_BYTES)
        zero_blocks = 2 if second == _ZERO_BLOCK else 1
        if zero_blocks == 1 and second:
            self._source.put_back(second)
        block = self._skip_zeros(first)
        if not block:
            return Ending(zero_blocks=zero_blocks)
        offset = self._source.position - len(block)
        try:
            parse_header(block)
        except HeaderError:
            lead = len(block) - len(block.lstrip(b"\0"))
            trailing = len(block) - lead
            while skipped := self._source.skip(_PIECE_BYTES):
                trailing += skipped
                self._require_end(first, "the end marker")
            return Ending(zero_blocks=zero_blocks, trailing_bytes=trailing, trailing_offset=offset + lead)
        self._source.put_back(block)
        return Ending(zero_blocks=zero_blocks, trailing_offset=offset, next_archive=True)

    def _skip_zeros(self, behind: int) -> bytes:
        """Pass over zeros and take the first block that holds anything else; none at the end."""
        while piece := self._source.take(_PIECE_BYTES):
            if piece != _ZEROS[: len(piece)]:
                first = (len(piece) - len(piece.lstrip(b"\0"))) // BLOCK_BYTES * BLOCK_BYTES
                self._source.put_back(piece[first:])
                return self._source.take(BLOCK_BYTES)
            self._require_end(behind, "the end marker")
        return b""

    def _seek_header(self) -> bool:
        """Go on to the next block that is a whole header; False where there is none."""
        behind = self._source.position
        while piece := self._source.take(_PIECE_BYTES):
            for offset in range(0, len(piece) - BLOCK_BYTES + 1, BLOCK_BYTES):
                # Nearly all other blocks are told by two bytes: a name begins with any but NUL, and the middle of a
                # checksum is a digit, or what fills it up.
                if piece[offset] and piece[offset + 151] in _CHECKSUM_BYTES and self._is_header(piece, offset):
                    self._source.put_back(piece[offset:])
                    return True
            self._require_end(behind, "a damaged header")
        return False

    def _require_end(self, first: int, behind: str) -> None:
        """Read no further than 256 MiB beyond a place where nothing more may come, unless the length is known.

        Raises: ShardReadError: so much came (WDS017).
        """
        if self._source.num_bytes is None and self._source.position - first > _MAX_TAIL_BYTES:
            reason = f"more than {_MAX_TAIL_BYTES >> 20} MiB behind {behind} at byte {first}: reading stopped there"
            raise self._error(reason, "WDS017", offset=None, remedy="Name a file, or a stream that ends")

    @staticmethod
    def _is_header(piece: bytes, offset: int) -> bool:
        try:
            parse_header(piece[offset : offset + BLOCK_BYTES])
        except HeaderError:
            return False
        return True

    def _not_a_tar(self, block: bytes, cause: HeaderError) -> ShardReadError:
        head = block + self._source.take((1 << 16) - len(block))
        reason, remedy = describe_foreign(head, str(cause))
        return self._error(reason, "WDS001", offset=self._start, remedy=remedy)

    def _broken(self, reason: str) -> str:
        return reason if self._source.broken is None else f"{self._source.broken}, {reason}"

    def _error(
        self, reason: str, rule: str, *, offset: int | None, member: str | None = None, remedy: str = _REPACK
    ) -> ShardReadError:
        gunzip = self._source.gunzip
        if rule == "WDS002" and gunzip is not None and gunzip.over_limit:
            # Nothing is cut: it was read no further.
            reason, rule, remedy = gunzip.excess, "WDS014", "See who made the file"
        return ShardReadError(self._shard, reason, rule=rule, member=member, offset=offset, remedy=remedy)
