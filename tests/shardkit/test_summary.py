from __future__ import annotations

from pathlib import Path

from shardkit import Extent, combined
from tests.helpers.pictures import cmyk_jpeg
from tests.helpers.shards import check, jpeg_bytes, sample_members, write_shard


def test_everything_is_counted(tmp_path: Path) -> None:
    members = [
        ("a.jpg", jpeg_bytes(0, size=(20, 16))), ("a.cls", b"3"),
        ("b.jpg", cmyk_jpeg()), ("b.cls", b"1"), ("b.json", b"{}"),
        ("c.jpg", jpeg_bytes(1, size=(20, 16))), ("c.cls", b"1"),
        ("d.jpg", b""), ("d.cls", b"x"),
    ]  # fmt: skip
    path = write_shard(tmp_path / "x.tar", members)
    summary = check(path).summary
    assert (summary.shard, summary.compressed, summary.num_bytes) == (str(path), False, path.stat().st_size)
    assert (summary.samples, summary.whole) == (4, 3)
    assert summary.extensions == {"cls": 4, "jpg": 4, "json": 1}
    assert (summary.formats, summary.modes) == ({"JPEG": 3}, {"RGB": 2, "CMYK": 1})
    assert summary.labels == {1: 2, 3: 1}
    assert summary.widths == Extent(20, 24.0, 32, 3)
    assert summary.heights == Extent(16, 56 / 3, 24, 3)
    assert summary.picture_bytes is not None
    assert summary.picture_bytes.smallest == 0
    assert summary.first_keys == ("a", "b", "c", "d")


def test_the_first_keys_are_five(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "x.tar", [(f"{n}.cls", b"0") for n in range(7)])
    assert check(path).summary.first_keys == ("0", "1", "2", "3", "4")


def test_a_shard_without_pictures_has_no_sizes(tmp_path: Path) -> None:
    summary = check(write_shard(tmp_path / "x.tar", [])).summary
    assert (summary.samples, summary.widths, summary.heights, summary.picture_bytes) == (0, None, None, None)


def test_extensions_are_visible_text(tmp_path: Path) -> None:
    summary = check(write_shard(tmp_path / "x.tar", [("a.cls", b"0"), ("a.\udce9\x1b", b"")])).summary
    assert summary.extensions == {"cls": 1, r"\xe9\x1b": 1}


def test_pictures_are_counted_by_powers_of_two_of_pixels_and_bytes(tmp_path: Path) -> None:
    members = [("a.jpg", jpeg_bytes(0, size=(16, 16))), ("b.jpg", jpeg_bytes(0, size=(31, 16))), ("c.jpg", b"")]
    summary = check(write_shard(tmp_path / "x.tar", members)).summary
    assert summary.pixel_bins == {256: 2}
    assert sum(summary.byte_bins.values()) == 3
    assert summary.byte_bins[0] == 1
    assert summary.broken == 1


def test_shards_together_are_counted_as_one_shard_with_all_their_samples(tmp_path: Path) -> None:
    members = sample_members(3, size=(8, 8)) + sample_members(4, first=3, size=(40, 30))
    parts = [members[:6], members[6:], []]
    summaries = [check(write_shard(tmp_path / f"{n}.tar", part)).summary for n, part in enumerate(parts)]
    whole = check(write_shard(tmp_path / "all.tar", members)).summary
    together = combined(summaries)
    assert together.num_bytes == sum((tmp_path / f"{n}.tar").stat().st_size for n in range(3))
    assert together.widths is not None
    assert whole.widths is not None
    assert together.widths.mean == whole.widths.mean
    same = {"samples", "whole", "extensions", "formats", "modes", "labels", "heights", "first_keys"}
    same |= {"broken", "pixel_bins", "byte_bins"}
    assert {name: getattr(together, name) for name in same} == {name: getattr(whole, name) for name in same}
