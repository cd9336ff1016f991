from __future__ import annotations

from pathlib import Path

import pytest

from shardkit import PatternError
from tests.helpers.cli import invoke
from tests.helpers.shards import write_samples
from wds.patterns import local_shards, shards_to_read
from wdsloader import DatasetError


def test_shards_to_read_may_lie_anywhere(tmp_path: Path) -> None:
    path = str(write_samples(tmp_path / "a.tar", 1))
    names = ["http://h/a-{0..1}.tar", "s3://b/a.tar", path]
    assert shards_to_read(names).shards == ["http://h/a-0.tar", "http://h/a-1.tar", "s3://b/a.tar", path]


def test_shards_that_are_named_twice_are_pointed_out(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.tar", 2)
    ended = invoke("stats", path, path, "--jobs", 1)
    assert ended.stderr.startswith("warning: 1 shard named more than once: each counts as often as it is named\n")
    assert "named more" not in invoke("stats", path, "--jobs", 1).stderr


def test_a_command_needs_leave() -> None:
    with pytest.raises(PatternError, match="only with --allow-commands"):
        shards_to_read(["pipe:cat a.tar"], allow_commands=False)
    with pytest.raises(PatternError, match="no command is run here"):
        shards_to_read(["pipe:cat a.tar"])
    assert shards_to_read(["pipe:cat a.tar"], allow_commands=True).shards == ["pipe:cat a.tar"]


@pytest.mark.parametrize(
    ("shard", "what_to_do"),
    [
        ("http://h/a.tar", "Fetch the shard first"),
        ("s3://b/a.tar", "Fetch the shard first"),
        ("pipe:cat a.tar", "Write the command's output to a file first"),
    ],
)
@pytest.mark.parametrize("command", ["repair", "reshard"])
def test_what_reads_at_random_wants_local_shards(tmp_path: Path, command: str, shard: str, what_to_do: str) -> None:
    ended = invoke(command, shard, "--out", tmp_path / "o")
    words = f"Error: {shard}: this needs local shards, which it reads at random. {what_to_do}\n"
    assert (ended.code, ended.stderr) == (2, words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("reshard", "{shard}", "--out", "o", "--keys", "none"),
        ("reshard", "{shard}", "--out", "o", "--drop-keys", "none"),
        ("reshard", "{shard}", "--out", "o", "--relabel", "none"),
        ("make-shards", "--from-table", "none.csv"),
        ("make-shards", "--from-ilsvrc", "none.tar"),
        ("make-shards", "--from-ilsvrc", "{shard}", "--synsets", "none"),
        ("make-shards", "--from-ilsvrc", "{shard}", "--ground-truth", "none"),
        ("index", "{shard}", "--classes", "none"),
        ("index", "{shard}", "--classes", "0"),
        ("index", "{shard}", "--out", "{shard}"),
        ("repair", "{shard}", "--out", "{shard}"),
        ("run-plan", "none.plan.json"),
        ("stats", "none.parquet"),
    ],
)
def test_a_file_that_is_not_there_or_in_place_of_a_folder_is_wrong_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    shard = write_samples(tmp_path / "a.tar", 1)
    monkeypatch.chdir(tmp_path)
    ended = invoke(*(word.format(shard=shard) for word in words))
    assert (ended.code, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert list(tmp_path.iterdir()) == [shard]


def test_a_file_url_is_a_local_shard(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a 0.tar", 1)
    assert local_shards([path.as_uri()]) == [str(path)]
    assert invoke("index", path.as_uri()).code == 0
    assert (tmp_path / "a 0.tar.index.json").exists()


def test_one_missing_shard_is_left_to_the_reader_unless_all_must_be_there(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a-0.tar", 1)
    pattern = f"{tmp_path}/a-{{0..1}}.tar"
    assert shards_to_read([pattern]).shards == local_shards([pattern]) == [str(path), f"{tmp_path}/a-1.tar"]
    with pytest.raises(DatasetError, match=r"a-1\.tar: no such file, 1 of 2 shards"):
        local_shards([pattern], all_there=True)


def test_nothing_but_missing_shards_matches_nothing(tmp_path: Path) -> None:
    with pytest.raises(PatternError, match="no such file"):
        shards_to_read([f"{tmp_path}/a-{{0..1}}.tar"])


def test_a_tilde_that_the_shell_left_alone_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    write_samples(home / "a-0.tar", 2)
    (home / "list.txt").write_text(f"{home}/a-0.tar\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    for pattern in ("~/a-*.tar", "~", "@~/list.txt"):
        assert invoke("stats", pattern, "--jobs", 1).stdout.startswith("samples         2,"), pattern
    assert invoke("index", "~/a-{0..0}.tar", "--out=~/made").code == 0
    assert (home / "made" / "a-0.tar.index.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
