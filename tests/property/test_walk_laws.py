"""What holds for the walk and the scan of any bytes at all."""

from __future__ import annotations

import functools
import io
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shardkit import ShardReadError, ShardWriter
from shardkit.check.rules import check_scan
from shardkit.check.scan import ScanOptions, ShardScan, scan_shard
from shardkit.tar.byte_source import MemorySource, stream_source
from shardkit.tar.header import BLOCK_BYTES, HeaderError, parse_header
from shardkit.tar.walk import Member, ShardWalk
from tests.helpers.shards import END_MARKER, layout, raw_member, sample_members, tar_bytes

FEW = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
CHECKSUM = slice(148, 156)


@functools.cache
def written() -> tuple[bytes, list[tuple[str, int]]]:
    """Return a shard of our writer, and (key, end of its last member's content) of each sample."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.tar")
        with ShardWriter(path) as writer:
            for number in range(6):
                key = f"{'k' * 150 if number == 3 else ''}{number:06d}"
                writer.write_sample(key, [("jpg", bytes([number]) * 700), ("cls", b"%d" % number)])
        data = path.read_bytes()
    ends: dict[str, int] = {}
    for place in layout(data):
        ends[place.name.partition(".")[0]] = place.content + place.size
    return data, list(ends.items())


def scan_bytes(data: bytes) -> ShardScan:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.tar")
        path.write_bytes(data)
        return scan_shard(str(path), options=ScanOptions(decode=False))


def with_checksum(block: bytes) -> bytes:
    fields = bytearray(block)
    fields[CHECKSUM] = b" " * 8
    fields[CHECKSUM] = b"%06o\0 " % sum(fields)
    return bytes(fields)


# Headers whose checksum is right, since chance never makes one: any bytes in any field.
HEADERS = st.builds(
    lambda name, edits: with_checksum(_edited(raw_member(name), edits)),
    st.binary(min_size=1, max_size=100).filter(lambda name: name[0] != 0),
    st.lists(st.tuples(st.integers(100, BLOCK_BYTES - 1), st.integers(0, 255)), max_size=6),
)
PIECES = st.lists(HEADERS | st.binary(max_size=700) | st.sampled_from([bytes(512), END_MARKER]), max_size=12)


def _edited(block: bytes, edits: list[tuple[int, int]]) -> bytes:
    fields = bytearray(block)
    for position, value in edits:
        fields[position] = value
    return bytes(fields)


class TestHeader:
    """A header is read, or refused with HeaderError. Its checksum is the plain sum, whatever way it is added up."""

    @given(st.binary(min_size=BLOCK_BYTES, max_size=BLOCK_BYTES) | HEADERS)
    @example(bytes(BLOCK_BYTES))
    @example(b"\xff" * BLOCK_BYTES)
    def test_any_block_is_a_header_or_none(self, block: bytes) -> None:
        try:
            header = parse_header(block)
        except HeaderError:
            return
        assert header.size >= 0
        stored = int(block[CHECKSUM].partition(b"\0")[0].strip() or b"0", 8) if block[148] < 0x80 else None
        unsigned = sum(block[:148]) + 256 + sum(block[156:])
        signed = unsigned - 256 * sum(byte > 127 for byte in block[:148] + block[156:])
        assert stored in (None, unsigned, signed)

    @given(HEADERS, st.integers(0, BLOCK_BYTES - 1), st.integers(1, 255))
    def test_one_changed_byte_outside_of_the_checksum_is_never_passed(
        self, block: bytes, position: int, by: int
    ) -> None:
        changed = bytearray(block)
        changed[position] = (changed[position] + by) % 256
        if CHECKSUM.start <= position < CHECKSUM.stop:
            return
        try:
            parse_header(bytes(changed))
        except HeaderError:
            return
        # Only the sum over signed bytes can agree then.
        difference = changed[position] - block[position]
        assert changed[position] > 127 or block[position] > 127
        assert difference % 256 != 0


class TestWalk:
    """Any bytes: the walk ends, members ascend and lie within, and nothing but ShardReadError is raised."""

    @FEW
    @given(PIECES.map(b"".join), st.booleans(), st.booleans())
    def test_members_ascend_and_lie_within_the_bytes(self, data: bytes, streamed: bool, goes_on: bool) -> None:
        source = stream_source(io.BytesIO(data)) if streamed else MemorySource(data)
        damage: list[ShardReadError] = []
        walk = ShardWalk(source, shard="x", want=_always, on_damage=damage.append if goes_on else None)
        end = 0
        try:
            for member, content in walk:
                assert end <= member.header_offset < member.offset
                end = member.offset + member.size
                assert content == data[member.offset : end]
                assert end <= len(data)
        except ShardReadError as error:
            damage.append(error)
        assert source.gunzip is not None or walk.ending is not None or damage

    @FEW
    @given(PIECES.map(b"".join))
    def test_what_a_stream_gives_is_what_memory_gives_until_the_first_damage(self, data: bytes) -> None:
        found = []
        for source in (MemorySource(data), stream_source(io.BytesIO(data))):
            members: list[tuple[Member, bytes | None]] = []
            try:
                members.extend(ShardWalk(source, shard="x", want=_always))
                found.append((members, ""))
            except ShardReadError as error:
                found.append((members, error.rule))
        assert data.startswith(b"\x1f\x8b") or found[0] == found[1]


class TestScan:
    """Any bytes: the scan ends and the rules judge it. A cut takes what lies behind it, and nothing else."""

    @FEW
    @given(PIECES.map(b"".join))
    def test_any_bytes_are_scanned_and_judged(self, data: bytes) -> None:
        scan = scan_bytes(data)
        for finding in check_scan(scan):
            assert finding.message.isprintable()
            assert finding.offset is None or 0 <= finding.offset <= len(data)
        for sample in scan.samples.values():
            assert all(part.header_offset + BLOCK_BYTES + part.size <= len(data) for part in sample.parts)

    @given(st.integers(0, len(written()[0])))
    def test_behind_any_cut_all_samples_before_it_are_found(self, length: int) -> None:
        data, ends = written()
        scan = scan_bytes(data[:length])
        whole = [key for key, end in ends if end <= length]
        assert list(scan.samples)[: len(whole)] == whole
        assert all(len(scan.samples[key].parts) == 2 for key in whole)  # type: ignore[index]  # a plain str will do
        assert len(scan.samples) <= len(whole) + 1

    @given(st.data())
    def test_one_damaged_header_costs_its_member_and_no_other(self, data: st.DataObject) -> None:
        shard = tar_bytes(sample_members(5))
        places = layout(shard)
        number = data.draw(st.integers(1, len(places) - 1))
        position = places[number].header + data.draw(st.integers(0, 99))
        damaged = bytearray(shard)
        damaged[position] ^= 1
        scan = scan_bytes(bytes(damaged))
        names = [part.name for sample in scan.samples.values() for part in sample.parts]
        assert names == [place.name for place in places[:number] + places[number + 1 :]]
        assert dict(scan.damage_counts) == {"WDS003": 1}

    @given(st.integers(1, 9), st.integers(2**33, 2**90))
    def test_one_wrong_size_costs_its_member_and_no_other(self, number: int, size: int) -> None:
        shard = tar_bytes(sample_members(5))
        places = layout(shard)
        place = places[number]
        block = bytearray(shard[place.header : place.content])
        block[124:136] = (1 << 95 | size).to_bytes(12, "big")
        scan = scan_bytes(shard[: place.header] + with_checksum(bytes(block)) + shard[place.content :])
        names = [part.name for sample in scan.samples.values() for part in sample.parts]
        assert names == [place.name for place in places[:number] + places[number + 1 :]] or number == len(places) - 1
        assert sum(scan.damage_counts.values()) == 1


def _always(_: Member) -> bool:
    return True
