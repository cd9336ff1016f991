from __future__ import annotations

import json
from pathlib import Path

from shardkit import read_index
from tests.helpers.cli import invoke
from tests.helpers.shards import write_samples


def test_an_index_appears_beside_each_shard(tmp_path: Path) -> None:
    shards = [write_samples(tmp_path / f"s-{number}.tar", 2 + number) for number in range(2)]
    ended = invoke("index", f"{tmp_path}/s-<0..1>.tar")
    assert ended.code == 0
    assert ended.stdout == "".join(f"{shard}.index.json  {2 + n} samples\n" for n, shard in enumerate(shards))
    assert [read_index(Path(f"{shard}.index.json")).num_samples for shard in shards] == [2, 3]


def test_json_lists_the_indexes(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "a.tar", 2)
    document = json.loads(invoke("index", shard, "--json").stdout)
    assert document["indexes"] == [{"index": f"{shard}.index.json", "samples": 2, "bytes": shard.stat().st_size}]


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "a.tar", 2)
    ended = invoke("index", shard, "--dry-run")
    assert (ended.code, ended.stdout) == (0, f"{shard}.index.json  2 samples\n")
    assert list(tmp_path.iterdir()) == [shard]


def test_a_shard_that_cannot_be_read_ends_with_1_and_is_named(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "a.tar", 2)
    shard.write_bytes(shard.read_bytes()[:700])
    ended = invoke("index", shard)
    assert (ended.code, ended.stderr.count("\n")) == (1, 1)
    assert f"{shard}: " in ended.stderr
    assert list(tmp_path.iterdir()) == [shard]


def test_missing_shards_are_all_named_before_anything_is_written(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "s-1.tar", 2)
    ended = invoke("index", f"{tmp_path}/s-{{0..2}}.tar")
    assert ended.code == 1
    assert ended.stderr == f"Error: {tmp_path}/s-0.tar, {tmp_path}/s-2.tar: no such file, 2 of 3 shards\n"
    assert list(tmp_path.iterdir()) == [shard]


def test_a_url_is_wrong_use() -> None:
    assert invoke("index", "https://host/a.tar").code == 2
