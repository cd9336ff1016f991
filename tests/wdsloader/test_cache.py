from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wdsloader.cache import CacheFill, ShardCache, WantedFile
from wdsloader.cache_entries import ORIGIN_SUFFIX
from wdsloader.config_cache import CacheConfig
from wdsloader.errors import ConfigError, FetchError

URL = "http://host/a.tar"


def cache_in(folder: Path, **settings: Any) -> ShardCache:
    return ShardCache(CacheConfig(folder=folder, **settings))


def writing(content: bytes) -> Callable[[CacheFill], None]:
    def fill(begun: CacheFill) -> None:
        begun.file.seek(0)
        begun.file.write(content)
        begun.file.truncate()

    return fill


def never(begun: CacheFill) -> None:
    raise AssertionError("filled again")


def get(cache: ShardCache, url: str, content: bytes, **wanted: Any) -> bytes:
    """Fill a file, or find it, and let go of it."""
    with os.fdopen(cache.get(WantedFile(url, **wanted), writing(content)), "rb") as file:
        return file.read()


def data_files(folder: Path) -> list[str]:
    return sorted(path.name[25:] for path in folder.iterdir() if not path.name.endswith(ORIGIN_SUFFIX))


class TestNames:
    def test_shards_of_one_name_have_different_files(self, tmp_path: Path) -> None:
        """CACHE-01."""
        cache = cache_in(tmp_path)
        urls = [f"http://host/block_{i}/part.tar{query}" for i in (0, 1) for query in ("", "?v=1", "?v=2")]
        assert len({cache.path_of(url) for url in urls}) == 6
        assert all(cache.path_of(url).name.endswith("-part.tar") for url in urls)

    def test_a_file_name_shows_no_query_and_stays_in_the_folder(self, tmp_path: Path) -> None:
        path = cache_in(tmp_path).path_of("http://host/%2e%2e%2f..%2fa b.tar?X-Amz-Signature=SECRET123")
        assert path.parent == tmp_path
        assert "SECRET" not in path.name
        assert path.name.endswith("-a_b.tar")

    def test_a_link_signed_anew_has_the_same_file_where_its_signature_is_to_be_ignored(self, tmp_path: Path) -> None:
        cache = cache_in(tmp_path, ignore_query=("X-Amz-*", "exp"))
        urls = [f"http://host/a.tar?part=1&X-Amz-Signature={i}&exp={i}" for i in range(3)]
        assert len({cache.path_of(url) for url in urls}) == 1
        assert cache.path_of("http://host/a.tar?part=2&exp=1") != cache.path_of(urls[0])

    def test_a_command_is_named_by_its_hash_alone(self, tmp_path: Path) -> None:
        path = cache_in(tmp_path).path_of("pipe:curl -H 'token: SECRET123' http://h/a.tar")
        assert path.name[24:] == "-command"

    def test_no_record_shows_a_secret(self, tmp_path: Path) -> None:
        """NET-05."""
        cache = cache_in(tmp_path)
        get(cache, "http://me:SECRET1@host/a.tar?sig=SECRET2", b"abc")
        get(cache, "pipe:curl -H 'token: SECRET3' http://h/a.tar", b"abc")
        texts = [path.read_text() for path in tmp_path.glob("*" + ORIGIN_SUFFIX)]
        assert len(texts) == 2
        assert "SECRET" not in "".join(texts)
        assert {json.loads(text)["url"] for text in texts} == {"http://***@host/a.tar?sig=***", "pipe:curl .."}


class TestFilling:
    def test_a_filled_file_is_not_filled_again(self, tmp_path: Path) -> None:
        cache = cache_in(tmp_path / "new")
        assert get(cache, URL, b"abc") == b"abc"
        os.close(cache.get(WantedFile(URL), never))

    def test_a_failed_fill_leaves_nothing(self, tmp_path: Path) -> None:
        def fail(begun: CacheFill) -> None:
            begun.file.write(b"half")
            raise ValueError("gone")

        with pytest.raises(ValueError, match="gone"):
            cache_in(tmp_path).get(WantedFile(URL), fail)
        assert list(tmp_path.iterdir()) == []

    def test_what_a_killed_process_left_is_removed(self, tmp_path: Path) -> None:
        """CACHE-03."""
        cache = cache_in(tmp_path)
        path = cache.path_of(URL)
        left = path.with_name(f".unfinished-{path.name}-0123456789abcdef")
        left.write_bytes(b"a longer rest than the file")
        path.with_name(f".unfinished-{path.name}.lock").touch()
        assert get(cache, URL, b"abc") == b"abc"
        assert not list(tmp_path.glob(".unfinished-*"))

    def test_many_at_once_fill_once(self, tmp_path: Path) -> None:
        """CACHE-07."""
        fills: list[int] = []

        def fill(begun: CacheFill) -> None:
            fills.append(1)
            begun.file.write(b"abc")

        def take() -> None:
            os.close(cache_in(tmp_path).get(WantedFile(URL), fill))

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(fills) == 1
        assert data_files(tmp_path) == ["a.tar"]

    def test_a_lock_of_a_killed_process_holds_nobody_up(self, tmp_path: Path) -> None:
        """CACHE-10."""
        script = f"""
import os, signal
from pathlib import Path
from wdsloader.cache import ShardCache, WantedFile
from wdsloader.config_cache import CacheConfig
def die(begun):
    begun.file.write(b"half"); begun.file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
ShardCache(CacheConfig(folder=Path({str(tmp_path)!r}))).get(WantedFile({URL!r}), die)
"""
        for _ in range(3):
            assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
            assert len(list(tmp_path.glob(".unfinished-*"))) == 2
        assert get(cache_in(tmp_path), URL, b"abc") == b"abc"
        assert not list(tmp_path.glob(".unfinished-*"))

    @pytest.mark.parametrize(
        ("wanted", "words"),
        [
            ({"num_bytes": 4}, "got 3 bytes, the manifest says 4"),
            ({"checksum": "0" * 32}, "the manifest says 00000000"),
        ],
    )
    def test_what_is_not_as_recorded_is_refused_and_not_kept(
        self, tmp_path: Path, wanted: dict[str, Any], words: str
    ) -> None:
        with pytest.raises(FetchError, match=words):
            get(cache_in(tmp_path), URL, b"abc", **wanted)
        assert data_files(tmp_path) == []


class TestDamage:
    def test_a_file_of_another_length_is_fetched_again(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """CACHE-04, the cut file."""
        cache = cache_in(tmp_path)
        get(cache, URL, b"abc")
        os.truncate(cache.path_of(URL), 2)
        assert get(cache, URL, b"abc") == b"abc"
        assert "has 2 bytes, not 3: it is fetched again" in caplog.text

    def test_a_file_that_is_not_what_the_manifest_says_by_now_is_fetched_again(self, tmp_path: Path) -> None:
        cache = cache_in(tmp_path)
        get(cache, URL, b"abc")
        assert get(cache, URL, b"abcd", num_bytes=4) == b"abcd"

    def test_a_byte_that_was_changed_is_noticed_by_the_time_of_the_change(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """CACHE-04, the flipped byte."""
        cache = cache_in(tmp_path)
        get(cache, URL, b"abc")
        cache.path_of(URL).write_bytes(b"abX")
        assert get(cache, URL, b"abc") == b"abc"
        assert "is damaged" in caplog.text

    def test_a_file_that_was_copied_elsewhere_is_read_once_and_used(self, tmp_path: Path) -> None:
        cache = cache_in(tmp_path)
        get(cache, URL, b"abc")
        os.utime(cache.path_of(URL), (1, 1))
        os.close(cache.get(WantedFile(URL), never))
        assert cache.path_of(URL).stat().st_mtime > 1

    @pytest.mark.parametrize(("check", "content"), [("size", b"abX"), ("checksum", b"abc")])
    def test_decay_without_a_change_of_time_is_noticed_where_asked_for(
        self, tmp_path: Path, check: str, content: bytes
    ) -> None:
        get(cache_in(tmp_path), URL, b"abc")
        path = cache_in(tmp_path).path_of(URL)
        before = path.stat()
        path.write_bytes(b"abX")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert get(cache_in(tmp_path, check=check), URL, b"abc") == content
        entry = cache_in(tmp_path).entries()[0]
        assert (cache_in(tmp_path).damage(entry) is None) is (content == b"abc")


class TestLimit:
    def test_files_used_longest_ago_make_room(self, tmp_path: Path) -> None:
        """CACHE-06."""
        cache = cache_in(tmp_path, limit_bytes=4000)
        for name in "abc":
            get(cache, f"http://h/{name}", bytes(1000))
            os.utime(f"{cache.path_of(f'http://h/{name}')}{ORIGIN_SUFFIX}", (ord(name), ord(name)))
        os.close(cache.get(WantedFile("http://h/a"), never))
        get(cache, "http://h/d", bytes(1000), num_bytes=1000)
        assert data_files(tmp_path) == ["a", "c", "d"]
        assert folder_bytes(tmp_path) <= 4000

    def test_an_open_file_is_never_removed(self, tmp_path: Path) -> None:
        cache = cache_in(tmp_path, limit_bytes=2500)
        held = cache.get(WantedFile("http://h/a"), writing(bytes(1000)))
        for name in "bcd":
            get(cache, f"http://h/{name}", bytes(1000), num_bytes=1000)
        assert data_files(tmp_path) == ["a", "d"]
        os.close(held)

    def test_a_foreign_file_is_never_removed(self, tmp_path: Path) -> None:
        foreign = [tmp_path / "notes.txt", tmp_path / ("0" * 24 + "-a.tar"), tmp_path / ".unfinished-other.tar-0"]
        for path in foreign:
            path.write_bytes(bytes(500))
        cache = cache_in(tmp_path, limit_bytes=2000)
        for name in "abc":
            get(cache, f"http://h/{name}", bytes(1000))
        for entry in cache.entries():
            assert cache.remove(entry)
        with cache.room():
            cache.remove_unfinished()
        assert sorted(tmp_path.iterdir()) == sorted(foreign)

    def test_a_limit_below_one_shard_is_an_error_with_both_numbers(self, tmp_path: Path) -> None:
        """CACHE-05."""
        cache = cache_in(tmp_path, limit_bytes=999)
        with pytest.raises(ConfigError, match=r"limit of 999 bytes is below one shard: http://h/a has 1000 bytes"):
            get(cache, "http://h/a", bytes(1000))
        assert list(tmp_path.iterdir()) == []

    def test_a_share_of_the_disk_is_a_limit_too(self, tmp_path: Path) -> None:
        cache = cache_in(tmp_path, limit_share_of_disk=1e-12)
        with pytest.raises(ConfigError, match="is below one shard"):
            get(cache, "http://h/a", bytes(1000))

    def test_what_was_over_the_limit_while_it_was_open_is_trimmed_afterwards(self, tmp_path: Path) -> None:
        cache = cache_in(tmp_path, limit_bytes=2500)
        held = [cache.get(WantedFile(f"http://h/{name}"), writing(bytes(1000))) for name in "abcd"]
        assert folder_bytes(tmp_path) > 2500
        for descriptor in held:
            os.close(descriptor)
        cache.trim()
        assert folder_bytes(tmp_path) <= 2500


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
