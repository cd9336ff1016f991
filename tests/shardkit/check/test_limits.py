"""No archive makes a check hang, crash, write outside, or use more memory than ``scan`` states."""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardkit import CheckOptions, ShardReadError, check_shards, iter_samples
from shardkit.check.scan import ScanOptions, ShardScan, scan_shard
from shardkit.keys import PICTURE_EXTENSIONS
from tests.helpers.http_server import serve
from tests.helpers.pictures import encode
from tests.helpers.shards import (
    END_MARKER,
    Content,
    jpeg_bytes,
    raw_member,
    rules_in,
    sample_members,
    tar_bytes,
    tar_entry,
    write_samples,
)

# Checks the shard in a process that gets no more address space than stated, and says what it took.
CHECK = """
import json, os, re, resource, sys
from shardkit import CheckOptions, check_shards
limit = int(sys.argv[2]) << 20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
begun_s = sum(os.times()[:4])
(report,) = check_shards([sys.argv[1]], CheckOptions(num_classes=10))
print(json.dumps({
    # Not ru_maxrss, which begins with what the parent had.
    "mib": int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) // 1024,
    # Of this process and its children: other work on the machine is not in it.
    "cpu_s": sum(os.times()[:4]) - begun_s,
    "samples": report.summary.samples,
    "findings": [(f.rule, f.message) for f in report.findings],
}))
"""


def checked(path: Path, *, limit_mib: int = 2000) -> dict[str, Any]:
    """Check a shard in a process with so much address space, from an empty folder, in which nothing may appear."""
    empty = path.parent / "empty"
    empty.mkdir(exist_ok=True)
    command = [sys.executable, "-c", CHECK, str(path), str(limit_mib)]
    done = subprocess.run(command, check=False, capture_output=True, timeout=120, cwd=empty, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not list(empty.iterdir())
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@functools.cache
def idle_mib() -> int:
    """Return the peak of a check of next to nothing: Python, numpy and Pillow."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.tar")
        path.write_bytes(tar_bytes(sample_members(1)))
        return int(checked(path)["mib"])


def rules(found: dict[str, Any]) -> list[str]:
    return sorted({rule for rule, _ in found["findings"]})


def write_repeated(path: Path, member: bytes, *, count: int) -> Path:
    with open(path, "wb") as file:
        for _ in range(count // 1000):
            file.write(member * 1000)
        file.write(END_MARKER)
    return path


def test_a_size_field_of_10_gib_is_not_believed(tmp_path: Path) -> None:
    head = raw_member(b"9.jpg", fields={124: (1 << 95 | 10 << 30).to_bytes(12, "big")})
    (tmp_path / "x.tar").write_bytes(tar_bytes(sample_members(2))[:5120] + head + bytes(5000))
    found = checked(tmp_path / "x.tar")
    assert (rules(found), found["samples"]) == (["WDS002"], 2)
    assert found["mib"] - idle_mib() < 20


def test_10_gib_of_content_that_are_there_are_passed_over(tmp_path: Path) -> None:
    """A sparse file: pictures, labels and others of 10 GiB."""
    with open(tmp_path / "x.tar", "wb") as file:
        for name in (b"a.jpg", b"a.cls", b"b.json"):
            file.write(raw_member(name, fields={124: (1 << 95 | 10 << 30).to_bytes(12, "big")}))
            file.seek(10 << 30, os.SEEK_CUR)
        file.write(END_MARKER)
    found = checked(tmp_path / "x.tar")
    assert rules(found) == ["WDS025", "WDS030", "WDS042"]
    assert found["mib"] - idle_mib() < 20
    assert found["cpu_s"] < 10


@pytest.mark.parametrize("kind", ["folders", "hidden", "beside", "links", "unsafe", "pickles", "foreign names"])
def test_fifty_thousand_members_of_no_sample_take_no_memory(tmp_path: Path, kind: str) -> None:
    """Their number is told, and the first of them."""
    entries: dict[str, Content] = {
        "folders": tar_entry("d/", kind=tarfile.DIRTYPE),
        "hidden": ("._a.jpg", b""),
        "beside": ("README", b""),
        "links": tar_entry("l", kind=tarfile.SYMTYPE, linkname="x"),
        "unsafe": ("../x", b""),
        "pickles": ("x.pkl", b""),
        "foreign names": ("caf\udce9", b""),
    }
    found = checked(write_repeated(tmp_path / "x.tar", tar_bytes([entries[kind]])[:512], count=50_000))
    assert found["mib"] - idle_mib() < 20
    assert len(found["findings"]) < 3000
    said = " ".join(message for _, message in found["findings"])
    assert kind == "folders" or "50000 " in said or "49000 more" in said


def test_damaged_headers_by_the_ten_thousand_are_counted_and_a_cut_behind_them_is_told(tmp_path: Path) -> None:
    good, bad = raw_member(b"README"), bytearray(raw_member(b"README"))
    bad[3] ^= 1
    path = write_repeated(tmp_path / "x.tar", good + bytes(bad), count=20_000)
    path.write_bytes(path.read_bytes()[:-1024] + raw_member(b"a.jpg", b"x" * 600)[:700])
    found = checked(path)
    assert rules(found) == ["WDS002", "WDS003", "WDS025"]
    assert "19000 more such places" in " ".join(message for _, message in found["findings"])
    assert found["mib"] - idle_mib() < 20


@pytest.mark.slow
def test_samples_take_less_than_stated(tmp_path: Path) -> None:
    """Members are the least that they can be, so that a file of a given size has most of them."""
    pair = [("%06d.jpg", b""), ("%06d.cls", b"1")]
    with open(tmp_path / "x.tar", "wb") as file:
        for number in range(20_000):
            file.write(b"".join(raw_member((name % number).encode(), content) for name, content in pair))
        file.write(END_MARKER)
    found = checked(tmp_path / "x.tar")
    assert (found["samples"], rules(found)) == (20_000, ["WDS043"])
    # Each of these has a finding too, of some 300 bytes.
    assert (found["mib"] - idle_mib()) * (1 << 20) / 40_000 < 700


def test_a_million_bytes_of_extended_headers_in_front_of_one_member_are_damage(tmp_path: Path) -> None:
    pax = raw_member(b"pax", b"13 comment=x\n", fields={156: b"x"})
    (tmp_path / "x.tar").write_bytes(pax * 2000 + tar_bytes(sample_members(1)))
    found = checked(tmp_path / "x.tar")
    assert rules(found) == ["WDS003"]
    assert "more than 1000 extended headers" in found["findings"][0][1]
    assert found["samples"] == 1


def test_a_pax_header_of_a_mebibyte_of_records_is_read_in_time(tmp_path: Path) -> None:
    records = b"".join(b"11 %05x=x\n" % n for n in range(90_000))
    (tmp_path / "x.tar").write_bytes(raw_member(b"pax", records, fields={156: b"x"}) + tar_bytes(sample_members(1)))
    found = checked(tmp_path / "x.tar")
    assert (rules(found), found["samples"]) == ([], 1)
    assert found["cpu_s"] < 10


def test_a_pax_header_of_1_gib_is_damage(tmp_path: Path) -> None:
    """Of a sparse file, in which so much is not even there."""
    with open(tmp_path / "x.tar", "wb") as file:
        file.write(raw_member(b"pax", fields={156: b"x", 124: (1 << 95 | 1 << 30).to_bytes(12, "big")}))
        file.seek(32 << 20, os.SEEK_CUR)
        file.write(tar_bytes(sample_members(1)))
    found = checked(tmp_path / "x.tar")
    assert (rules(found), found["samples"]) == (["WDS003"], 1)
    assert found["mib"] - idle_mib() < 20


def test_of_many_pictures_of_one_sample_few_are_held_at_a_time(tmp_path: Path) -> None:
    """A sparse file: a picture of 60 MiB under each extension that a picture may have, and a label as long."""
    with open(tmp_path / "x.tar", "wb") as file:
        for extension in (b"cls", *(name.encode() for name in reversed(PICTURE_EXTENSIONS))):
            file.write(raw_member(b"a." + extension, fields={124: (1 << 95 | 60 << 20).to_bytes(12, "big")}))
            file.seek(60 << 20, os.SEEK_CUR)
        file.write(END_MARKER)
    found = checked(tmp_path / "x.tar")
    assert (rules(found), found["samples"]) == (["WDS030", "WDS040", "WDS061"], 1)
    assert found["mib"] - idle_mib() < 140


class TestMembersBeyondMemory:
    """What is kept of members is counted, and where it would be too much, reading stops."""

    LITTLE = ScanOptions(max_kept_bytes=100_000)

    def scanned(self, path: Path, members: bytes) -> ShardScan:
        path.write_bytes(members + END_MARKER)
        return scan_shard(str(path), options=self.LITTLE)

    def test_samples_are_read_until_the_memory_is_full(self, tmp_path: Path) -> None:
        scan = self.scanned(tmp_path / "x.tar", b"".join(raw_member(b"%06d.cls" % n, b"1") for n in range(150)))
        assert [error.rule for error in scan.damage] == ["WDS016"]
        assert (len(scan.samples), scan.damage[0].offset) == (101, 100 * 1024)

    @pytest.mark.parametrize("name", [b"a.%d." + b"x" * 3000, b"._%d" + b"x" * 3000, b"%d" + b"x" * 3000])
    def test_long_names_fill_it_sooner(self, tmp_path: Path, name: bytes) -> None:
        members = b"".join(raw_member(b"long", name % n, fields={156: b"L"}) + raw_member(b"short") for n in range(100))
        scan = self.scanned(tmp_path / "x.tar", members)
        assert [error.rule for error in scan.damage] == ["WDS016"]
        assert scan.damage[0].offset is not None
        assert scan.damage[0].offset < 20 * 5120

    def test_three_million_members_fit(self) -> None:
        assert ScanOptions().max_kept_bytes // 1000 > 3_000_000

    def test_an_index_of_more_than_128_mib_is_not_read(self, tmp_path: Path) -> None:
        """JSON takes many times its size. A sparse file."""
        path = write_samples(tmp_path / "x.tar", 1)
        with open(tmp_path / "x.tar.index.json", "wb") as file:
            file.truncate(1 << 33)
        found = checked(path)
        assert "8589934592 bytes, at most 134217728 are read" in dict(found["findings"])["WDS051"]
        assert found["mib"] - idle_mib() < 20

    def test_a_manifest_of_more_than_256_mib_is_not_read(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path / "x.tar", 1)
        with open(tmp_path / "x.manifest.json", "wb") as file:
            file.truncate(1 << 33)
        found = checked(path)
        assert rules(found) == ["WDS053"]
        assert found["mib"] - idle_mib() < 20


def test_zeros_without_end_are_passed_over_fast(tmp_path: Path) -> None:
    """A sparse file: 1 GiB of zeros behind the end marker."""
    (tmp_path / "x.tar").write_bytes(tar_bytes(sample_members(1)))
    os.truncate(tmp_path / "x.tar", 1 << 30)
    found = checked(tmp_path / "x.tar")
    assert (rules(found), found["samples"]) == ([], 1)
    assert found["cpu_s"] < 30


def test_archives_by_the_thousand_in_one_file_are_counted(tmp_path: Path) -> None:
    archive = raw_member(b"a.cls", b"1") + END_MARKER
    (tmp_path / "x.tar").write_bytes(archive * 5000)
    found = checked(tmp_path / "x.tar")
    assert "3999 more archives follow" in [message for rule, message in found["findings"] if rule == "WDS007"][-1]
    assert found["mib"] - idle_mib() < 20


@functools.cache
def gzip_bomb() -> bytes:
    """Return a gzip tar with a sample and a member of 320 MiB of zeros, a thousandth of that."""
    head = tar_bytes(sample_members(1))[:2560]
    head += raw_member(b"9.jpg", fields={124: (1 << 95 | 320 << 20).to_bytes(12, "big")})
    return gzip.compress(head) + gzip.compress(bytes(1 << 24)) * 20 + gzip.compress(END_MARKER)


class TestGzip:
    def test_a_bomb_is_read_no_further_than_256_mib(self, tmp_path: Path) -> None:
        (tmp_path / "x.tar.gz").write_bytes(gzip_bomb())
        found = checked(tmp_path / "x.tar.gz")
        assert (rules(found), found["samples"]) == (["WDS012", "WDS014", "WDS015"], 1)
        message = dict(found["findings"])["WDS014"]
        assert "times as many: reading stopped there" in message
        assert found["mib"] - idle_mib() < 20
        assert found["cpu_s"] < 30

    @pytest.mark.parametrize("way", ["standard input", "http", "pipe:"])
    def test_a_bomb_in_a_stream_is_read_no_further(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
    ) -> None:
        (tmp_path / "x.tar.gz").write_bytes(gzip_bomb())
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip_bomb())))
        with serve(tmp_path) as server:
            places = {"standard input": "-", "http": f"{server.url}/x.tar.gz", "pipe:": f"pipe:cat {tmp_path}/x.tar.gz"}
            (report,) = check_shards([places[way]], CheckOptions(allow_commands=True))
        assert (report.summary.samples, rules_in(report)) == (1, ["WDS012", "WDS014", "WDS015"])

    def test_the_limit_of_a_stream_can_be_raised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip_bomb())))
        (report,) = check_shards(["-"], CheckOptions(max_unpack_ratio=2000))
        assert (report.summary.samples, rules_in(report)) == (2, ["WDS012", "WDS015", "WDS022", "WDS042"])

    def test_damage_in_front_of_the_limit_is_told_too(self, tmp_path: Path) -> None:
        broken = bytearray(raw_member(b"1.jpg", b"x"))
        broken[3] ^= 1
        bomb = gzip.compress(tar_bytes(sample_members(1))[:2560] + broken + raw_member(b"2.jpg", b"x")) + gzip_bomb()
        (tmp_path / "x.tar.gz").write_bytes(bomb)
        found = checked(tmp_path / "x.tar.gz")
        assert {"WDS003", "WDS014"} <= set(rules(found))

    def test_readers_that_want_good_data_stop_there_and_say_why(self) -> None:
        samples = iter_samples(io.BytesIO(gzip_bomb()), shard="x")
        assert next(samples).key == "000000"
        with pytest.raises(ShardReadError, match=r"times as many: reading stopped there \(WDS014\)"):
            next(samples)

    def test_a_bomb_within_a_bomb_is_a_picture_that_is_none(self, tmp_path: Path) -> None:
        """Nothing inside of a member is unpacked as an archive."""
        inner = gzip.compress(bytes(1 << 26))
        (tmp_path / "x.tar.gz").write_bytes(gzip.compress(tar_bytes([("a.jpg", inner), ("a.cls", b"1")])))
        assert rules(checked(tmp_path / "x.tar.gz")) == ["WDS012", "WDS040"]


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_with(*chunks: bytes, size: tuple[int, int] = (8, 8)) -> bytes:
    rows = zlib.compress(bytes(1 + size[0]) * size[1])
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def deep_zeros(mib: int) -> bytes:
    return zlib.compress(bytes(mib << 20), 9)


def pictures() -> Iterator[tuple[str, bytes]]:
    """Yield pictures that are small and want a lot of memory or time."""
    yield "text of 100 MiB", png_with(chunk(b"zTXt", b"a\0\0" + deep_zeros(100)))
    yield "international text of 100 MiB", png_with(chunk(b"iTXt", b"a\0\1\0\0\0" + deep_zeros(100)))
    yield "colour profile of 100 MiB", png_with(chunk(b"iCCP", b"a\0\0" + deep_zeros(100)))
    yield "texts by the thousand", png_with(*[chunk(b"tEXt", b"k%d\0v" % n) for n in range(20_000)])
    yield "65535 x 65535", png_with(size=(1, 1)).replace(struct.pack(">II", 1, 1), struct.pack(">II", 65535, 65535))
    frame = encode(Image.new("P", (1, 1)), "GIF")
    image = frame[frame.index(b",", 13) : -1]
    yield "frames by the ten thousand", frame[:-1] + image * 50_000 + b";"
    tiff = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tiff, "TIFF")
    looped = bytearray(tiff.getvalue())
    first = struct.unpack_from("<I", looped, 4)[0]
    entries = struct.unpack_from("<H", looped, first)[0]
    struct.pack_into("<I", looped, first + 2 + 12 * entries, first)
    yield "a TIFF whose pages go round", bytes(looped)
    jpeg = jpeg_bytes(0)
    yield "a JPEG of 65500 x 65500", jpeg.replace(struct.pack(">HH", 16, 20), struct.pack(">HH", 65500, 65500))
    yield "segments by the thousand", jpeg[:2] + b"\xff\xe1\x00\x02" * 100_000 + jpeg[2:]
    yield (
        "ICC in parts",
        jpeg[:2]
        + b"".join(
            b"\xff\xe2" + struct.pack(">H", 1000) + b"ICC_PROFILE\0" + bytes((n, 255)) + bytes(984)
            for n in range(1, 255)
        )
        + jpeg[2:],
    )


@pytest.mark.parametrize(("kind", "data"), list(pictures()), ids=[kind for kind, _ in pictures()])
def test_a_small_picture_that_wants_much_ends_in_time_and_memory(tmp_path: Path, kind: str, data: bytes) -> None:
    assert len(data) < 1_500_000
    (tmp_path / "x.tar").write_bytes(tar_bytes([*sample_members(1), ("9.jpg", data), ("9.cls", b"1")]))
    found = checked(tmp_path / "x.tar")
    assert found["samples"] == 2
    assert found["mib"] - idle_mib() < 100
    assert found["cpu_s"] < 10


def test_the_check_of_many_members_is_linear(tmp_path: Path) -> None:
    """One key for all, so that every part lands in one sample."""
    with open(tmp_path / "x.tar", "wb") as file:
        for number in range(30_000):
            file.write(raw_member(b"a.%06d.jpg" % number))
        file.write(END_MARKER)
    found = checked(tmp_path / "x.tar")
    assert found["samples"] == 1
    assert found["cpu_s"] < 20
