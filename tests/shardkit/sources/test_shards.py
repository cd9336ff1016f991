"""Samples of shards as a source: what is taken, in which order, and what is refused."""

from __future__ import annotations

import dataclasses
import gzip
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardkit import (
    PackError,
    Selection,
    ShardReadError,
    ShardsSource,
    SourceError,
    build_index,
    index_path_of,
    open_shards,
    read_manifest,
    write_index,
    write_manifest,
)
from shardkit.sources import reopen_shards
from tests.helpers.packed import write_packed
from tests.helpers.repairing import samples_of
from tests.helpers.shards import jpeg_bytes, layout, sample_members, tar_bytes, write_samples, write_shard


def read_all(paths: list[Path], selection: Selection | None = None, **settings: Any) -> dict[str, dict[str, bytes]]:
    """Return key -> extension -> content of all chosen samples, in order."""
    with open_shards([str(path) for path in paths], selection or Selection(), **settings) as source:
        samples = [source.sample(number) for number in range(len(source))]
        for number, sample in enumerate(samples):
            by_extension = sorted(sample.members)
            assert source.content_sizes(number) == tuple(len(content) for _, content in by_extension)
            assert source.member_names(number) == tuple(f"{sample.key}.{e}" for e, _ in by_extension)
    return {sample.key: dict(sample.members) for sample in samples}


def opened(paths: list[Path], selection: Selection | None = None) -> ShardsSource:
    with open_shards([str(path) for path in paths], selection or Selection()) as source:
        return source


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Three shards of 4, 3 and 2 samples with indexes and a manifest; labels 0 to 3, 0 to 2, 0 and 1."""
    return write_packed(tmp_path / "in", [4, 3, 2])


def test_all_samples_come_in_the_order_of_the_shards_with_their_bytes(shards: list[Path]) -> None:
    everything = {key: members for path in shards for key, members in samples_of(path).items()}
    assert list(read_all(shards).items()) == list(everything.items())
    source = opened(shards)
    assert (source.classes, source.class_order, source.split) == (tuple("abcdefghij"), "by name", "train")


def test_shards_without_an_index_or_with_an_old_one_are_read(shards: list[Path]) -> None:
    before = read_all(shards)
    for path in shards[1:]:
        Path(index_path_of(str(path))).unlink()
    assert read_all(shards) == before
    write_index(build_index(shards[1]), Path(index_path_of(str(shards[0]))))
    assert read_all(shards) == before
    assert read_all(shards, jobs=2) == before


def test_labels_choose_samples(shards: list[Path]) -> None:
    found = read_all(shards, Selection(labels=(0, 3)))
    assert [members["cls"] for members in found.values()] == [b"0", b"3", b"0", b"0"]


def test_keys_choose_and_drop_and_missing_ones_are_told(shards: list[Path], tmp_path: Path) -> None:
    listed = tmp_path / "keys.txt"
    listed.write_text("000101\n000001\nnowhere\n", encoding="utf-8")
    assert list(read_all(shards, Selection(keys=listed))) == ["000001", "000101"]
    assert len(read_all(shards, Selection(drop_keys=listed))) == 7
    assert opened(shards, Selection(keys=listed)).notes == (f"{listed}: 1 of its 3 keys are in no shard",)


def test_sides_and_bytes_of_pictures_choose_samples(tmp_path: Path) -> None:
    small, large = sample_members(2), sample_members(2, first=2, size=(64, 48))
    path = write_shard(tmp_path / "a.tar", [*small, *large, ("x.jpg", b"no picture"), ("x.cls", b"1")])
    assert list(read_all([path], Selection(min_side=48))) == ["000002", "000003"]
    assert list(read_all([path], Selection(max_side=20))) == ["000000", "000001"]
    assert "1 picture that cannot be read" in opened([path], Selection(max_side=20)).notes[0]
    limit = len(large[0][1])
    assert list(read_all([path], Selection(max_bytes=10))) == ["x"]
    assert "000002" in read_all([path], Selection(min_bytes=limit))
    assert "000000" not in read_all([path], Selection(min_bytes=limit))


def test_a_share_of_every_class_is_drawn(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.tar", 40)
    found = read_all([path], Selection(share=0.5, seed=4))
    labels = [members["cls"] for members in found.values()]
    assert sorted(labels) == [str(n).encode() for n in range(10) for _ in range(2)]
    assert list(found) == sorted(found)
    assert list(found) != list(read_all([path], Selection(share=0.5, seed=5)))


def test_labels_become_new_ones_by_a_table(shards: list[Path], tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("0,5\n1,12\n", encoding="utf-8")
    with pytest.raises(PackError, match=r"3 samples have labels that the table lacks: 2, 3, first in .*t-00.tar"):
        opened(shards, Selection(relabel=table))
    found = read_all(shards, Selection(relabel=table, drop_unmapped=True))
    assert [members["cls"] for members in found.values()] == [b"5", b"12"] * 3
    assert all(members["jpg"] == samples_of(shards[int(key[3])])[key]["jpg"] for key, members in found.items())
    assert opened(shards, Selection(relabel=table, drop_unmapped=True)).classes == ()
    table.write_text("0,1,b\n1,0,a\n2,0,a\n3,0,a\n", encoding="utf-8")
    assert opened(shards, Selection(relabel=table)).classes == ("a", "b")


def test_the_order_is_one_permutation_of_all_that_the_seed_decides(shards: list[Path]) -> None:
    orders = [list(read_all(shards, Selection(shuffle=True, seed=seed))) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(read_all(shards))
    # Not shard by shard.
    assert [key[3] for key in orders[0]] != sorted(key[3] for key in orders[0])


def test_one_key_in_two_shards_is_refused_with_both_places_unless_there_are_new_keys(tmp_path: Path) -> None:
    paths = [write_shard(tmp_path / name, [(f"d/{n}", c) for n, c in sample_members(2)]) for name in ("a.tar", "b.tar")]
    with pytest.raises(PackError, match=r"key 'd/000000' is in .*a.tar at byte 0 and in .*b.tar at byte 0"):
        opened(paths)
    assert list(read_all(paths, Selection(rekey=True))) == [
        "d/00000000_000000", "d/00000001_000001", "d/00000002_000000", "d/00000003_000001",
    ]  # fmt: skip


def test_members_of_other_kinds_are_kept_in_their_order(tmp_path: Path) -> None:
    members = [("a.txt", b"text"), ("a.cls", b"1"), ("a.json", b"{}"), ("a.jpg", jpeg_bytes(1))]
    path = write_shard(tmp_path / "a.tar", members)
    with open_shards([str(path)]) as source:
        assert source.sample(0).members == tuple((name[2:], content) for name, content in members)


def test_long_names_are_known_too(tmp_path: Path) -> None:
    key = "k" * 120 + "/" + "n" * 150
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes([(f"{key}.jpg", jpeg_bytes(1)), (f"{key}.cls", b"1")], format=1))
    assert list(read_all([path])) == [key]


def test_manifests_that_disagree_are_refused(shards: list[Path], tmp_path: Path) -> None:
    (other,) = write_packed(tmp_path / "other", [1])
    shutil.move(other, other.with_name("u.tar"))
    manifest = read_manifest(other.parent / "t.manifest.json")
    record = dataclasses.replace(manifest.shards[0], name="u.tar")
    renamed = dataclasses.replace(manifest, shards=(record,), classes=("x", "y"))
    write_manifest(renamed, other.parent / "t.manifest.json", replace=True)
    keyless = Selection(rekey=True)
    with pytest.raises(PackError, match=r"t-00.tar and .*u.tar: their manifests name different classes"):
        opened([shards[0], other.with_name("u.tar")], keyless)
    split = dataclasses.replace(renamed, classes=manifest.classes, split="val")
    write_manifest(split, other.parent / "t.manifest.json", replace=True)
    with pytest.raises(PackError, match="Name the split"):
        opened([shards[0], other.with_name("u.tar")], keyless)


def test_shards_without_a_manifest_have_no_class_names(shards: list[Path], tmp_path: Path) -> None:
    stray = write_samples(tmp_path / "stray.tar", 1, first=900)
    assert opened([stray]).classes == ()
    mixed = opened([*shards, stray])
    assert (mixed.classes, len(mixed.notes)) == ((), 1)


def test_what_is_left_out_or_lacking_is_told(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.tar", [("README", b"hello"), *sample_members(1), ("x.jpg", jpeg_bytes(3))])
    assert [note.partition(" ")[0] for note in opened([path]).notes] == ["1", "1"]


@pytest.mark.parametrize("kind", ["header", "label", "gone", "cut"])
def test_a_sample_that_changed_since_is_an_unusable_source(shards: list[Path], kind: str) -> None:
    path = shards[1]
    data = bytearray(path.read_bytes())
    places = layout(bytes(data))
    with open_shards([str(shard) for shard in shards]) as source:
        if kind == "header":
            data[places[2].header] ^= 0xFF
        elif kind == "label":
            data[places[3].content] = ord("7")
        if kind == "gone":
            path.unlink()
        else:
            path.write_bytes(data[: places[2].header] if kind == "cut" else data)
        with pytest.raises(SourceError, match=r"t-01.tar at byte"):
            source.sample(5)
        assert source.sample(0).key == "000000"


def test_a_damaged_shard_is_named_with_the_way_to_save_it(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.tar", 3)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ShardReadError, match="wds repair"):
        opened([path])


def test_gzip_is_unpacked_for_the_time_and_leaves_nothing(shards: list[Path], tmp_path: Path) -> None:
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(gzip.compress(shards[0].read_bytes()))
    out = tmp_path / "out"
    assert read_all([packed, shards[1]], unpack_to=out) == read_all(shards[:2])
    assert not list(out.iterdir())
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(ShardReadError, match="ends early"):
        read_all([packed], unpack_to=out)
    assert not list(out.iterdir())


def test_a_shard_named_twice_or_a_url_is_refused(shards: list[Path]) -> None:
    with pytest.raises(PackError, match="named twice"):
        opened([shards[0], shards[0]])
    with pytest.raises(PackError, match="only local shards"), open_shards(["http://host/a.tar"]):
        pass


def test_no_sample_left_is_an_error(shards: list[Path]) -> None:
    with pytest.raises(PackError, match="no sample is left"):
        opened(shards, Selection(labels=(77,)))


def test_the_recipe_opens_the_same_source_again(shards: list[Path]) -> None:
    source = opened(shards, Selection(labels=(0, 1), share=0.5, shuffle=True, seed=3))
    again = reopen_shards(json.loads(json.dumps(source.recipe)))
    assert again.fingerprint == source.fingerprint
    assert [again.sample(n) for n in range(len(again))] == [source.sample(n) for n in range(len(source))]
    assert pickle.loads(pickle.dumps(source)).sample(1) == source.sample(1)


@pytest.mark.parametrize(
    "change",
    [
        lambda selection: dataclasses.replace(selection, seed=1),
        lambda selection: dataclasses.replace(selection, shuffle=True),
        lambda selection: dataclasses.replace(selection, labels=(0, 1)),
        lambda selection: dataclasses.replace(selection, rekey=True),
    ],
)
def test_the_fingerprint_changes_with_the_choice(shards: list[Path], change: Callable[[Selection], Selection]) -> None:
    assert opened(shards, change(Selection())).fingerprint != opened(shards).fingerprint


def test_the_fingerprint_changes_with_a_byte_of_a_shard_and_not_with_its_folder(
    shards: list[Path], tmp_path: Path
) -> None:
    before = opened(shards).fingerprint
    shutil.copytree(shards[0].parent, tmp_path / "copy")
    copies = [tmp_path / "copy" / path.name for path in shards]
    assert opened(copies).fingerprint == before
    members = sample_members(4)
    write_shard(copies[0], [*members[:-2], (members[-2][0], jpeg_bytes(999)), members[-1]])
    assert opened(copies).fingerprint != before


def test_a_sample_takes_up_few_bytes(tmp_path: Path) -> None:
    rows = opened([write_samples(tmp_path / "a.tar", 50)]).rows
    columns = (rows.shards, rows.offsets, rows.sizes, rows.labels, rows.member_sizes, rows.hashes)
    assert sum(column.nbytes for column in columns) == 50 * (28 + 2 * 4)
