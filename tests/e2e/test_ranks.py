"""torchrun, as on a cluster: a rank that dies once, and two "hosts" of which one is lost and comes back."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from resnettrain import find_checkpoint, read_metrics
from tests.helpers.checkpoints import assert_equal, learnt
from tests.helpers.cli import TINY, run_wds, wait_until
from tests.helpers.picture_sets import PictureSet, make_picture_set

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# Runs the command, and dies once, as rank 1 at its seventh step.
DIES_ONCE = """
import os, sys
from pathlib import Path
import torch
from torchvision.models.resnet import ResNet
from wds.app import main

died, steps = Path("died"), 0

def hook(module, inputs, output):
    global steps
    if isinstance(module, ResNet) and module.training and not output.is_meta:
        steps += 1
        if steps == 7:
            died.touch()
            os._exit(1)

if os.environ["RANK"] == "1" and not died.exists():
    torch.nn.modules.module.register_module_forward_hook(hook)
main()
"""
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> PictureSet:
    return make_picture_set(tmp_path_factory.mktemp("data"), counts=(53, 31, 17))


def arguments(shards: PictureSet, run_dir: str, *more: object) -> list[str]:
    args = ("train", "--urls", shards.manifest, *TINY, "--batch-size", 8, "--run-dir", run_dir, *more)
    return [str(arg) for arg in args]


def test_a_rank_that_dies_once_is_started_again_and_the_end_is_as_if_nothing_had_been(
    shards: PictureSet, tmp_path: Path
) -> None:
    script = tmp_path / "dies_once.py"
    script.write_text(DIES_ONCE)
    more = ("--epochs", 2, "--resume", "auto", "--set", "checkpoint.every_updates=3")
    launch = (*TORCHRUN, "--standalone", "--nproc-per-node=2", "--max-restarts=1")
    done = subprocess.run(
        [*launch, str(script), *arguments(shards, "run", *more)],
        cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert (done.returncode, (tmp_path / "died").exists()) == (0, True), done.stderr
    assert "resumed at 96 samples" in done.stderr
    alone = run_wds(*arguments(shards, "alone", "--epochs", 2, "--nproc", 2), cwd=tmp_path)
    assert alone.code == 0, alone.stderr
    first, second = (find_checkpoint(tmp_path / name)[0] for name in ("run", "alone"))
    assert_equal(learnt(first), learnt(second))
    steps = [line["samples"] for line in read_metrics(tmp_path / "run") if line["kind"] == "train"]
    assert steps == list(range(16, 193, 16))


# --------------------------------------------------------------------------------------------------------- two hosts


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Two network namespaces with a cable between them: 10.231.7.1 and .2."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and the program ip")
    names = (f"wds-a-{os.getpid()}", f"wds-b-{os.getpid()}")
    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ip("link", "add", "va", "netns", names[0], "type", "veth", "peer", "name", "vb", "netns", names[1])
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        for number, (name, device) in enumerate(zip(names, ("va", "vb"), strict=True), start=1):
            ip("-n", name, "addr", "add", f"10.231.7.{number}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@contextlib.contextmanager
def host(name: str, number: int, args: Sequence[str], *, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start torchrun with one rank on a host; all of it is killed at the end."""
    launch = (
        *TORCHRUN, "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=5", "--rdzv-backend=c10d",
        "--rdzv-endpoint=10.231.7.1:29400", "--rdzv-id=two", f"--local-addr=10.231.7.{number}",
        f"--rdzv-conf=is_host={2 - number},last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3",
    )  # fmt: skip
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": f"v{'ab'[number - 1]}",
        # Else torch 2.14 tells a host that comes later nowhere where the first one is.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    with (cwd / f"host-{number}.log").open("ab") as log:
        process = subprocess.Popen(
            ["ip", "netns", "exec", name, *launch, "--no-python", sys.executable, "-m", "wds", *args],
            cwd=cwd, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        kill_host(name)
        process.wait()


def kill_host(name: str) -> None:
    found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    for pid in map(int, found.stdout.split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_host_that_is_lost_is_done_without_and_taken_back(
    shards: PictureSet, tmp_path: Path, hosts: tuple[str, str]
) -> None:
    args = arguments(shards, "run", "--epochs", 400, "--resume", "auto", "--set", "checkpoint.every_updates=2")
    args += ["--set", "distributed.agree_every=1", "--set", "data.lanes=16"]
    log = tmp_path / "host-1.log"

    def count(words: str) -> int:
        return log.read_text().count(words) if log.exists() else 0

    with host(hosts[0], 1, args, cwd=tmp_path) as first:
        with host(hosts[1], 2, args, cwd=tmp_path):
            assert wait_until(lambda: count("on 2 ranks, 8 each") == 1, timeout_s=120)
            saved = tmp_path / "run" / "checkpoints"
            assert wait_until(lambda: saved.exists() and len(list(saved.glob("samples-*"))) > 1, timeout_s=60)
            # The cable is cut before its processes die, so that nobody is told.
            ip("-n", hosts[1], "link", "set", "vb", "down")
            kill_host(hosts[1])
        assert wait_until(lambda: count("on 1 rank,") == 1, timeout_s=120), log.read_text()[-3000:]
        assert "has given no sign of life" in log.read_text() or "is gone" in log.read_text()
        ip("-n", hosts[1], "link", "set", "vb", "up")
        with host(hosts[1], 2, args, cwd=tmp_path):
            assert wait_until(lambda: count("on 2 ranks, 8 each") == 2, timeout_s=120), log.read_text()[-3000:]
            os.kill(first.pid, signal.SIGTERM)
            first.wait(timeout=60)
    _, content = find_checkpoint(tmp_path / "run")
    assert content["identity"]["global_batch"] == 16
    steps = [line["samples"] for line in read_metrics(tmp_path / "run") if line["kind"] == "train"]
    assert steps == list(range(16, 16 * len(steps) + 1, 16))
