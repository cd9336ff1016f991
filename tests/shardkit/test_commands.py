from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from shardkit import RemoteError
from shardkit.commands import CommandStream


def read_all(command: str) -> tuple[bytes, str | None]:
    stream = CommandStream(f"pipe:{command}")
    try:
        return b"".join(iter(lambda: stream.read(4096), b"")), stream.failure
    finally:
        stream.close()


def test_a_command_that_ends_well_gives_its_output() -> None:
    assert read_all("printf abc; echo fine >&2") == (b"abc", None)


def test_a_command_that_fails_after_all_its_output_is_a_failure() -> None:
    """PIPE-01."""
    failure = "the command ended with status 3 after 3 bytes; it said 'two / three / four'"
    assert read_all("printf 'one\\ntwo\\nthree\\nfour' >&2; printf abc; exit 3") == (b"abc", failure)


def test_a_command_that_is_killed_is_a_failure() -> None:
    assert read_all("printf abc; kill -9 $$") == (b"abc", "the command ended with signal 9 after 3 bytes")


def test_a_command_that_complains_without_end_is_not_waited_for() -> None:
    output, failure = read_all("head -c 3000000 /dev/zero >&2; printf abc; exit 1")
    assert output == b"abc"
    assert failure is not None
    assert len(failure) < 1500


def test_what_a_command_says_is_shown_without_secrets_and_escapes() -> None:
    failure = read_all("printf 'GET http://me:SECRET@h/a \\033[31m' >&2; exit 1")[1]
    assert str(failure).endswith(r"it said 'GET http://***@h/a \x1b[31m'")


def test_no_command_is_an_error() -> None:
    with pytest.raises(RemoteError, match="there is no command"):
        CommandStream("pipe: ")


def test_closing_ends_all_that_the_command_started(tmp_path: Path) -> None:
    """CACHE-01: no process and no descriptor is left."""
    descriptors = len(os.listdir("/proc/self/fd"))
    for number in range(5):
        stream = CommandStream(f"pipe:echo $$ > {tmp_path}/{number}; sleep 60 | cat; cat /dev/zero")
        while not (tmp_path / str(number)).exists() or not (tmp_path / str(number)).read_text():
            time.sleep(0.01)
        stream.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    groups = {(tmp_path / str(number)).read_text().strip() for number in range(5)}
    alive = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
    assert not {line.split()[0] for line in alive.splitlines() if "Z" not in line.split()[1]} & groups
