from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wdsloader.config_cache import CacheConfig, cache_config
from wdsloader.errors import ConfigError


@pytest.mark.parametrize(
    "settings",
    [
        {"limit_bytes": -1},
        {"limit_bytes": 1, "limit_share_of_disk": 0.5},
        {"limit_share_of_disk": 0.0},
        {"limit_share_of_disk": 1.5},
        {"ignore_query": "X-Amz-*"},
        {"check": "hash"},
        {"ahead_bytes": 1.5},
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        CacheConfig(folder=tmp_path, **settings)


@pytest.mark.parametrize(
    ("text", "num_bytes"), [("1500", 1500), ("2KiB", 2048), ("1.5 kB", 1500), ("200GiB", 200 << 30), ("1tb", 10**12)]
)
def test_a_limit_is_read_as_people_write_it(tmp_path: Path, text: str, num_bytes: int) -> None:
    assert cache_config(tmp_path, limit=text).limit_bytes == num_bytes


def test_a_limit_may_be_a_share_of_the_disk(tmp_path: Path) -> None:
    config = cache_config(tmp_path, limit="30%")
    assert config.limit_share_of_disk == 0.3
    assert config.limit() == int(cache_config(tmp_path, limit="100%").limit() or 0) * 3 // 10


@pytest.mark.parametrize("text", ["", "much", "5 GiBi", "-1", "150%", "0%"])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        cache_config(tmp_path, limit=text)
