from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.cli import invoke
from tests.helpers.http_server import serve
from tests.helpers.shards import write_samples
from wdsloader import CacheConfig
from wdsloader.cache import WantedFile
from wdsloader.fetch import Fetcher


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache of two shards, one of them by a signed link, and a foreign file."""
    cache = tmp_path / "cache"
    for name in ("a", "b"):
        write_samples(tmp_path / f"far/{name}.tar", 3)
    with serve(tmp_path / "far") as server:
        fetcher = Fetcher(CacheConfig(folder=cache))
        for url in (server.url + "/a.tar", server.url.replace("//", "//me:SECRET@") + "/b.tar?sig=SECRET"):
            fetcher.open(WantedFile(url)).close()
    (cache / "notes.txt").write_text("mine")
    return cache


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.tar"))


def test_ls_shows_size_last_use_and_origin_without_secrets(folder: Path) -> None:
    ended = invoke("cache", "ls", folder)
    assert (ended.code, ended.stdout.count("\n")) == (0, 2)
    assert "/b.tar?sig=***" in ended.stdout
    assert "SECRET" not in ended.stdout + ended.stderr
    document = json.loads(invoke("cache", "ls", folder, "--json").stdout)
    assert len(document["files"]) == 2
    assert document["bytes"] == sum(file["bytes"] for file in document["files"])
    assert {file["file"] for file in document["files"]} == {str(path) for path in kept(folder)}


def test_verify_names_a_damaged_file_and_ends_with_1(folder: Path) -> None:
    """CACHE-04."""
    assert invoke("cache", "verify", folder).stdout == "2 files verified, 0 damaged\n"
    damaged = kept(folder)[0]
    before, data = damaged.stat(), bytearray(damaged.read_bytes())
    data[700] ^= 1
    damaged.write_bytes(data)
    os.utime(damaged, ns=(before.st_atime_ns, before.st_mtime_ns))
    ended = invoke("cache", "verify", folder)
    assert ended.code == 1
    assert f"{damaged}: is damaged: has checksum" in ended.stdout
    document = json.loads(invoke("cache", "verify", folder, "--remove", "--json").stdout)
    assert [file["removed"] for file in document["damaged"]] == [True]
    assert len(kept(folder)) == 1


def test_clear_removes_the_caches_own_files_alone(folder: Path) -> None:
    ended = invoke("cache", "clear", folder, "--dry-run")
    assert ended.stdout.startswith("would remove 2 files, ")
    assert len(kept(folder)) == 2
    assert invoke("cache", "clear", folder).stdout.startswith("removed 2 files, ")
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_clear_leaves_what_is_being_read(folder: Path) -> None:
    fetcher = Fetcher(CacheConfig(folder=folder))
    entry = fetcher.cache.entries()[0]
    url = entry.origin.url
    with open(entry.path, "rb") as file:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_SH)
        document = json.loads(invoke("cache", "clear", folder, "--json").stdout)
    assert (document["removed"], document["in_use"]) == (1, 1)
    assert [left.origin.url for left in fetcher.cache.entries()] == [url]


def test_a_folder_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    assert invoke("cache", "ls", tmp_path / "none").code == 2


@pytest.fixture
def read_only(folder: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder, where nobody can write, not even who may everything."""
    if os.geteuid() == 0:
        place = tmp_path / "read-only"
        place.mkdir()
        mounted = subprocess.run(["mount", "--bind", folder, place], capture_output=True, check=False).returncode == 0
        if not mounted or subprocess.run(["mount", "-o", "remount,ro,bind", place], check=False).returncode:
            pytest.skip("nothing can be mounted here, and root may write everywhere")
        yield place
        subprocess.run(["umount", place], check=True)
    else:
        folder.chmod(0o500)
        yield folder
        folder.chmod(0o700)


def test_a_read_only_folder_is_verified_and_not_cleared(read_only: Path) -> None:
    assert invoke("cache", "verify", read_only).stdout == "2 files verified, 0 damaged\n"
    ended = invoke("cache", "clear", read_only)
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"Error: {read_only}: the cache cannot be written: ")
    assert invoke("cache", "clear", read_only, "--dry-run").stdout.startswith("would remove 2 files")


def test_a_damaged_file_that_cannot_be_removed_is_said_to_be_kept(folder: Path, read_only: Path) -> None:
    damaged = kept(folder)[0]
    os.chmod(folder, 0o700)
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    os.chmod(folder, 0o500)
    ended = invoke("cache", "verify", read_only, "--remove")
    assert (ended.code, "(kept: it is being read, or the folder cannot be written)" in ended.stdout) == (1, True)
