from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from wdsloader.temporary_folder import TemporaryFolder

HOLDS_ONE = """
import time
from pathlib import Path
from wdsloader.temporary_folder import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "shard.tar").write_bytes(b"x")
print(folder.path, flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_is_removed_by_the_next_and_nothing_of_a_living_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(place))
    with subprocess.Popen([sys.executable, "-c", HOLDS_ONE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        first = TemporaryFolder()
        assert (left / "shard.tar").exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
        second = TemporaryFolder()
        assert not left.exists()
        assert {path.name for path in place.iterdir()} == {first.path.name, second.path.name}


def test_a_folder_that_another_process_is_removing_is_not_taken(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = tempfile.mkdtemp
    taken: list[tuple[str, int]] = []

    def make_and_lose(*args: str | None) -> str:
        folder = make(*args)
        if not taken:
            taken.append((folder, os.open(folder, os.O_RDONLY)))
            fcntl.flock(taken[0][1], fcntl.LOCK_EX)
        return folder

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose)
    folder = TemporaryFolder()
    ((lost, descriptor),) = taken
    assert folder.path != Path(lost)
    folder.remove()
    os.close(descriptor)
    assert os.listdir("/proc/self/fd") == before


def test_removing_it_twice_does_no_harm(place: Path) -> None:
    folder = TemporaryFolder()
    (folder.path / "shard.tar").write_bytes(b"x")
    folder.remove()
    folder.remove()
    assert list(place.iterdir()) == []


def test_a_folder_that_is_dropped_is_removed(place: Path) -> None:
    path = TemporaryFolder().path
    assert not path.exists()
    assert list(place.iterdir()) == []


def test_what_only_has_the_name_of_one_stays(place: Path) -> None:
    (place / "mine").mkdir()
    (place / "wdsloader-cache-link").symlink_to(place / "mine")
    (place / "wdsloader-cache-file").write_text("mine")
    TemporaryFolder().remove()
    assert len(list(place.iterdir())) == 3
