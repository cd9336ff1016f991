from __future__ import annotations

from pathlib import Path

import pytest

from shardkit import (
    FakeImageNet,
    FakeSource,
    PackError,
    ShardSize,
    open_folder,
    parse_shard_size,
    plan_shards,
    planned_bytes,
)
from tests.helpers.folders import image_folder, pack_folder


def fake(num_samples: int) -> FakeSource:
    return FakeSource(FakeImageNet(num_samples=num_samples, num_classes=2, size=(32, 32)))


class TestCount:
    def test_a_number_of_shards_gives_even_ones(self) -> None:
        plan = plan_shards(fake(10), prefix="t", num_shards=3)
        assert [shard.name for shard in plan] == ["t-000000.tar", "t-000001.tar", "t-000002.tar"]
        assert [shard.samples for shard in plan] == [range(3), range(3, 6), range(6, 10)]

    def test_a_number_of_samples_a_shard_gives_full_ones_and_a_rest(self) -> None:
        plan = plan_shards(fake(10), prefix="t", size=ShardSize(samples=4))
        assert [len(shard.samples) for shard in plan] == [4, 4, 2]

    @pytest.mark.parametrize(
        ("num_shards", "reason"), [(4, "3 pictures cannot fill 4 shards"), (0, "0 shards"), (-1, "-1 shards")]
    )
    def test_a_layout_that_cannot_be_is_refused(self, num_shards: int, reason: str) -> None:
        """MK-04."""
        with pytest.raises(PackError, match=reason):
            plan_shards(fake(3), prefix="t", num_shards=num_shards)

    def test_more_shards_than_six_digits_can_number_are_refused_at_once(self) -> None:
        assert len(plan_shards(fake(10**6), prefix="t", size=ShardSize(samples=10))) == 10**5
        for layout in ({"num_shards": 10**6 + 1}, {"size": ShardSize(samples=1)}):
            with pytest.raises(PackError, match="1000001 shards: at most 1000000"):
                plan_shards(fake(10**6 + 1), prefix="t", **layout)

    def test_exactly_one_of_number_and_size_is_needed(self) -> None:
        for layout in ({}, {"num_shards": 1, "size": ShardSize(samples=1)}):
            with pytest.raises(PackError, match="give either"):
                plan_shards(fake(3), prefix="t", **layout)  # type: ignore[arg-type]  # each of its own type


class TestBytes:
    @pytest.mark.parametrize("limit", [10_000, 12_345, 16_896])
    def test_a_size_in_bytes_is_that_of_the_finished_tar_and_never_exceeded(self, tmp_path: Path, limit: int) -> None:
        source = open_folder(image_folder(tmp_path / "in"))
        plan = plan_shards(source, prefix="t", size=ShardSize(num_bytes=limit))
        assert len(plan) > 2
        sizes = [planned_bytes(source, shard.samples) for shard in plan]
        assert all(size is not None and size <= limit for size in sizes)
        # Each is full: the next sample would not have fitted.
        longer = [range(shard.samples.start, shard.samples.stop + 1) for shard in plan[:-1]]
        assert all((planned_bytes(source, samples) or 0) > limit for samples in longer)

    def test_the_planned_bytes_are_the_bytes(self, tmp_path: Path) -> None:
        source = open_folder(image_folder(tmp_path / "in"))
        manifest = pack_folder(source, tmp_path / "out", num_shards=1)
        assert planned_bytes(source, range(len(source))) == manifest.num_bytes

    def test_a_sample_that_alone_is_too_large_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(PackError, match="sample 0 alone makes a shard of"):
            plan_shards(open_folder(image_folder(tmp_path)), prefix="t", size=ShardSize(num_bytes=2000))

    def test_sizes_that_nobody_knows_before_are_asked_for_as_a_count(self) -> None:
        with pytest.raises(PackError, match="as a number of samples"):
            plan_shards(fake(3), prefix="t", size=ShardSize(num_bytes=10**9))
        assert planned_bytes(fake(3), range(3)) is None


class TestParsing:
    @pytest.mark.parametrize(
        ("text", "size"),
        [
            ("10000", ShardSize(samples=10000)),
            ("1GiB", ShardSize(num_bytes=2**30)),
            ("500MB", ShardSize(num_bytes=500_000_000)),
            ("1.5GiB", ShardSize(num_bytes=3 * 2**29)),
            ("0.1 GB", ShardSize(num_bytes=100_000_000)),
            ("2048B", ShardSize(num_bytes=2048)),
            (" 10kB ", ShardSize(num_bytes=10_000)),
        ],
    )
    def test_the_unit_decides_what_is_counted(self, text: str, size: ShardSize) -> None:
        assert parse_shard_size(text) == size

    @pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "1gib", "GiB", "1 GiB x", "0GiB", "ten", "1e6", "0.1B"])
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(PackError, match=r"shard"):
            parse_shard_size(text)
