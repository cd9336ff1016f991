from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers.cli import invoke
from tests.helpers.http_server import serve
from tests.helpers.pictures import cut_jpeg, encode
from tests.helpers.shards import sample_members, write_samples, write_shard


def plain(red: int, green: int, blue: int, *, size: tuple[int, int] = (8, 4)) -> bytes:
    return encode(Image.new("RGB", size, (red, green, blue)), "PNG")


def test_what_is_measured_is_shown(tmp_path: Path) -> None:
    black, white = plain(0, 0, 0), plain(255, 255, 255, size=(16, 2))
    members = [("a.png", black), ("a.cls", b"0"), ("b.png", white), ("b.cls", b"0"), ("c.png", black), ("c.cls", b"2")]
    shard = write_shard(tmp_path / "x.tar", members)
    ended = invoke("stats", shard)
    assert (ended.code, ended.stderr) == (0, "")
    num_bytes = 2 * len(black) + len(white)
    low, high = sorted((len(black), len(white)))
    middle, mean = len(black), f"{num_bytes / 3:,.1f}"
    assert ended.stdout.splitlines() == [
        "samples         3, 3 pictures",
        "mean            0.333333  0.333333  0.333333   red, green, blue; black 0, white 1",
        "std             0.471405  0.471405  0.471405",
        "classes         2, of 1 to 2 samples (1 to 2.00)",
        "                1 class has no sample: 1",
        "width           8 to 16, 5 % 8, median 8, 95 % 16, mean 10.7 pixels",
        "height          2 to 4, 5 % 2, median 4, 95 % 4, mean 3.3 pixels",
        f"bytes           {low} to {high}, 5 % {low}, median {middle}, 95 % {high}, mean {mean} a picture",
        f"bits per pixel  {8 * num_bytes / 96:.2f}",
        "duplicates      1 picture, in 1 group of equal bytes",
        f"                {shard}: a, {shard}: c",
    ]


def test_classes_are_counted_as_the_manifest_beside_the_shards_has_them(tmp_path: Path) -> None:
    invoke("make-shards", "--out", tmp_path, "--count", 1, "--shard-size", 4, "--classes", 9, "--size", "32x32")
    ended = invoke("stats", tmp_path, "--json")
    assert len(json.loads(ended.stdout)["missing_classes"]) == 5


def test_json_has_all_groups_and_no_text(tmp_path: Path) -> None:
    members = [(f"{n}.png", plain(n % 7, 0, 0)) for n in range(14)]
    shard = write_shard(tmp_path / "x.tar", members)
    document = json.loads(invoke("stats", shard, "--json").stdout)
    assert len(document["duplicates"]) == 7
    assert document["duplicates"][0] == [{"shard": str(shard), "key": "0"}, {"shard": str(shard), "key": "7"}]
    assert (document["labels"], document["unlabelled"], document["estimated"]) == ({}, 14, False)


def test_a_drawn_part_is_called_an_estimate(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "x.tar", 9)
    first = invoke("stats", shard, "--sample", 4).stdout
    assert first.startswith("samples         9, 9 pictures, estimated from 4\n")
    assert invoke("stats", shard, "--sample", 4, "--seed", 0, "--jobs", 2).stdout == first
    assert invoke("stats", shard, "--sample", 4, "--seed", 1).stdout != first


def test_bad_pictures_and_shards_are_named_and_end_with_1(tmp_path: Path) -> None:
    bad = write_shard(tmp_path / "a.tar", [*sample_members(1), ("z.jpg", cut_jpeg()), ("z.cls", b"1")])
    (tmp_path / "b.tar").write_bytes(b"<html>" * 100)
    ended = invoke("stats", tmp_path)
    assert ended.code == 1
    assert f"{tmp_path}/b.tar: at byte 0: not a tar: an HTML page" in ended.stderr
    assert f"{bad}: 'z': the picture does not decode" in ended.stderr
    assert "samples         2, 2 pictures\n" in ended.stdout


def test_a_table_is_read_instead_of_shards(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for number in range(2):
        write_samples(tmp_path / f"s-{number}.tar", 4, first=3 * number)
    assert invoke("index", tmp_path, "--table", tmp_path / "t.parquet").code == 0
    shards = invoke("stats", f"{tmp_path}/s-{{0..1}}.tar").stdout.splitlines()
    table = invoke("stats", tmp_path / "t.parquet").stdout.splitlines()
    assert [line for line in shards if not line.startswith(("mean", "std"))] == [
        line.replace("s-0.tar", f"{tmp_path}/s-0.tar").replace("s-1.tar", f"{tmp_path}/s-1.tar") for line in table
    ]


def test_drawing_from_a_table_is_refused_since_it_holds_no_pictures(tmp_path: Path) -> None:
    ended = invoke("stats", tmp_path / "x.parquet", "--sample", 3)
    assert (ended.code, "name the shards" in ended.stderr) == (2, True)


def test_shards_are_measured_wherever_they_come_from(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "t-0.tar", 3)
    assert invoke("index", shard).code == 0
    here = invoke("stats", shard, "--jobs", 1).stdout
    with serve(tmp_path) as server:
        by_manifest = invoke("stats", f"{server.url}/t.manifest.json", "--jobs", 1)
    assert (by_manifest.code, by_manifest.stdout) == (0, here)
    from_stdin = invoke("stats", "-", stdin=shard.read_bytes())
    assert (from_stdin.code, from_stdin.stdout) == (0, here)
    command = f"pipe:cat {shard}"
    assert invoke("stats", command, "--allow-commands", "--jobs", 1).stdout == here
    refused = invoke("stats", command, "--jobs", 1)
    assert (refused.code, "only with --allow-commands" in refused.stderr) == (2, True)


def test_drawing_from_standard_input_is_wrong_use() -> None:
    ended = invoke("stats", "-", "--sample", 2)
    assert ended.code == 2
    assert "standard input can be read once" in ended.stderr
