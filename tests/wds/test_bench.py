from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.cli import invoke
from tests.helpers.damaged import write_with_bad_pictures
from tests.helpers.http_server import serve
from tests.helpers.shards import write_samples


def test_the_last_line_names_the_bottleneck_and_what_to_change(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "s.tar", 8)
    ended = invoke("bench", shard, "--seconds", "0.2", "--workers", "0", "--batch-size", "4", "--rate", "100000")
    assert ended.code == 0
    lines = ended.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["read", "decode", "transform"]
    assert lines[-1].startswith("bottleneck: ")
    assert ". Change: " in lines[-1]
    assert any(line.split()[0] == "waiting" for line in lines)


def test_a_set_with_bad_samples_is_timed_when_they_may_be_skipped(tmp_path: Path) -> None:
    shard = write_with_bad_pictures(tmp_path / "s.tar", 6, bad={1, 4})
    args = ("bench", shard, "--seconds", "0.1", "--workers", "0", "--batch-size", "2")
    assert invoke(*args).code == 1
    assert invoke(*args, "--on-error", "skip").code == 0


def test_json_has_every_figure(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "s.tar", 8)
    ended = invoke("bench", shard, "--seconds", "0.1", "--workers", "0", "--batch-size", "4", "--json")
    document = json.loads(ended.stdout)
    assert document["bottleneck"] in ("read", "decode", "transform", "transport")
    assert document["delivery"]["samples"] > 0
    assert document["stages"]["decode_s"] > 0
    assert document["wait_share"] is None
    assert document["other_delivery"]["num_workers"] >= 1


def test_shards_without_a_manifest_are_timed_as_they_are_streamed(tmp_path: Path) -> None:
    write_samples(tmp_path / "far/s.tar", 8)
    with serve(tmp_path / "far") as server:
        ended = invoke("bench", server.url + "/s.tar", "--seconds", "0.1", "--workers", "1", "--batch-size", "4")
    assert (ended.code, "bottleneck: " in ended.stdout, "inexact mode" in ended.stderr) == (0, True, True)
