from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest

from shardkit import PictureError, PictureFacts
from shardkit.check.scan import ScanOptions, ShardScan, scan_shard
from tests.helpers.pictures import cut_jpeg, noisy_jpeg
from tests.helpers.shards import (
    END_MARKER,
    Content,
    layout,
    raw_member,
    sample_members,
    tar_bytes,
    tar_entry,
    write_samples,
    write_shard,
)

MEMORY = """
import sys
from shardkit.check.scan import scan_shard
scan_shard(sys.argv[1])
# Not ru_maxrss: a process begins with that of the one which started it.
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def scan(path: Path, data: bytes) -> ShardScan:
    path.write_bytes(data)
    return scan_shard(str(path))


def peak_mib(path: Path) -> int:
    done = subprocess.run([sys.executable, "-c", MEMORY, str(path)], check=True, capture_output=True, timeout=60)
    return int(done.stdout)


def test_samples_have_parts_label_and_picture(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "x.tar", 3, first=4)
    found = scan_shard(str(path))
    places = layout(path.read_bytes())
    sample = found.samples["000005"]  # type: ignore[index]  # a plain str will do here
    assert [(p.name, p.extension, p.header_offset, p.size) for p in sample.parts] == [
        (place.name, place.name[-3:], place.header, place.size) for place in places[2:4]
    ]
    assert (sample.label, sample.label_content, sample.num_places, sample.is_whole) == (5, b"5", 1, True)
    assert isinstance(sample.picture, PictureFacts)
    assert found.num_bytes == path.stat().st_size


def test_without_decoding_the_header_alone_is_read(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "x.tar", [("a.jpg", cut_jpeg()), ("a.cls", b"0")])
    assert isinstance(scan_shard(str(path)).samples["a"].picture, PictureError)  # type: ignore[index]
    assert isinstance(scan_shard(str(path), options=ScanOptions(decode=False)).samples["a"].picture, PictureFacts)  # type: ignore[index]


def test_parts_apart_are_one_sample_in_two_places(tmp_path: Path) -> None:
    members = sample_members(2)
    found = scan(tmp_path / "x.tar", tar_bytes([members[0], members[2], members[1], members[3]]))
    assert [sample.num_places for sample in found.samples.values()] == [2, 2]
    assert not any(sample.is_whole for sample in found.samples.values())


def test_members_of_no_sample_are_set_aside(tmp_path: Path) -> None:
    entries: list[Content] = [
        tar_entry("./", kind=tarfile.DIRTYPE),
        tar_entry("l.jpg", kind=tarfile.SYMTYPE, linkname="/etc/hostname"),
        ("._a.jpg", b"x"),
        ("README", b"x"),
        ("notes.txt", b"x"),
        *sample_members(1),
    ]
    found = scan(tmp_path / "x.tar", tar_bytes(entries))
    assert [member.name for member in found.special] == ["./", "l.jpg"]
    assert [member.name for member in found.hidden] == ["._a.jpg"]
    assert [member.name for member in found.beside] == ["README", "notes.txt"]
    assert list(found.samples) == ["000000"]


def test_the_samples_of_every_further_archive_are_counted(tmp_path: Path) -> None:
    first, second, third = (tar_bytes(sample_members(n)) for n in (1, 2, 3))
    found = scan(tmp_path / "x.tar", first + second + third)
    assert found.following == [(len(first), 2), (len(first) + len(second), 3)]
    assert len(found.samples) == 1


def test_damage_in_a_further_archive_is_recorded(tmp_path: Path) -> None:
    first = tar_bytes(sample_members(1))
    found = scan(tmp_path / "x.tar", first + tar_bytes(sample_members(2))[:3000])
    assert [error.rule for error in found.damage] == ["WDS002"]


def test_a_pipe_is_scanned_and_its_bytes_are_counted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(tar_bytes(sample_members(2)),))
    writer.start()
    found = scan_shard(str(tmp_path / "pipe"))
    writer.join()
    assert (len(found.samples), found.num_bytes, found.damage) == (2, 10240, [])


@pytest.mark.parametrize("data", [tar_bytes(sample_members(2)), gzip.compress(tar_bytes(sample_members(2)))])
def test_standard_input_is_scanned(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    found = scan_shard("-")
    assert (len(found.samples), found.num_bytes, found.damage) == (2, len(data), [])


def test_the_size_of_a_stream_is_unknown_where_its_end_was_not_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"<html>" * 100_000)))
    found = scan_shard("-")
    assert (found.num_bytes, [error.rule for error in found.damage]) == (None, ["WDS001"])


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        scan_shard(str(tmp_path / "none.tar"))


def test_members_too_large_for_memory_are_not_read(tmp_path: Path) -> None:
    """The file is sparse: a hole of 300 MiB twice."""
    size = 300 << 20
    field = {124: b"%011o\0" % size}
    with open(tmp_path / "x.tar", "wb") as file:
        for name in (b"a.jpg", b"a.cls"):
            file.write(raw_member(name, fields=field))
            file.seek(size, os.SEEK_CUR)
        file.write(END_MARKER)
    found = scan_shard(str(tmp_path / "x.tar")).samples["a"]  # type: ignore[index]
    assert isinstance(found.picture, PictureError)
    assert found.picture.rule == "WDS042"
    assert (found.label, found.label_content) == (None, b"(314572800 bytes)")
    assert peak_mib(tmp_path / "x.tar") < 150


@pytest.mark.slow
def test_memory_is_flat_over_thousands_of_samples_good_and_bad(tmp_path: Path) -> None:
    """Also where every picture is broken: an error must not hold on to the bytes it is about."""
    few = write_samples(tmp_path / "few.tar", 10)
    broken = noisy_jpeg(size=(32, 32))[:900]
    members = [(f"{n:06d}.{e}", c) for n in range(4000) for e, c in (("jpg", broken), ("cls", b"1"))]
    many = write_shard(tmp_path / "many.tar", members)
    assert peak_mib(many) - peak_mib(few) < 25


def test_damage_holds_on_to_no_traceback(tmp_path: Path) -> None:
    data = bytearray(tar_bytes(sample_members(3)))
    data[layout(bytes(data))[2].header] ^= 1
    (error,) = scan(tmp_path / "x.tar", bytes(data)).damage
    assert (error.rule, error.__traceback__, error.__cause__, error.__context__) == ("WDS003", None, None, None)
