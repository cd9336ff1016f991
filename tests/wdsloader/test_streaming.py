from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.helpers.shards import jpeg_bytes, write_samples, write_shard
from tests.helpers.slots import fresh_slots
from wdsloader.assembly import Part
from wdsloader.config import AugmentConfig, LoaderConfig
from wdsloader.errors import SampleError
from wdsloader.shards import ShardEntry, ShardTable
from wdsloader.streaming import StreamTask, stream_parts

CONFIG = LoaderConfig(batch_size=4, image_size=8, augment=AugmentConfig(), tail="ragged", stream_buffer=6)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ShardTable:
    folder = tmp_path_factory.mktemp("shards")
    for number in range(5):
        write_samples(folder / f"s-{number}.tar", 7, first=7 * number)
    return ShardTable(tuple(ShardEntry(url=str(folder / f"s-{n}.tar"), num_samples=0) for n in range(5)))


def parts_of(task: StreamTask) -> list[Part]:
    return list(stream_parts(task, fresh_slots(task.config)))


def keys(task: StreamTask) -> list[str | None]:
    return [key for part in parts_of(task) for key in part.keys]


def test_the_shards_are_split_over_ranks_and_workers_and_every_sample_comes_once(table: ShardTable) -> None:
    for ranks, workers in ((1, 1), (2, 1), (1, 3), (2, 2)):
        found = [
            key
            for rank in range(ranks)
            for worker in range(workers)
            for key in keys(
                StreamTask(
                    table=table, config=CONFIG, epoch=0, rank=rank, world_size=ranks, worker=worker, num_workers=workers
                )
            )
        ]
        assert sorted(map(str, found)) == [f"{n:06d}" for n in range(35)]


def test_equal_seeds_give_equal_orders_and_every_epoch_another(table: ShardTable) -> None:
    orders = [keys(StreamTask(table=table, config=CONFIG, epoch=epoch)) for epoch in (0, 0, 1)]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_without_shuffle_samples_come_as_listed(table: ShardTable) -> None:
    config = replace(CONFIG, shuffle=False)
    assert keys(StreamTask(table=table, config=config, epoch=3)) == [f"{n:06d}" for n in range(35)]


def test_the_buffer_mixes_samples_of_neighbouring_shards(table: ShardTable) -> None:
    order = [int(str(key)) // 7 for key in keys(StreamTask(table=table, config=CONFIG, epoch=0))]
    assert sum(a != b for a, b in pairwise(order)) > 8


@pytest.mark.parametrize(("tail", "sizes"), [("drop", [4] * 8), ("pad", [4] * 8 + [3]), ("ragged", [4] * 8 + [3])])
def test_the_tail_is_dropped_or_a_part_that_is_not_whole(table: ShardTable, tail: str, sizes: list[int]) -> None:
    config = replace(CONFIG, tail=tail)  # type: ignore[arg-type]  # one of three
    parts = parts_of(StreamTask(table=table, config=config, epoch=0))
    assert [len(part.rows) for part in parts if part.rows.size] == sizes
    assert sum(part.dropped for part in parts) == (3 if tail == "drop" else 0)


def test_a_damaged_shard_is_an_error_and_gives_no_part_of_a_sample(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "s.tar", 6)
    path.write_bytes(path.read_bytes()[:8000])
    table = ShardTable((ShardEntry(url=str(path), num_samples=0),))
    with pytest.raises(SampleError, match=r"s.tar: .*cut at byte 8000"):
        parts_of(StreamTask(table=table, config=CONFIG, epoch=0))


def test_the_buffer_keeps_its_limit_in_bytes_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Case DIST-11, without counts: pictures of 1 MB in a buffer of 1,000 samples, of which 4 MB may wait."""
    picture = jpeg_bytes(0) + bytes(1_000_000)
    members = [member for n in range(12) for member in ((f"{n:06d}.jpg", picture), (f"{n:06d}.cls", b"1"))]
    table = ShardTable((ShardEntry(url=str(write_shard(tmp_path / "s.tar", members)), num_samples=0),))
    config = replace(CONFIG, stream_buffer=1000, buffer_bytes=4_100_000)
    tracemalloc.start()
    found = [key for part in parts_of(StreamTask(table=table, config=config, epoch=0)) for key in part.keys]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sorted(map(str, found)) == [f"{n:06d}" for n in range(12)]
    assert found != sorted(map(str, found))
    assert peak < 4_100_000 + 6_000_000
    assert caplog.messages == [
        "buffer_bytes=4100000 holds 4 of the stream_buffer=1000 samples: they are mixed less well"
    ]
