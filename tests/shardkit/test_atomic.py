from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from shardkit import OutputExistsError
from shardkit.atomic import atomic_file, exclusive, remove_leftovers, shared, sync_folder, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_file_has_its_name_when_the_block_ends_and_not_before(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "x.tar", replace=False) as file:
        file.write(b"data")
        assert not (tmp_path / "x.tar").exists()
    assert names(tmp_path) == ["x.tar"]
    assert (tmp_path / "x.tar").read_bytes() == b"data"


def test_an_unfinished_file_is_hidden_from_globs(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "x.tar", replace=False):
        assert [name[0] for name in names(tmp_path)] == ["."]
        assert list(tmp_path.glob("x*")) == []


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), atomic_file(tmp_path / "x.tar", replace=False):
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_an_error_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), atomic_file(path, replace=True) as file:
        file.write("no bytes")  # type: ignore[call-overload]  # this is the error
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["x.tar"]


def test_a_file_that_is_there_is_not_replaced_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(b"old")
    with pytest.raises(OutputExistsError, match=r"x\.tar exists"):
        write_atomically(path, b"new", replace=False)
    assert path.read_bytes() == b"old"
    write_atomically(path, b"new", replace=True)
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["x.tar"]


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with pytest.raises(OutputExistsError), atomic_file(path, replace=False):
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"theirs"
    assert names(tmp_path) == ["x.tar"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_file_is_as_public_as_the_umask_says(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "x", b"", replace=False)
        assert (tmp_path / "x").stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_file_that_replaces_another_is_as_public_as_that_one_was(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    path.chmod(mode)
    with atomic_file(path, replace=True) as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == mode
    assert path.stat().st_mode & 0o777 == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_replaces_another_belongs_to_the_same_user(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    os.chown(path, 1234, 1235)
    write_atomically(path, b"new", replace=True)
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1235)


def test_an_error_names_the_file_and_not_the_hidden_one(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long") as caught:
        write_atomically(tmp_path / ("x" * 250), b"", replace=True)
    assert caught.value.filename == str(tmp_path / ("x" * 250))


def test_a_folder_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"):
        write_atomically(tmp_path / "none" / "x", b"", replace=False)


def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: .*x\.tar"):
            write_atomically(tmp_path / "x.tar", bytes(2000), replace=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert names(tmp_path) == []


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    code = """
        import os, sys
        from pathlib import Path
        from shardkit.atomic import atomic_file, exclusive
        with exclusive(Path(sys.argv[1]), name="t"), atomic_file(Path(sys.argv[1], "t-000000.tar"), replace=False) as f:
            f.write(b"part"); f.flush(); os.kill(os.getpid(), 9)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], check=False)
    assert done.returncode == -9
    assert len(names(tmp_path)) == 2
    assert len(remove_leftovers(tmp_path, name_prefix="t")) == 2
    assert names(tmp_path) == []


def test_a_file_that_is_being_written_is_no_leftover(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "t-000000.tar", replace=False) as file:
        file.write(b"data")
        assert remove_leftovers(tmp_path, name_prefix="t") == []
    assert names(tmp_path) == ["t-000000.tar"]


def test_who_clears_leftovers_all_the_time_takes_no_file_that_was_just_begun(tmp_path: Path) -> None:
    # Between creating and locking it, a file looks like a leftover. 1 in 40 was taken away.
    ended = threading.Event()

    def clear() -> None:
        while not ended.is_set():
            remove_leftovers(tmp_path, name_prefix="a")

    clearing = [threading.Thread(target=clear) for _ in range(2)]
    for thread in clearing:
        thread.start()
    try:
        for number in range(120):
            write_atomically(tmp_path / f"ab-{number}", b"x", replace=number % 2 == 0)
    finally:
        ended.set()
        for thread in clearing:
            thread.join()
    assert len(names(tmp_path)) == 120


def test_leftovers_of_other_names_stay(tmp_path: Path) -> None:
    (tmp_path / ".unfinished-other-000000.tar-00").touch()
    (tmp_path / "t-000000.tar").touch()
    assert remove_leftovers(tmp_path, name_prefix="t") == []
    assert len(names(tmp_path)) == 2


def test_a_prefix_with_signs_of_globs_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / ".unfinished-a-0").touch()
    assert remove_leftovers(tmp_path, name_prefix="[a]") == []


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    with exclusive(tmp_path, name="t"):
        with (
            pytest.raises(OutputExistsError, match="another process is writing 't' there"),
            exclusive(tmp_path, name="t"),
        ):
            pytest.fail("two holders")
        with exclusive(tmp_path, name="v"):
            pass
    with exclusive(tmp_path, name="t"):
        pass
    assert names(tmp_path) == []


def test_a_stale_lock_file_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / ".unfinished-t.lock").touch()
    with exclusive(tmp_path, name="t"):
        assert names(tmp_path) == [".unfinished-t.lock"]
    assert names(tmp_path) == []


def test_a_lock_whose_file_was_removed_does_not_count(tmp_path: Path) -> None:
    with exclusive(tmp_path, name="t"):
        (tmp_path / ".unfinished-t.lock").unlink()
        with exclusive(tmp_path, name="t"):
            assert names(tmp_path) == [".unfinished-t.lock"]


def test_a_folder_can_be_made_durable(tmp_path: Path) -> None:
    sync_folder(tmp_path)


def test_several_may_share_and_nobody_is_alone_meanwhile(tmp_path: Path) -> None:
    with shared(tmp_path, name="t"):
        with shared(tmp_path, name="t"), pytest.raises(OutputExistsError), exclusive(tmp_path, name="t"):
            pass
        with pytest.raises(OutputExistsError), exclusive(tmp_path, name="t"):
            pass
    assert names(tmp_path) == []
    with exclusive(tmp_path, name="t"):
        with pytest.raises(OutputExistsError, match="another process is writing 't'"), shared(tmp_path, name="t"):
            pass
        with shared(tmp_path, name="u"):
            pass
    assert names(tmp_path) == []


def test_whoever_waits_comes_in_when_the_other_has_left(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with exclusive(tmp_path, name="t", wait=True):
            order.append("second")

    thread = threading.Thread(target=second)
    with exclusive(tmp_path, name="t"):
        thread.start()
        thread.join(0.2)
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"]
    assert names(tmp_path) == []
