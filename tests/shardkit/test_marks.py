from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np

from shardkit.marks import NO_LABEL, SampleMarks, mark_samples, names_at
from shardkit.scan import scan_shard
from shardkit.summary import summarize
from shardkit.together import check_together
from shardkit.validate import ShardReport, ShardScan
from tests.helpers.shards import layout, sample_members, write_samples, write_shard


def test_samples_have_hashes_a_label_and_a_place(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "x.tar", [*sample_members(2), ("a.jpg", b""), ("a.cls", b"tench")])
    marks = mark_samples(scan_shard(str(path)).samples.values())
    assert (len(marks), marks.keys.shape, marks.pictures.shape) == (3, (3, 2), (3, 2))
    assert marks.labels.tolist() == [0, 1, NO_LABEL]
    assert marks.offsets.tolist() == [place.header for place in layout(path.read_bytes())[::2]]
    assert [bool(row.any()) for row in marks.pictures] == [True, True, False]
    assert len(np.unique(marks.keys)) == 6


def test_equal_keys_and_pictures_have_equal_hashes_in_every_shard(tmp_path: Path) -> None:
    one, two = (
        mark_samples(scan_shard(str(write_samples(tmp_path / f"{n}.tar", 3, first=n))).samples.values()) for n in (0, 1)
    )
    assert one.keys[1:].tolist() == two.keys[:2].tolist()
    assert one.pictures[1:].tolist() == two.pictures[:2].tolist()


def test_no_samples_have_no_marks() -> None:
    marks = mark_samples([])
    assert (len(marks), marks.keys.shape) == (0, (0, 2))


def test_names_are_those_of_the_first_member_at_each_byte(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "x.tar", 3)
    starts = [place.header for place in layout(path.read_bytes())[::2]]
    assert names_at(str(path), [starts[2], starts[0]]) == ["000002.jpg", "000000.jpg"]
    assert names_at(str(path), [starts[0], 1 << 40]) == ["000000.jpg", None]
    assert names_at(str(tmp_path / "none.tar"), [0]) == [None]
    assert names_at("-", [0]) == [None]


def test_a_million_keys_in_a_thousand_shards_take_48_bytes_each_and_as_much_again_to_compare() -> None:
    """The size of ImageNet; the keys of the first and the last shard are equal."""
    words = np.random.Generator(np.random.PCG64(0)).integers(1, 2**63, (1_280_000, 4), np.uint64)
    numbers = np.arange(1000)
    tracemalloc.start()
    try:
        reports = [
            ShardReport(
                summarize(ShardScan(shard=f"{shard}.tar")),
                (),
                SampleMarks(
                    keys=words[1000 * (shard % 1279) :][:1000, :2].copy(),
                    pictures=words[1000 * shard :][:1000, 2:].copy(),
                    labels=numbers.copy(),
                    offsets=numbers.copy(),
                ),
            )
            for shard in range(1280)
        ]
        kept = tracemalloc.get_traced_memory()[0]
        found = check_together(reports)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [(finding.rule, finding.message.partition(",")[0]) for finding in found] == [
        ("WDS052", "1000 keys are in other shards too")
    ]
    assert kept / 1_280_000 < 52
    assert peak / 1_280_000 < 250
