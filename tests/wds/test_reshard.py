from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardkit import read_manifest
from tests.helpers.cli import Ended, invoke
from tests.helpers.packed import write_packed
from tests.helpers.repairing import samples_of
from tests.helpers.shards import layout, sample_members, write_samples, write_shard


def reshard(*args: object) -> Ended:
    return invoke("reshard", "--jobs", 1, "--prefix", "t", *args)


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder, hidden ones too, with its bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def samples_in(folder: Path) -> dict[str, dict[str, bytes]]:
    return {key: members for path in sorted(folder.glob("*.tar")) for key, members in samples_of(path).items()}


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Three shards of 5, 4 and 3 samples, with manifest and indexes."""
    return write_packed(tmp_path / "in", [5, 4, 3])


def test_shards_are_split_merged_and_validate(shards: list[Path], tmp_path: Path) -> None:
    folder = shards[0].parent
    before = samples_in(folder)
    ended = reshard(folder, "--out", tmp_path / "split", "--shard-size", 2)
    assert ended.code == 0
    assert ended.stdout.splitlines()[0] == f"6 shards, {tmp_path}/split/t-000000.tar to t-000005.tar"
    assert ended.stdout.splitlines()[1].startswith("12 samples, 10 classes by name, ")
    assert list(samples_in(tmp_path / "split").items()) == list(before.items())
    assert reshard(tmp_path / "split", "--out", tmp_path / "merged", "--count", 1).code == 0
    assert list(samples_in(tmp_path / "merged").items()) == list(before.items())
    assert invoke("validate", tmp_path / "merged", tmp_path / "split", "--jobs", 1).code == 0
    assert read_manifest(tmp_path / "merged" / "t.manifest.json").classes == tuple("abcdefghij")


def test_classes_that_no_manifest_names_are_not_counted_as_none(tmp_path: Path) -> None:
    ended = invoke("reshard", write_samples(tmp_path / "a.tar", 2), "--out", tmp_path / "out", "--jobs", 1)
    assert ended.stdout.splitlines()[1].startswith("2 samples, classes not known, ")


def test_to_split_and_to_merge_again_is_to_merge(shards: list[Path], tmp_path: Path) -> None:
    reshard(*shards, "--out", tmp_path / "one", "--count", 1)
    reshard(tmp_path / "one", "--out", tmp_path / "many", "--count", 7)
    reshard(tmp_path / "many", "--out", tmp_path / "again", "--count", 1)
    assert (tmp_path / "one" / "t-000000.tar").read_bytes() == (tmp_path / "again" / "t-000000.tar").read_bytes()


def test_a_folder_that_then_has_old_and_new_shards_is_told(shards: list[Path], tmp_path: Path) -> None:
    folder = shards[0].parent
    apart = reshard(folder, "--out", tmp_path / "out")
    assert "means both" not in apart.stderr
    ended = invoke("reshard", folder, "--out", folder, "--prefix", "new", "--jobs", 1)
    assert ended.code == 0
    assert f"as a folder it means both. Name the new ones by their manifest: {folder}/new.manifest.json" in ended.stderr


def test_a_size_in_bytes_is_kept_to(shards: list[Path], tmp_path: Path) -> None:
    assert reshard(*shards, "--out", tmp_path / "out", "--shard-size", "10KiB").code == 0
    sizes = [path.stat().st_size for path in (tmp_path / "out").glob("*.tar")]
    assert len(sizes) > 1
    assert max(sizes) <= 10 * 1024


@pytest.mark.parametrize("args", [(), ("--shuffle", "--seed", 3), ("--share", 0.5, "--max-size", 16, "--quality", 80)])
def test_bytes_are_the_same_for_any_number_of_processes(
    shards: list[Path], tmp_path: Path, args: tuple[object, ...]
) -> None:
    # One without an index, which is read in a process of its own.
    Path(f"{shards[1]}.index.json").unlink()
    for jobs in (1, 2):
        folder = tmp_path / str(jobs)
        assert (
            invoke("reshard", *shards, "--out", folder, "--prefix", "t", "--count", 3, "--jobs", jobs, *args).code == 0
        )
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_filters_relabelling_and_new_keys_reach_the_shards(shards: list[Path], tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("0,1,dog\n1,0,cat\n", encoding="utf-8")
    args = ("--labels", "0-1", "--relabel", table, "--rekey")
    assert reshard(*shards, "--out", tmp_path / "out", *args).code == 0
    assert {key: members["cls"] for key, members in samples_in(tmp_path / "out").items()} == {
        "00000000_000000": b"1", "00000001_000001": b"0", "00000002_000100": b"1",
        "00000003_000101": b"0", "00000004_000200": b"1", "00000005_000201": b"0",
    }  # fmt: skip
    manifest = read_manifest(tmp_path / "out" / "t.manifest.json")
    assert manifest.classes == ("cat", "dog")
    # Nothing of this machine is in it.
    assert str(tmp_path) not in (tmp_path / "out" / "t.manifest.json").read_text(encoding="utf-8")


def test_gzip_becomes_plain_and_a_killed_runs_leftover_goes(shards: list[Path], tmp_path: Path) -> None:
    packed = tmp_path / "a.tgz"
    packed.write_bytes(gzip.compress(shards[0].read_bytes()))
    out = tmp_path / "out"
    out.mkdir()
    (out / ".unfinished-t-unpacked-0123456789abcdef").write_bytes(b"left by a killed run")
    assert reshard(packed, "--out", out).code == 0
    assert sorted(contents(out)) == ["t-000000.tar", "t-000000.tar.index.json", "t.manifest.json"]
    assert samples_in(out) == samples_of(shards[0])


def test_the_inputs_are_never_written_over(shards: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "own"
    assert reshard(*shards, "--out", folder, "--count", 2).code == 0
    before = contents(folder)
    for pattern in (folder, folder / "t.manifest.json"):
        ended = reshard(pattern, "--out", folder, "--count", 3, "--on-exists", "overwrite")
        assert (ended.code, "an input in the folder of the output" in ended.stderr) == (2, True)
    (tmp_path / "link").symlink_to(folder)
    assert reshard(tmp_path / "link" / "t-000000.tar", "--out", folder, "--on-exists", "overwrite").code == 2
    (tmp_path / "linked.tar").symlink_to(folder / "t-000000.tar")
    assert reshard(tmp_path / "linked.tar", "--out", folder, "--on-exists", "overwrite").code == 2
    assert contents(folder) == before


def test_a_sample_that_cannot_be_read_stops_or_is_skipped_and_named(shards: list[Path], tmp_path: Path) -> None:
    data = bytearray(shards[1].read_bytes())
    data[layout(bytes(data))[2].header] ^= 0xFF
    times = shards[1].stat()
    shards[1].write_bytes(data)
    # As a disk does it: nothing but the byte has changed.
    os.utime(shards[1], ns=(times.st_atime_ns, times.st_mtime_ns))
    ended = reshard(*shards, "--out", tmp_path / "out")
    assert (ended.code, "t-01.tar at byte" in ended.stderr) == (1, True)
    assert not list((tmp_path / "out").glob("*"))
    ended = reshard(*shards, "--out", tmp_path / "out", "--on-error", "skip", "--json")
    assert ended.code == 0
    document = json.loads(ended.stdout)
    assert (document["samples"], len(document["skipped"])) == (11, 1)


def test_output_that_is_there_is_refused_resumed_or_overwritten(shards: list[Path], tmp_path: Path) -> None:
    args = (*shards, "--out", tmp_path / "out", "--count", 3)
    codes = [reshard(*args).code, reshard(*args).code, reshard(*args, "--on-exists", "resume").code]
    assert codes == [0, 2, 0]
    before = contents(tmp_path / "out")
    assert reshard(*args, "--shuffle", "--on-exists", "resume").code == 2
    assert contents(tmp_path / "out") == before
    assert reshard(*args, "--shuffle", "--on-exists", "overwrite").code == 0
    assert contents(tmp_path / "out") != before


def test_a_dry_run_prints_the_layout_and_writes_nothing(shards: list[Path], tmp_path: Path) -> None:
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(gzip.compress(write_samples(tmp_path / "a.tar", 2, first=700).read_bytes()))
    ended = reshard(*shards, packed, "--out", tmp_path / "out", "--count", 2, "--dry-run")
    assert ended.code == 0
    assert ended.stdout.splitlines()[0].startswith(f"{tmp_path}/out/t-000000.tar  7 samples, ")
    assert ended.stdout.splitlines()[-1] == f"{tmp_path}/out/t.manifest.json  14 samples in 2 shards, classes not known"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "args",
    [
        ("--count", 2, "--shard-size", 3),
        ("--shard-size", "many"),
        ("--labels", "x"),
        ("--share", 2),
        ("--labels", 99),
        ("--count", 99),
    ],
)
def test_wrong_use_ends_with_2_and_writes_nothing(shards: list[Path], tmp_path: Path, args: tuple[object, ...]) -> None:
    assert reshard(*shards, "--out", tmp_path / "out", *args).code == 2
    assert not list((tmp_path / "out").glob("*"))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    layout_=st.one_of(
        st.tuples(st.just("--count"), st.integers(1, 4)), st.tuples(st.just("--shard-size"), st.integers(1, 9))
    ),
    shuffle=st.booleans(),
)
def test_whatever_the_layout_no_sample_is_lost_or_doubled(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], layout_: tuple[str, int], shuffle: bool
) -> None:
    folder = tmp_path_factory.mktemp("law")
    paths = [
        write_shard(
            folder / f"s{number}.tar", [*sample_members(count, first=100 * number), (f"{100 * number:06d}.x", b"")]
        )
        if count == 1
        else write_samples(folder / f"s{number}.tar", count, first=100 * number)
        for number, count in enumerate(counts)
    ]
    if layout_[0] == "--count":
        layout_ = ("--count", min(layout_[1], sum(counts)))
    before = {key: members for path in paths for key, members in samples_of(path).items()}
    args: tuple[Any, ...] = (*layout_, *(["--shuffle"] if shuffle else []))
    assert reshard(*paths, "--out", folder / "out", *args).code == 0
    after = samples_in(folder / "out")
    assert after == before
    assert shuffle or list(after) == list(before)
    total = sum(len(samples_of(path)) for path in (folder / "out").glob("*.tar"))
    assert total == sum(counts)


def test_a_plan_is_made_in_parts_with_the_same_bytes(shards: list[Path], tmp_path: Path) -> None:
    args = (*shards, "--count", 4, "--shuffle", "--labels", "0-2")
    assert reshard(*args, "--out", tmp_path / "whole").code == 0
    ended = reshard(*args, "--out", tmp_path / "parts", "--plan-only")
    assert ended.code == 0
    for part in ("2/2", "1/2"):
        assert invoke("run-plan", tmp_path / "parts" / "t.plan.json", "--slice", part, "--jobs", 1).code == 0
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_plan_over_gzip_is_refused(tmp_path: Path) -> None:
    packed = tmp_path / "a.tgz"
    packed.write_bytes(gzip.compress(write_samples(tmp_path / "a.tar", 2).read_bytes()))
    ended = reshard(packed, "--out", tmp_path / "out", "--plan-only")
    assert (ended.code, "gunzip -k" in ended.stderr) == (2, True)


def test_a_changed_input_is_not_resumed(shards: list[Path], tmp_path: Path) -> None:
    args = (*shards, "--out", tmp_path / "out", "--count", 3)
    assert reshard(*args).code == 0
    write_samples(shards[1], 4, first=400)
    assert reshard(*args, "--on-exists", "resume").code == 2
