from __future__ import annotations

import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from wdsloader.cache import ShardCache


def test_shards_of_one_name_have_different_files(tmp_path: Path) -> None:
    cache = ShardCache(tmp_path)
    urls = [f"http://host/block_{i}/part.tar{query}" for i in (0, 1) for query in ("", "?v=1", "?v=2")]
    assert len({cache.path_of(url) for url in urls}) == 6
    assert all(cache.path_of(url).name.endswith("-part.tar") for url in urls)


def test_a_file_name_shows_no_query_and_stays_in_the_folder(tmp_path: Path) -> None:
    path = ShardCache(tmp_path).path_of("http://host/%2e%2e%2f..%2fa b.tar?X-Amz-Signature=SECRET123")
    assert path.parent == tmp_path
    assert "SECRET" not in path.name
    assert path.name.endswith("-a_b.tar")


def test_a_filled_file_is_not_filled_again(tmp_path: Path) -> None:
    cache = ShardCache(tmp_path / "new")
    first = cache.get("http://host/a.tar", lambda file: _write(file, b"abc"))
    second = cache.get("http://host/a.tar", lambda file: _write(file, b"other"))
    assert first == second
    assert first.read_bytes() == b"abc"


def test_a_failed_fill_leaves_nothing_but_its_lock(tmp_path: Path) -> None:
    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        ShardCache(tmp_path).get("http://host/a.tar", fail)
    assert [path.suffix for path in tmp_path.iterdir()] in ([], [".lock"])


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    cache = ShardCache(tmp_path)
    path = cache.path_of("http://host/a.tar")
    left = path.with_name(f".unfinished-{path.name}-0123456789abcdef")
    left.write_bytes(b"a longer rest than the file")
    path.with_name(path.name + ".lock").touch()
    assert cache.get("http://host/a.tar", lambda file: _write(file, b"abc")).read_bytes() == b"abc"
    assert not left.exists()


def test_a_file_of_the_wrong_length_is_fetched_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = ShardCache(tmp_path)
    cache.get("http://host/a.tar", lambda file: _write(file, b"ab"))
    path = cache.get("http://host/a.tar", lambda file: _write(file, b"abc"), num_bytes=3)
    assert path.read_bytes() == b"abc"
    assert "2 bytes, not 3" in caplog.text


def test_many_at_once_fill_once(tmp_path: Path) -> None:
    fills: list[int] = []

    def fill(file: BinaryIO) -> None:
        fills.append(1)
        file.write(b"abc")

    threads = [threading.Thread(target=ShardCache(tmp_path).get, args=("http://host/a.tar", fill)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fills) == 1


def _write(file: BinaryIO, content: bytes) -> None:
    file.write(content)
