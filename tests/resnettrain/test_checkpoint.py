from __future__ import annotations

import errno
import logging
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from resnettrain import (
    CheckpointError,
    UnsafeCheckpointError,
    find_checkpoint,
    latest,
    list_checkpoints,
    read_checkpoint,
)
from resnettrain.checkpoint import (
    CheckpointWriter,
    SaveClock,
    checkpoint_path,
    remove_unfinished,
    rotate,
    write_checkpoint,
)
from tests.helpers.cli import wait_until

# Forks a child that saves for ever, kills it some milliseconds into a save, again and again; prints what was complete.
KILLS = """
import os, signal, sys, time
from pathlib import Path
import torch
from resnettrain.checkpoint import CheckpointWriter
folder = Path(sys.argv[1])
for number in range(int(sys.argv[2])):
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        run_dir = folder / str(number)
        writer = CheckpointWriter(run_dir, keep=3, background=number % 2 == 0)
        weights = torch.zeros(3 * 10**5)
        for samples in range(10**6):
            writer.write({"samples": samples, "weights": weights}, samples=samples, is_best=samples % 5 == 0)
            for _ in writer.written():
                os.write(sender, b"b")
    saves = number % 3 + 1
    for _ in range(saves):
        os.read(receiver, 1)
    time.sleep(0.0007 * number)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(sender)
    more = len(os.read(receiver, 10**6))
    print(saves + more, flush=True)
"""


class Trap:
    """Unpickling this makes a file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.canary),)


def save(run_dir: Path, samples: int) -> Path:
    path = checkpoint_path(run_dir / "checkpoints", samples=samples)
    write_checkpoint(path, {"samples": samples, "weights": torch.arange(1000.0)})
    return path


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    content = read_checkpoint(save(tmp_path, 7))
    assert content["samples"] == 7
    assert torch.equal(content["weights"], torch.arange(1000.0))


def test_the_newest_is_found_by_folder_and_any_by_file(tmp_path: Path) -> None:
    first, second = save(tmp_path, 9), save(tmp_path, 10)
    assert find_checkpoint(tmp_path)[0] == second
    assert find_checkpoint(first)[0] == first


def test_nothing_there_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", tmp_path / "none.pt"):
        with pytest.raises(CheckpointError, match="there is no"):
            find_checkpoint(path)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_newest_is_passed_over_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    good, bad = save(tmp_path, 1), save(tmp_path, 2)
    data = bytearray(bad.read_bytes())
    data[len(data) // 2] ^= 1
    bad.write_bytes({"cut": bytes(data[:-700]), "flip": bytes(data), "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        assert latest(tmp_path)[0] == good
    assert bad.name in caplog.text
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(bad)


def test_a_file_with_code_in_it_is_refused_and_its_code_not_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    bare, zipped = tmp_path / "bare.pt", tmp_path / "zipped.pt"
    bare.write_bytes(pickle.dumps(Trap(canary)))
    torch.save({"model": Trap(canary)}, zipped)
    for path in (bare, zipped):
        with pytest.raises(UnsafeCheckpointError, match="not a safe checkpoint"):
            read_checkpoint(path)
    assert not canary.exists()


def test_a_newest_that_is_a_folder_is_passed_over(tmp_path: Path) -> None:
    good = save(tmp_path, 1)
    good.with_name(good.name.replace("1.pt", "2.pt")).mkdir()
    assert latest(tmp_path)[0] == good


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    paths = [save(tmp_path, samples) for samples in (5, 50, 500, 5000)]
    rotate(tmp_path, newest=paths[3], keep=2)
    assert list_checkpoints(tmp_path) == paths[2:]


def test_checkpoints_of_a_future_that_was_left_go_with_the_first_save_of_the_new_one(tmp_path: Path) -> None:
    paths = [save(tmp_path, samples) for samples in (5, 50, 500, 5000)]
    rotate(tmp_path, newest=paths[1], keep=1)
    assert list_checkpoints(tmp_path) == [paths[1]]


def test_a_full_disk_leaves_the_earlier_file_and_nothing_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, 1)
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=f"{path.name}: could not be written .No space left"):
        save(tmp_path, 1)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_save_is_on_the_disk_before_it_takes_its_name_and_its_name_is_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def tell_fsync(handle: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def tell_replace(source: Path, target: Path) -> None:
        steps.append("name")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", tell_fsync)
    monkeypatch.setattr(os, "replace", tell_replace)
    save(tmp_path, 1)
    assert steps == ["file", "name", "folder"]


@pytest.mark.slow
def test_after_kill_9_while_saving_the_newest_complete_one_is_found(tmp_path: Path) -> None:
    """TRN-03."""
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(tmp_path), "30"], capture_output=True, check=True, text=True, timeout=120
    )
    told = list(map(int, done.stdout.split()))
    assert len(told) == 30
    for number, complete in enumerate(told):
        run_dir = tmp_path / str(number)
        path, content = latest(run_dir)
        # Of the last ones nobody had time to tell.
        assert content["samples"] in {complete - 1, complete, complete + 1}
        assert path == list_checkpoints(run_dir)[-1]
        assert read_checkpoint(path.with_name("best.pt"))["samples"] % 5 == 0
        remove_unfinished(run_dir)
        assert {item.name[:8] for item in path.parent.iterdir()} - {".best.pt"} == {"samples-", "best.pt"}


# ---------------------------------------------------------------------------------------------- beside the loop


def writer_of(run_dir: Path, *, keep: int = 2) -> CheckpointWriter:
    return CheckpointWriter(run_dir, keep=keep, background=True)


def test_what_changes_after_a_save_has_begun_is_not_in_it(tmp_path: Path) -> None:
    writer, weights = writer_of(tmp_path), torch.zeros(10**6)
    path = writer.write({"weights": weights, "steps": [weights]}, samples=1)
    weights += 1
    writer.wait()
    content = read_checkpoint(path)
    assert int(content["weights"].sum()) == int(content["steps"][0].sum()) == 0
    assert writer.written() == [(path, 1)]
    assert writer.written() == []


def test_the_best_one_is_kept_beside_the_newest(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    for samples in range(1, 6):
        writer.write({"samples": samples}, samples=samples, is_best=samples == 2)
    writer.wait()
    assert [read_checkpoint(path)["samples"] for path in list_checkpoints(tmp_path)] == [4, 5]
    assert read_checkpoint(tmp_path / "checkpoints" / "best.pt")["samples"] == 2
    assert latest(tmp_path)[1]["samples"] == 5


@pytest.mark.parametrize("method", ["write", "written", "wait"])
def test_a_save_that_fails_beside_the_loop_is_an_error_at_the_next_call(tmp_path: Path, method: str) -> None:
    writer = writer_of(tmp_path)
    (tmp_path / "checkpoints").touch()
    writer.write({"samples": 2}, samples=2)
    calls = {"write": lambda: writer.write({}, samples=3), "written": writer.written, "wait": writer.wait}

    def call_until_it_fails() -> None:
        assert wait_until(lambda: calls[method]() == 0)

    with pytest.raises(CheckpointError, match=r"samples-00000000000002\.pt: could not be written"):
        call_until_it_fails()
    writer.wait()


def test_a_checkpoint_is_due_so_many_minutes_after_the_last_one_and_with_0_never() -> None:
    times = [100.0, 219.0, 220.0, 500.0, 619.0, 620.0]
    clock = SaveClock(every_minutes=2.0, clock=lambda: times.pop(0))
    found = [clock.is_due(), clock.is_due()]
    clock.restart()
    assert [*found, clock.is_due(), clock.is_due()] == [False, True, False, True]
    assert not SaveClock(every_minutes=0.0, clock=iter((0.0, 1e9)).__next__).is_due()
