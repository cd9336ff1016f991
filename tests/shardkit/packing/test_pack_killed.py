"""Packing processes that are killed, or that meet in one folder."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import settings

from shardkit import CheckOptions, check_shards, index_path_of, seeded_words

# More of them with pytest --hypothesis-profile=thorough, as of the examples of a law.
NUM_MOMENTS = settings().max_examples // 10

# Arguments: the folder, the number of processes, and what to do with what exists.
PACK = textwrap.dedent("""
    import sys
    from pathlib import Path
    from shardkit import FakeImageNet, FakeSource, PackConfig, pack, plan_shards

    def main():
        source = FakeSource(FakeImageNet(num_samples=60, num_classes=3, size=(320, 240), sizes="fixed"))
        config = PackConfig(folder=Path(sys.argv[1]), prefix="t", jobs=int(sys.argv[2]), on_exists=sys.argv[3])
        plan = plan_shards(source, prefix="t", num_shards=6)
        print("begin", flush=True)
        pack(source, plan, config=config, on_shard=lambda shard: print(shard.name, flush=True))

    if __name__ == "__main__":
        main()
""")


def start(folder: Path, *, jobs: int = 1, on_exists: str = "fail") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PACK, str(folder), str(jobs), on_exists]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def kill_after_the_first_shard(process: subprocess.Popen[bytes], *, wait_s: float) -> None:
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == [b"begin\n", b"t-000000.tar\n"]
    kill_later(process, after_s=wait_s)
    assert process.returncode == -signal.SIGKILL


def kill_later(process: subprocess.Popen[bytes], *, after_s: float) -> None:
    """Kill the process after some time, if it runs so long, and wait until its children are gone too."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
    process.kill()
    # The other end of its output closes with the last of them.
    process.communicate(timeout=20)


def ended_well(process: subprocess.Popen[bytes]) -> bool:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return True


def index_of(shard: Path) -> Path:
    return Path(index_path_of(str(shard)))


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder, hidden ones too, with its bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def problems(folder: Path) -> list[str]:
    """Return what validation says of every file with a shard's name."""
    shards = [str(path) for path in sorted(folder.glob("*.tar"))]
    return [finding.rule for report in check_shards(shards, CheckOptions()) for finding in report.findings]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert ended_well(start(folder))
    return contents(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "wait_s"), [(1, 0.0), (2, 0.03)])
def test_what_has_a_final_name_is_whole_and_beginning_again_ends_like_an_undisturbed_run(
    tmp_path: Path, undisturbed: dict[str, bytes], jobs: int, wait_s: float
) -> None:
    """MK-03."""
    process = start(tmp_path, jobs=jobs)
    kill_after_the_first_shard(process, wait_s=wait_s)
    assert problems(tmp_path) == []
    assert "t.manifest.json" not in contents(tmp_path)
    assert ended_well(start(tmp_path, jobs=jobs, on_exists="overwrite"))
    assert contents(tmp_path) == undisturbed


@pytest.mark.parametrize("moment", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, NUM_MOMENTS))])
def test_killed_at_any_moment_and_resumed_it_ends_like_an_undisturbed_run(
    tmp_path: Path, undisturbed: dict[str, bytes], moment: int
) -> None:
    """MK-03, with kill -9 at a random moment, then at another, of one process or of two that pack together."""
    jobs = 1 + moment % 2
    for words in seeded_words(4, key=(moment, "kill")).reshape(2, 2):
        num_lines, share = int(words[0] % 7), float(words[1]) / 2**64
        process = start(tmp_path, jobs=jobs, on_exists="resume")
        assert process.stdout is not None
        for _ in range(1 + num_lines):
            process.stdout.readline()
        # One process takes about 0.04 s for a shard; two take 0.5 s to begin.
        kill_later(process, after_s=share * (0.6 if jobs == 2 and not num_lines else 0.06))
        assert problems(tmp_path) == []
    assert ended_well(start(tmp_path, jobs=jobs, on_exists="resume"))
    assert contents(tmp_path) == undisturbed


def test_what_was_finished_is_not_made_again(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    kill_after_the_first_shard(start(tmp_path), wait_s=0.0)
    kept = {path.name: path.stat().st_ino for path in tmp_path.glob("*.tar") if index_of(path).exists()}
    assert "t-000000.tar" in kept
    assert ended_well(start(tmp_path, on_exists="resume"))
    assert contents(tmp_path) == undisturbed
    assert all((tmp_path / name).stat().st_ino == number for name, number in kept.items())


@pytest.mark.slow
def test_worker_processes_end_with_their_parent(tmp_path: Path) -> None:
    process = start(tmp_path, jobs=2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        process.communicate()
        pytest.skip("no list of children here")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == [b"begin\n", b"t-000000.tar\n"]
    workers = [Path(f"/proc/{number}") for number in children.read_text(encoding="ascii").split()]
    assert workers
    process.kill()
    # The other end of its output closes with the last of them.
    process.communicate(timeout=20)
    deadline = time.monotonic() + 20
    while any(worker.exists() for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [worker for worker in workers if worker.exists()]


@pytest.mark.parametrize("on_exists", ["fail", "overwrite"])
def test_of_two_packings_started_together_one_wins_and_the_result_is_whole(
    tmp_path: Path, undisturbed: dict[str, bytes], on_exists: str
) -> None:
    both = [start(tmp_path / "out", on_exists=on_exists) for _ in range(2)]
    errors = b"".join(process.communicate(timeout=60)[1] for process in both)
    codes = sorted(process.returncode for process in both)
    # Where one starts when the other has ended, it may overwrite, if told; together, one is refused.
    assert codes == [0, 1] or (codes == [0, 0] and on_exists == "overwrite"), errors
    assert (b"OutputExistsError" in errors) is (codes == [0, 1])
    assert contents(tmp_path / "out") == undisturbed
