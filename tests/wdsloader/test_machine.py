from __future__ import annotations

import os
from pathlib import Path

import pytest

from wdsloader.machine import default_workers, usable_bytes, usable_cores


@pytest.mark.parametrize(
    ("quota", "cores"), [("50000 100000\n", 1), ("100000 100000\n", 1), ("max 100000\n", None), ("broken", None)]
)
def test_a_control_group_limits_the_cores(tmp_path: Path, quota: str, cores: int | None) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert usable_cores(group=tmp_path) == (cores or usable_cores(group=tmp_path / "none"))


def test_the_scheduler_limits_the_cores_too() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert usable_cores() == default_workers() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_ranks_share_the_cores_for_their_workers() -> None:
    assert default_workers() == min(16, usable_cores())
    assert default_workers(world_size=64) == max(1, usable_cores() // 8)


@pytest.mark.parametrize(("limit", "found"), [("1048576\n", 1 << 20), ("max\n", 3 << 20), (None, 3 << 20)])
def test_memory_is_what_is_free_or_what_the_control_group_allows(tmp_path: Path, limit: str | None, found: int) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:  9000 kB\nMemAvailable:   3072 kB\n")
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)
    assert usable_bytes(group=tmp_path, meminfo=tmp_path / "meminfo") == found


def test_where_nobody_knows_the_memory_it_is_not_made_up(tmp_path: Path) -> None:
    assert usable_bytes(group=tmp_path, meminfo=tmp_path / "none") is None
