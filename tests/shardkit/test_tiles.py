from __future__ import annotations

import gzip
import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import Tile, TileOptions, tiles_of
from shardkit.tiles import TILE_PX, spread
from tests.helpers.http_server import serve
from tests.helpers.pictures import cmyk_jpeg, cut_jpeg
from tests.helpers.shards import check, jpeg_bytes, sample_members, tar_bytes, write_samples, write_shard


def tiles(*paths: Path | str, num_tiles: int = 64, allow_commands: bool = False) -> list[Tile]:
    options = TileOptions(num_tiles=num_tiles, allow_commands=allow_commands)
    return tiles_of([check(path).summary for path in paths], options)


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(1, 80))
def test_rows_are_spread_evenly_over_all_samples(counts: list[int], wanted: int) -> None:
    rows = spread(counts, wanted)
    starts = [sum(counts[:number]) for number in range(len(counts))]
    chosen = [start + row for start, of_shard in zip(starts, rows, strict=True) for row in of_shard]
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(wanted, sum(counts))
    assert all(0 <= row < count for of_shard, count in zip(rows, counts, strict=True) for row in of_shard)
    steps = {later - earlier for earlier, later in itertools.pairwise(chosen)}
    assert max(steps, default=0) - min(steps, default=0) <= 1


def test_samples_of_all_shards_come_in_order_with_key_label_and_picture(tmp_path: Path) -> None:
    paths = [write_samples(tmp_path / f"{n}.tar", 4, first=4 * n, size=(300, 200)) for n in range(3)]
    found = tiles(*paths, num_tiles=6)
    assert [(Path(tile.shard).name, tile.key, tile.label) for tile in found] == [
        ("0.tar", "000001", 1), ("0.tar", "000003", 3), ("1.tar", "000005", 5),
        ("1.tar", "000007", 7), ("2.tar", "000009", 9), ("2.tar", "000011", 1),
    ]  # fmt: skip
    assert {tile.picture.size for tile in found if tile.picture is not None} == {(TILE_PX, TILE_PX * 2 // 3)}


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (2000, 3), (1, 900)])
def test_a_picture_of_any_shape_fits_its_tile(tmp_path: Path, size: tuple[int, int]) -> None:
    path = write_samples(tmp_path / "a.tar", 1, size=size)
    picture = tiles(path)[0].picture
    assert picture is not None
    assert max(picture.size) == TILE_PX
    assert min(picture.size) >= 1


def test_what_cannot_be_shown_says_why(tmp_path: Path) -> None:
    members = [
        ("a.jpg", cut_jpeg()), ("a.cls", b"3"),
        ("b.jpg", b""), ("c.cls", b"x"), ("d.png", b"no picture"),
    ]  # fmt: skip
    found = tiles(write_shard(tmp_path / "a.tar", members))
    assert [tile.picture for tile in found] == [None] * 4
    assert [tile.label for tile in found] == [3, None, None, None]
    reasons = [tile.reason for tile in found]
    assert "truncated" in reasons[0]
    assert "empty" in reasons[1]
    assert reasons[2] == "no picture"
    assert reasons[3]


def test_colours_are_those_of_training(tmp_path: Path) -> None:
    picture = tiles(write_shard(tmp_path / "a.tar", [("a.jpg", cmyk_jpeg())]))[0].picture
    assert picture is not None
    pixel = picture.getpixel((5, 5))
    assert isinstance(pixel, tuple)
    red, green, blue = pixel
    assert red > 200
    assert max(green, blue) < 60


def test_files_that_are_no_samples_and_keys_that_come_back_do_not_shift_the_count(tmp_path: Path) -> None:
    members = sample_members(4)
    mixed = [("README.md", b"x"), *members[:4], ("000000.json", b"{}"), ("notes.txt", b""), *members[4:]]
    found = tiles(write_shard(tmp_path / "a.tar", mixed))
    assert [tile.key for tile in found] == ["000000", "000001", "000002", "000003"]
    assert [tile.label for tile in found] == [0, 1, 2, 3]
    assert all(tile.picture is not None for tile in found)


def test_a_damaged_shard_shows_what_it_still_has(tmp_path: Path) -> None:
    data = bytearray(tar_bytes(sample_members(6)))
    data[4 * 1024 : 4 * 1024 + 100] = b"\xff" * 100
    (tmp_path / "a.tar").write_bytes(data)
    summary = check(tmp_path / "a.tar").summary
    found = tiles(tmp_path / "a.tar")
    assert len(found) == summary.samples > 2
    assert not [tile for tile in found if tile.key.startswith("sample ")]


def test_shards_from_elsewhere_are_read_again(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.tar", 2)
    (tmp_path / "b.tar").write_bytes(gzip.compress(path.read_bytes()))
    with serve(tmp_path) as server:
        found = tiles(f"{server.url}/a.tar", f"{server.url}/b.tar")
    assert [tile.key for tile in found] == ["000000", "000001"] * 2
    assert all(tile.picture is not None for tile in found)


def test_a_shard_that_is_gone_meanwhile_gives_tiles_that_say_so(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.tar", 2)
    summary = check(path).summary
    path.unlink()
    found = tiles_of([summary], TileOptions())
    assert [tile.reason for tile in found] == ["cannot be read again: No such file or directory"] * 2
    write_samples(path, 1)
    assert [bool(tile.reason) for tile in tiles_of([summary], TileOptions())] == [False, True]


@pytest.mark.parametrize("num_tiles", [0, 1025])
def test_a_number_of_tiles_out_of_range_is_refused(num_tiles: int) -> None:
    with pytest.raises(ValueError, match=r"in 1\.\.1024"):
        TileOptions(num_tiles=num_tiles)


def test_a_large_jpeg_is_unpacked_at_a_fraction_of_its_size(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", [("a.jpg", jpeg_bytes(0, size=(4000, 100)))])
    picture = tiles(tmp_path / "a.tar")[0].picture
    assert picture is not None
    assert picture.size == (TILE_PX, 4)


def test_what_can_be_read_only_once_gives_no_tiles(tmp_path: Path) -> None:
    summary = check(write_samples(tmp_path / "a.tar", 2)).summary
    os.mkfifo(tmp_path / "pipe")
    once = [replace(summary, shard=shard) for shard in ("-", str(tmp_path / "pipe"), "/dev/null")]
    assert tiles_of(once, TileOptions()) == []


def test_a_command_is_run_again_where_that_is_allowed(tmp_path: Path) -> None:
    summary = replace(check(write_samples(tmp_path / "a.tar", 2)).summary, shard=f"pipe:cat {tmp_path}/a.tar")
    assert [bool(tile.picture) for tile in tiles_of([summary], TileOptions(allow_commands=True))] == [True, True]
    refused = [tile.reason for tile in tiles_of([summary], TileOptions())]
    assert refused == ["cannot be read again: commands are run only where that is allowed"] * 2
