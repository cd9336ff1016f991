"""The tar of what a repair dropped."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit import Change, OutputExistsError, ShardReadError
from shardkit.repair.mending import Dropped
from shardkit.repair.quarantine import quarantine_path, write_quarantine


def write(path: Path, names: list[str], *, raw: bool = False, size: int = 4, replace: bool = False) -> list[str]:
    """Write a quarantine of four bytes a name; return the names that its members have."""
    shard = path.with_name("shard.bin")
    shard.write_bytes(b"data")
    dropped = [Dropped(name, 0, size, Change("quarantined", "WDS025", "why", name, 0), raw=raw) for name in names]
    with open(shard, "rb") as file:
        changes = [entry.change for entry in dropped]
        write_quarantine(path, file, shard="a/s.tar", dropped=dropped, changes=changes, replace=replace)
    with tarfile.open(path) as tar:
        return tar.getnames()


def test_it_lies_in_a_folder_of_its_own_where_no_glob_for_shards_finds_it(tmp_path: Path) -> None:
    assert quarantine_path(tmp_path / "s.tar") == tmp_path / "quarantine" / "s.quarantine.tar"


def test_names_are_safe_and_each_comes_once(tmp_path: Path) -> None:
    names = ["a.jpg", "a.jpg", "../../etc/x", "/abs", ".hidden", "", "..", "report.json", "line\nend", "caf\udce9"]
    assert write(tmp_path / "q.tar", names) == [
        "report.json", "a.jpg", "2/a.jpg", "etc/x", "abs", "hidden", "unnamed", "2/unnamed", "2/report.json",
        "line_end", "caf\udce9",
    ]  # fmt: skip


# Each example is a file that is synced to the disk.
@settings(max_examples=25)
@given(st.lists(st.text(max_size=20), min_size=2, max_size=8))
def test_whatever_the_names_nothing_is_unpacked_outside(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("names")
    found = write(folder / "q.tar", [name.encode("utf-8", "replace").decode() for name in names])
    assert len(set(found)) == len(names) + 1
    for name in found:
        assert not name.startswith("/")
        assert ".." not in name.split("/")
        assert "\0" not in name


def test_the_report_says_what_each_member_was_and_why(tmp_path: Path) -> None:
    write(tmp_path / "q.tar", ["x.jpg"], raw=True)
    with tarfile.open(tmp_path / "q.tar") as tar:
        report = json.load(tar.extractfile("report.json"))  # type: ignore[arg-type]  # it is a file
        assert tar.extractfile("x.jpg.raw").read() == b"data"  # type: ignore[union-attr]  # it is a file
    change = {"action": "quarantined", "rule": "WDS025", "message": "why", "member": "x.jpg", "offset": 0}
    assert report == {
        "format": "shardkit-quarantine",
        "version": 1,
        "shard": "s.tar",
        "members": [{**change, "name": "x.jpg.raw", "raw": True, "num_bytes": 4}],
        "changes": [change],
    }


def test_it_appears_whole_or_not_at_all_and_replaces_nothing_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "q" / "q.tar"
    (tmp_path / "q").mkdir()
    with pytest.raises(ShardReadError, match="shorter"):
        write(path, ["x"], size=5)
    assert not path.exists()
    write(path, ["x"])
    with pytest.raises(OutputExistsError):
        write(path, ["y"])
    assert write(path, ["y"], replace=True) == ["report.json", "y"]
