from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.helpers.cli import Ended, invoke, run_script, run_wds
from tests.helpers.shards import write_samples

ROOT = Path(__file__).parents[2]
# Runs the command as the console script does, then says which of the heavy modules it has brought in.
HEAVY = """
import atexit, sys
names = ("torch", "torchvision", "numpy", "PIL", "webdataset", "pydantic")
atexit.register(lambda: print("loaded:", *(name for name in names if name in sys.modules), file=sys.stderr))
from wds.app import main
main()
"""
# Runs one command after the other where nothing is installed that is an extra, and says after each whether torch is in.
REFUSED = """
import importlib.util, shlex, sys
real = importlib.util.find_spec
apart = ("tensorboard", "onnx", "onnxruntime", "onnxscript", "safetensors")
importlib.util.find_spec = lambda name, package=None: None if name in apart else real(name, package)
from wds.app import main
for line in sys.argv[1:]:
    sys.argv = ["wds", *shlex.split(line)]
    try:
        main()
    except SystemExit as end:
        print(line, end.code, "torch" in sys.modules, file=sys.stderr)
"""
# A command with a bug in it, mounted beside the real ones.
BUG = """
from wds.app import app, main
@app.command()
def bug() -> None:
    token = "SECRET"
    raise ZeroDivisionError("a bug")
main()
"""


def test_the_help_loads_nothing_heavy(tmp_path: Path) -> None:
    ended = run_script(HEAVY, cwd=tmp_path, args=["--help"])
    assert (ended.code, ended.stderr.strip()) == (0, "loaded:")


@pytest.mark.parametrize("command", ["make-shards", "inspect", "train"])
def test_the_help_of_a_command_loads_nothing_heavy(tmp_path: Path, command: str) -> None:
    ended = run_script(HEAVY, cwd=tmp_path, args=[command, "--help"])
    # Typer itself brings in pydantic as soon as it reads an option.
    assert (ended.code, ended.stderr.split()[1:]) == (0, ["pydantic"])


def test_a_pattern_that_matches_nothing_is_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    ended = run_script(HEAVY, cwd=tmp_path, args=["train", "--urls", "none-*.tar"])
    assert ended.code == 2
    assert "Error: none-*.tar: no file matches" in ended.stderr
    assert "torch" not in ended.stderr.splitlines()[-1]


def test_what_is_wrong_with_settings_or_lacks_an_extra_is_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "s.tar", 2)
    (tmp_path / "run").mkdir()
    lines = [
        "train",
        f"train {shard} --set optim.lr=abc",
        f"train {shard} --set optim.lrr=1",
        f"train {shard} --device tpu",
        f"train {shard} --synthetic",
        f"train {shard} --recipe seed --on-error skip",
        f"train {shard} --tensorboard",
        f"train {shard} --nproc 2 --set optim.lr=abc",
        f"train {shard} --resume auto",
        "train --resume none",
        f"lr-find {shard} --device tpu",
        f"predict {shard} --checkpoint run --device tpu",
        "export run --format onnx",
        "export run",
    ]
    ended = run_script(REFUSED, cwd=tmp_path, args=lines)
    said = [line for line in ended.stderr.splitlines() if not line.startswith("Error: ")]
    assert said == [f"{line} 2 False" for line in lines]
    assert ended.stderr.count("Error: ") == len(lines)


def test_the_help_names_every_command_and_the_exit_codes(tmp_path: Path) -> None:
    ended = run_wds("--help", cwd=tmp_path)
    assert ended.code == 0
    for word in ("make-shards", "inspect", "validate", "index", "train", "eval", "demo", "130", "143", "141"):
        assert word in ended.stdout


@pytest.mark.parametrize("command", ["make-shards", "run-plan", "inspect", "validate", "index", "stats", "train"])
def test_the_help_of_a_command_ends_with_the_exit_codes(command: str) -> None:
    assert invoke(command, "--help").stdout.rstrip().endswith("141 closed pipe.")


def test_defaults_that_depend_on_other_options_are_in_the_help() -> None:
    assert "imagenet-SPLIT" in invoke("make-shards", "--help").stdout
    assert "0.1 x batch / 256" in invoke("train", "--help").stdout


def test_the_console_script_is_the_same_program() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts == {"wds": "wds.app:main"}
    script = Path(sys.executable).with_name("wds")
    if not script.exists():
        pytest.skip("wds is not installed beside this Python")
    ended = subprocess.run([script, "--help"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    assert "make-shards" in ended.stdout


@pytest.mark.parametrize(
    "args", [["nonsense"], ["inspect"], ["inspect", "--nonsense", "a.tar"], ["-v", "LOUD", "demo"]]
)
def test_wrong_use_is_one_line_that_points_to_the_help(args: list[str]) -> None:
    ended = invoke(*args)
    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert re.fullmatch(r"Error: .+[.?] See: wds.* --help\n", ended.stderr)


def test_without_a_command_the_help_is_shown_and_ends_with_2() -> None:
    ended = invoke()
    assert ended.code == 2
    assert "make-shards" in ended.stdout + ended.stderr


def test_a_known_error_is_one_line_on_stderr() -> None:
    ended = invoke("inspect", "none.tar")
    assert (ended.code, ended.stdout, ended.stderr) == (2, "", "Error: none.tar: no such file. Check the path\n")


def test_a_known_error_shows_its_traceback_on_request(tmp_path: Path) -> None:
    ended = run_wds("inspect", "none.tar", cwd=tmp_path, env={"WDS_DEBUG": "1"})
    assert ended.code == 2
    assert ended.stderr.startswith("Traceback")
    assert ended.stderr.endswith(
        "PatternError: none.tar: no such file. Check the path\nError: none.tar: no such file. Check the path\n"
    )


def test_a_bug_keeps_its_traceback_and_shows_no_values(tmp_path: Path) -> None:
    ended = run_script(BUG, cwd=tmp_path, args=["bug"])
    assert ended.code == 1
    assert ended.stderr.startswith("Traceback")
    assert "ZeroDivisionError: a bug" in ended.stderr
    assert "SECRET" not in ended.stderr.replace('token = "SECRET"', "")


def test_a_file_that_cannot_be_read_is_named_in_words(tmp_path: Path) -> None:
    (tmp_path / "list.txt").mkdir()
    ended = invoke("inspect", f"@{tmp_path}/list.txt")
    assert (ended.code, ended.stderr.count("\n")) == (2, 1)
    assert "list.txt: the list cannot be read: Is a directory" in ended.stderr


def test_secrets_in_urls_are_masked_in_errors() -> None:
    ended = invoke("train", "--urls", "https://user:SECRET1@host/x-*.tar?token=SECRET2")
    assert ended.code == 2
    assert "https://***@host/x-*.tar?token=***: shards cannot be listed over http" in ended.stderr


def test_quiet_leaves_out_notes_and_keeps_data(tmp_path: Path) -> None:
    args = ("make-shards", "--count", 1, "--shard-size", 2, "--size", "32x32", "--out")
    loud, quiet = invoke(*args, tmp_path / "a"), invoke("-q", *args, tmp_path / "b")
    assert "Look at one" in loud.stderr
    assert quiet.stderr == ""
    assert quiet.stdout.replace("/b/", "/a/") == loud.stdout


def test_verbosity_is_taken_by_name_in_any_case(tmp_path: Path) -> None:
    shard = write_samples(tmp_path / "a.tar", 2)
    for level in ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "debug"):
        assert invoke("--verbosity", level, "inspect", shard).code == 0


def test_a_level_that_does_not_exist_is_refused_with_the_ones_that_do() -> None:
    ended = invoke("-v", "LOUD", "inspect", "a.tar")
    assert ended.code == 2
    assert "CRITICAL, ERROR, WARNING, INFO or DEBUG" in ended.stderr


@pytest.mark.parametrize("args", [("--help",), ("train", "--help"), ("inspect", "a.tar")])
def test_a_closed_pipe_ends_quietly_with_141(tmp_path: Path, args: tuple[str, ...]) -> None:
    write_samples(tmp_path / "a.tar", 2)
    reader, writer = os.pipe()
    os.close(reader)  # as `head` does once it has seen enough
    try:
        command = [sys.executable, "-m", "wds", *args]
        ended = subprocess.run(
            command, cwd=tmp_path, env=_buffering(), stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("make-shards", "--out", "", "--count", 1), "--out"),
        (("make-shards", "--out=", "--count", 1), "--out"),
        (("make-shards", "-o", ""), "-o"),
        (("make-shards", "--from-folder", "", "--out", "x"), "--from-folder"),
        (("make-shards", "--prefix", "", "--count", 1), "--prefix"),
        (("make-shards", "--shard-size", ""), "--shard-size"),
        (("index", "a.tar", "--out", ""), "--out"),
        (("repair", "a.tar", "--out", ""), "--out"),
        (("reshard", "a.tar", "--out", "x", "--keys", ""), "--keys"),
        (("inspect", "a.tar", "--html="), "--html"),
        (("validate", "a.tar", "--ignore", ""), "--ignore"),
    ],
)
def test_an_empty_value_is_refused_and_means_neither_here_nor_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_samples(tmp_path / "a.tar", 1)
    ended = invoke(*words)
    assert (ended.code, ended.stdout) == (2, "")
    assert f"Invalid value for {option}: is empty" in ended.stderr.replace("'", "")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


def test_an_empty_pattern_behind_a_switch_is_told_as_one(tmp_path: Path) -> None:
    ended = invoke("inspect", "--json", "")
    assert (ended.code, "empty shard pattern" in ended.stderr) == (2, True)


def _buffering() -> dict[str, str]:
    """Return the environment in which Python keeps for its end what stdout does not take."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("words", [("inspect", "a.tar"), ("--help",)])
def test_a_full_disk_behind_stdout_is_an_error_that_says_so(tmp_path: Path, words: tuple[str, ...]) -> None:
    write_samples(tmp_path / "a.tar", 1)
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "wds", *words],
            cwd=tmp_path,
            env=_buffering(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (1, "Error: standard output: No space left on device\n")


def test_the_version_is_that_of_the_distribution() -> None:
    assert invoke("--version") == Ended(0, f"wds {version('wds')}\n", "")
