from __future__ import annotations

import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from shardkit import (
    Catalog,
    CatalogOptions,
    Manifest,
    ManifestError,
    OutputExistsError,
    PatternError,
    ShardRecord,
    build_index,
    catalog_shards,
    exclusive,
    read_manifest,
    write_manifest,
)
from tests.helpers.packed import write_packed
from tests.helpers.shards import sample_members, write_samples, write_shard


def catalog(shards: list[Path], **options: object) -> Catalog:
    wanted = replace(CatalogOptions(), **options)  # type: ignore[arg-type]
    return catalog_shards([str(shard) for shard in shards], wanted, on_shard=lambda _: None)


def write_set(folder: Path, count: int = 3, *, name: str = "tr") -> list[Path]:
    return [write_samples(folder / f"{name}-{n:03d}.tar", 2 + n, first=10 * n) for n in range(count)]


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class TestSeveralAtOnce:
    """What one run adds to a file, another that has looked at it before must not drop."""

    def run(self, tmp_path: Path, name: str, **options: object) -> tuple[ThreadPoolExecutor, Future[Catalog]]:
        """Start a run; it is behind its indexes when this returns."""
        indexed = threading.Event()
        shards = [str(write_samples(tmp_path / f"{name}.tar", 2))]
        wanted = replace(CatalogOptions(), **options)  # type: ignore[arg-type]
        pool = ThreadPoolExecutor(1)
        future = pool.submit(catalog_shards, shards, wanted, on_shard=lambda _: indexed.set())
        assert indexed.wait(60)
        return pool, future

    def test_sizes_of_both_are_kept(self, tmp_path: Path) -> None:
        with exclusive(tmp_path, name="sizes.json", wait=True):
            pool, running = self.run(tmp_path, "a-0", exports=frozenset({"sizes"}), manifest=False)
            (tmp_path / "sizes.json").write_text('{"b-0.tar": 7}')
        running.result(60)
        pool.shutdown()
        assert json.loads((tmp_path / "sizes.json").read_text()) == {"a-0.tar": 2, "b-0.tar": 7}

    def test_a_manifest_that_another_has_just_written_is_not_replaced(self, tmp_path: Path) -> None:
        with exclusive(tmp_path, name="t.manifest.json", wait=True):
            pool, running = self.run(tmp_path, "t-0", prefix="t")
            other = write_samples(tmp_path / "t-1.tar", 3, first=100)
            record = ShardRecord(other.name, 3, other.stat().st_size, build_index(other).checksum)
            manifest = Manifest(
                name="t", split="train", seed=0, classes=(), class_order="", shuffled=False, shards=(record,)
            )
            write_manifest(manifest, tmp_path / "t.manifest.json")
        with pytest.raises(OutputExistsError, match=r"lists 1 shard that is not named here, first t-1\.tar"):
            running.result(60)
        pool.shutdown()
        assert read_manifest(tmp_path / "t.manifest.json") == manifest


class TestManifest:
    def test_it_lists_the_shards_and_invents_no_class_names(self, tmp_path: Path) -> None:
        shards = write_set(tmp_path)
        made = catalog(shards)
        manifest = read_manifest(tmp_path / "tr.manifest.json")
        assert made.manifests == (tmp_path / "tr.manifest.json",)
        assert [(s.name, s.num_samples, s.num_bytes) for s in manifest.shards] == [
            (shard.name, 2 + n, shard.stat().st_size) for n, shard in enumerate(shards)
        ]
        assert (manifest.classes, manifest.class_order, made.nameless) == ((), "not known", True)
        assert (manifest.split, manifest.seed, manifest.shuffled) == ("train", 0, False)

    def test_names_and_split_are_as_told_and_kept_by_a_later_run(self, tmp_path: Path) -> None:
        shards = write_set(tmp_path)
        catalog(shards, classes=("a", "b", "c", "d", "e"), split="val")
        write_samples(shards[0], 4)
        catalog(shards)
        manifest = read_manifest(tmp_path / "tr.manifest.json")
        assert (manifest.split, manifest.num_samples) == ("val", 11)
        assert manifest.classes == ("a", "b", "c", "d", "e")
        # Labels up to 9 have come: the names given do not reach, and are not dropped.
        write_samples(shards[0], 40)
        with pytest.raises(ManifestError, match=r"label 9 has no name: 5 classes are in .*tr\.manifest\.json"):
            catalog(shards)
        catalog(shards, classes=tuple("abcdefghij"))
        assert read_manifest(tmp_path / "tr.manifest.json").classes == tuple("abcdefghij")

    def test_a_number_of_classes_is_kept_by_a_later_run_and_in_a_copy(self, tmp_path: Path) -> None:
        shards = write_set(tmp_path)
        made = catalog(shards, classes=6)
        write_samples(shards[0], 4)
        again = catalog(shards)
        known = read_manifest(tmp_path / "tr.manifest.json")
        copied = catalog(shards, folder=tmp_path / "here", known=(known,), split="val")
        for listed in (known, read_manifest(copied.manifests[0])):
            assert (listed.classes, listed.num_classes, listed.class_order) == ((), 6, "as given")
        assert (made.nameless, again.nameless, copied.nameless) == (False, False, False)
        write_samples(shards[0], 40)
        with pytest.raises(ManifestError, match=r"label 9 is none of the 6 classes that are in .*tr\.manifest\.json"):
            catalog(shards)

    def test_what_a_packing_said_is_not_passed_over_for_what_is_told_here(self, tmp_path: Path) -> None:
        shards = write_packed(tmp_path, [3, 4])
        for told in ({"classes": ("x", "y")}, {"classes": 30}, {"split": "val"}):
            with pytest.raises(
                OutputExistsError, match=r"t\.manifest\.json is the manifest of a packing, and says other"
            ):
                catalog(shards, **told)
        assert catalog(shards, classes=tuple("abcdefghij"), split="train").written == ()
        assert catalog(shards, classes=10, split="train").written == ()

    def test_a_label_without_a_name_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ManifestError, match="label 3 has no name: 2 classes were given"):
            catalog(write_set(tmp_path), classes=("a", "b"))
        assert not (tmp_path / "tr.manifest.json").exists()

    def test_a_bad_shard_leaves_the_set_without_one(self, tmp_path: Path) -> None:
        shards = write_set(tmp_path)
        shards[1].write_bytes(b"<html>")
        made = catalog(shards, exports=frozenset({"wids", "sizes", "dali"}))
        assert [Path(shard.shard).name for shard in made.failed] == ["tr-001.tar"]
        assert (made.manifests, made.written) == ((), ())
        assert names_in(tmp_path) == {
            *("tr-000.tar", "tr-001.tar", "tr-002.tar", "tr-000.idx", "tr-002.idx"),
            *("tr-000.tar.index.json", "tr-002.tar.index.json"),
        }

    def test_one_that_says_the_same_is_kept_whatever_its_name(self, tmp_path: Path) -> None:
        shards = write_packed(tmp_path, [3, 4])
        write = (tmp_path / "t.manifest.json").rename(tmp_path / "mine.manifest.json")
        before = write.read_bytes()
        made = catalog(shards)
        assert (made.manifests, made.written) == ((write,), ())
        assert (names_in(tmp_path) & {"t.manifest.json"}, write.read_bytes()) == (set(), before)

    def test_one_of_a_packing_is_not_replaced(self, tmp_path: Path) -> None:
        shards = write_packed(tmp_path, [3, 4])
        write_samples(shards[0], 30)
        before = (tmp_path / "t.manifest.json").read_bytes()
        with pytest.raises(OutputExistsError, match="is the manifest of a packing"):
            catalog(shards)
        assert (tmp_path / "t.manifest.json").read_bytes() == before
        assert catalog(shards, prefix="u").manifests == (tmp_path / "u.manifest.json",)

    def test_one_that_lists_more_shards_is_not_cut_down(self, tmp_path: Path) -> None:
        shards = write_set(tmp_path)
        catalog(shards)
        assert catalog(shards[:2]).written == ()
        with pytest.raises(OutputExistsError, match=r"lists 1 shard that is not named here, first tr-002\.tar"):
            catalog(shards[:2], split="val")
        write_samples(shards[0], 50)
        with pytest.raises(OutputExistsError, match="Name all of them"):
            catalog(shards[:2])
        shards[2].unlink()
        assert catalog(shards[:2]).written == (tmp_path / "tr.manifest.json",)
        assert read_manifest(tmp_path / "tr.manifest.json").num_samples == 53

    def test_shards_that_several_manifests_list_need_no_other(self, tmp_path: Path) -> None:
        train, val = write_set(tmp_path, 2), write_set(tmp_path, 1, name="va")
        catalog(train)
        catalog(val, split="val")
        made = catalog([*train, *val])
        assert (made.written, [path.name for path in made.manifests]) == ((), ["tr.manifest.json", "va.manifest.json"])

    def test_a_packing_that_is_not_finished_gets_none(self, tmp_path: Path) -> None:
        shards = write_set(tmp_path)
        (tmp_path / "tr.plan.json").write_bytes(b"{}")
        with pytest.raises(OutputExistsError, match="a packing of this name is not finished"):
            catalog(shards)
        assert len(catalog(shards, manifest=False).shards) == 3

    def test_shards_of_two_folders_are_refused_before_any_is_read(self, tmp_path: Path) -> None:
        shards = [*write_set(tmp_path / "a", 1), *write_set(tmp_path / "b", 1, name="va")]
        with pytest.raises(PatternError, match=r"shards of 2 folders .* have no common manifest"):
            catalog(shards)
        assert names_in(tmp_path / "a") == {"tr-000.tar"}
        assert len(catalog(shards, manifest=False).shards) == 2
        assert catalog(shards, folder=tmp_path / "c").manifests == (tmp_path / "c/shards.manifest.json",)

    def test_nothing_is_written_on_a_dry_run(self, tmp_path: Path) -> None:
        shards = write_set(tmp_path)
        before = names_in(tmp_path)
        made = catalog(shards, write=False, exports=frozenset({"wids", "sizes", "dali"}), table=tmp_path / "t.parquet")
        assert (made.written, names_in(tmp_path)) == ((), before)
        assert made.manifests == (tmp_path / "tr.manifest.json",)


class TestExports:
    def test_sizes_of_other_shards_stay(self, tmp_path: Path) -> None:
        (tmp_path / "sizes.json").write_text('{"other.tar": 5, "tr-000.tar": 1}')
        catalog(write_set(tmp_path, 2), exports=frozenset({"sizes"}))
        assert json.loads((tmp_path / "sizes.json").read_bytes()) == {"other.tar": 5, "tr-000.tar": 2, "tr-001.tar": 3}

    def test_all_is_made_in_one_run(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        every = frozenset({"wids", "sizes", "dali"})
        made = catalog(write_set(tmp_path, 1), exports=every, table=tmp_path / "t.parquet")
        names = [path.name for path in made.written]
        assert names == ["t.parquet", "tr.manifest.json", "tr.wids.json", "sizes.json"]


@pytest.mark.parametrize("prefix", ["", "a/b", "../a", ".a", "a b"])
def test_a_prefix_that_is_no_name_is_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(PatternError, match="use letters, digits"):
        catalog(write_set(tmp_path, 1), prefix=prefix or "/")


def test_shards_that_share_keys_are_a_finding(tmp_path: Path) -> None:
    shards = [write_shard(tmp_path / f"s-{n}.tar", sample_members(2)) for n in range(2)]
    made = catalog(shards)
    assert [finding.rule for finding in made.findings] == ["WDS052"]
    assert made.manifests == (tmp_path / "s.manifest.json",)


def test_a_manifest_in_the_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    shards = write_set(tmp_path)
    (tmp_path / "tr.manifest.json").write_bytes(b"{}")
    with pytest.raises(ManifestError, match=r"tr\.manifest\.json: not a manifest"):
        catalog(shards)
    assert catalog(shards, prefix="u").written == (tmp_path / "u.manifest.json",)


def test_what_a_killed_run_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    shards = write_set(tmp_path, 1)
    left = ["tr-000.tar.index.json", "tr-000.idx", "tr.manifest.json", "tr.wids.json", "sizes.json", "t.parquet"]
    for name in [*left, "tr-000.tar", "va-000.tar.index.json", "tr-000.tar.index.json.lock"]:
        (tmp_path / f".unfinished-{name}-0123456789abcdef").write_bytes(b"half")
    pytest.importorskip("pyarrow")
    catalog(shards, exports=frozenset({"wids"}), table=tmp_path / "t.parquet")
    assert {name for name in names_in(tmp_path) if name.startswith(".")} == {
        ".unfinished-tr-000.tar-0123456789abcdef",
        ".unfinished-tr-000.tar.index.json.lock-0123456789abcdef",
        ".unfinished-va-000.tar.index.json-0123456789abcdef",
    }
