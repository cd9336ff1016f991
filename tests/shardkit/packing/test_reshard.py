"""Resharding processes that are killed and go on, and inputs that must not be written over."""

from __future__ import annotations

import gzip
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import settings

from shardkit import CheckOptions, PackConfig, PackError, check_shards, require_apart, seeded_words
from tests.helpers.shards import write_samples

# More of them with pytest --hypothesis-profile=thorough, as of the examples of a law.
NUM_MOMENTS = settings().max_examples // 10

# Arguments: the folder of the inputs, that of the output, the number of processes.
RESHARD = textwrap.dedent("""
    import sys
    from pathlib import Path
    from shardkit import PackConfig, Recode, Selection, open_shards, pack, plan_shards

    def main():
        out = Path(sys.argv[2])
        paths = sorted(str(path) for path in Path(sys.argv[1]).iterdir() if path.name.endswith((".tar", ".tgz")))
        recode = Recode(max_size_px=200, quality=90)
        config = PackConfig(folder=out, prefix="t", jobs=int(sys.argv[3]), on_exists="resume", recode=recode)
        print("begin", flush=True)
        with open_shards(paths, Selection(shuffle=True, share=0.9), unpack_to=out, prefix="t") as source:
            plan = plan_shards(source, prefix="t", num_shards=6)
            pack(source, plan, config=config, on_shard=lambda shard: print(shard.name, flush=True))

    if __name__ == "__main__":
        main()
""")


def start(inputs: Path, out: Path, *, jobs: int = 1) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RESHARD, str(inputs), str(out), str(jobs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended_well(process: subprocess.Popen[bytes]) -> bool:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return True


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder, hidden ones too, with its bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two plain shards and a gzip one, 60 samples in all."""
    folder = tmp_path_factory.mktemp("inputs")
    for number in range(3):
        path = write_samples(folder / f"s{number}.tar", 20, first=20 * number, size=(320, 240))
    (folder / "s2.tgz").write_bytes(gzip.compress(path.read_bytes(), 1))
    path.unlink()
    return folder


@pytest.fixture(scope="module")
def undisturbed(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert ended_well(start(inputs, folder))
    return contents(folder)


@pytest.mark.parametrize("moment", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, NUM_MOMENTS))])
def test_killed_at_any_moment_and_resumed_it_ends_like_an_undisturbed_run(
    tmp_path: Path, inputs: Path, undisturbed: dict[str, bytes], moment: int
) -> None:
    """MK-03 for reshard: kill -9 at a random moment, then at another; gzip that was unpacked leaves nothing."""
    jobs = 1 + moment % 2
    for words in seeded_words(4, key=(moment, "kill reshard")).reshape(2, 2):
        num_lines, share = int(words[0] % 7), float(words[1]) / 2**64
        process = start(inputs, tmp_path / "out", jobs=jobs)
        assert process.stdout is not None
        for _ in range(1 + num_lines):
            process.stdout.readline()
        try:
            # One process takes about 0.04 s for a shard; two take 0.5 s to begin.
            process.wait(share * (0.6 if jobs == 2 and not num_lines else 0.06))
        except subprocess.TimeoutExpired:
            process.kill()
        # The other end of its output closes with the last of its children.
        process.communicate(timeout=20)
        whole = [str(path) for path in sorted((tmp_path / "out").glob("*.tar"))]
        assert not [finding for report in check_shards(whole, CheckOptions()) for finding in report.findings]
    assert ended_well(start(inputs, tmp_path / "out", jobs=jobs))
    assert contents(tmp_path / "out") == undisturbed


def test_an_input_that_the_output_would_replace_is_refused(tmp_path: Path) -> None:
    config = PackConfig(folder=tmp_path, prefix="t")
    inside, outside = tmp_path / "t-000000.tar", tmp_path / "u-000000.tar"
    for path in (inside, outside):
        write_samples(path, 1)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.tar").symlink_to(inside)
    require_apart([str(outside)], config)
    for path in (inside, tmp_path / "elsewhere" / "x.tar", tmp_path / "elsewhere" / ".." / inside.name):
        with pytest.raises(PackError, match="Choose another folder or prefix"):
            require_apart([str(path)], config)
