from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from shardkit import CheckOptions, Finding, SetOptions, ShardReport, check_shards, check_together, read_manifest
from shardkit.manifest import Manifest, ShardRecord, write_manifest
from tests.helpers.shards import jpeg_bytes, rules_in, sample_members, write_samples, write_shard


def check_all(paths: list[Path], *, jobs: int = 1) -> list[ShardReport]:
    return list(check_shards([str(path) for path in paths], CheckOptions(jobs=jobs)))


def labelled(path: Path, labels: list[int], *, first: int = 0) -> Path:
    """Write samples with these labels, numbered from ``first``, and a picture of its own each."""
    return write_shard(
        path,
        [
            member
            for number, label in enumerate(labels, first)
            for member in ((f"{number:06d}.jpg", jpeg_bytes(number)), (f"{number:06d}.cls", b"%d" % label))
        ],
    )


def one(path: Path, key: str, *, picture: int, label: int = 0) -> Path:
    return write_shard(path, [(f"{key}.jpg", jpeg_bytes(picture)), (f"{key}.cls", b"%d" % label)])


def with_manifest(paths: list[Path], *, split: str, num_classes: int = 10) -> list[Path]:
    """Write a manifest for these shards of one folder."""
    reports = check_all(paths)
    records = tuple(
        ShardRecord(path.name, report.summary.samples, path.stat().st_size, "0" * 32)
        for path, report in zip(paths, reports, strict=True)
    )
    manifest = Manifest(
        name=split, split=split, seed=0, classes=tuple(f"n{n:02d}" for n in range(num_classes)), class_order="by name",
        shuffled=True, shards=records,
    )  # fmt: skip
    write_manifest(manifest, paths[0].parent / f"{split}.manifest.json")
    return paths


def rules(findings: list[Finding]) -> list[str]:
    return sorted({finding.rule for finding in findings})


class TestKeys:
    def test_a_key_in_two_shards_is_found_and_joined_by_nobody(self, tmp_path: Path) -> None:
        """KEY-04."""
        shards = [one(tmp_path / f"{n}.tar", "sample", picture=n, label=n) for n in (1, 2)]
        reports = check_all(shards)
        assert [report.summary.labels for report in reports] == [{1: 1}, {2: 1}]
        (finding,) = check_together(reports)
        assert (finding.rule, finding.severity, finding.shard) == ("WDS052", "warning", str(shards[1]))
        assert finding.message == f"1 key is in other shards too, first 'sample', also in {shards[0]}"

    def test_halves_of_one_key_in_two_shards_are_two_halves(self, tmp_path: Path) -> None:
        """KEY-04."""
        shards = [write_shard(tmp_path / f"{n}.tar", [member]) for n, member in enumerate(sample_members(1))]
        reports = check_all(shards)
        assert [rules_in(report) for report in reports] == [["WDS022"], ["WDS021"]]
        assert [report.summary.whole for report in reports] == [0, 0]

    def test_of_three_shards_each_tells_how_many_keys_came_before(self, tmp_path: Path) -> None:
        shards = [write_samples(tmp_path / f"{n}.tar", 4, first=n) for n in (0, 2, 5)]
        found = [finding for finding in check_together(check_all(shards)) if finding.rule == "WDS052"]
        assert [(finding.shard, finding.message.partition(",")[0]) for finding in found] == [
            (str(shards[1]), "2 keys are in other shards too"),
            (str(shards[2]), "1 key is in other shards too"),
        ]
        assert f"first '000005', also in {shards[1]}" in found[1].message

    def test_the_same_shard_twice_repeats_nothing(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path / "x.tar", 2)
        assert check_together(check_all([path, path])) == []

    def test_a_name_is_looked_up_in_gzip_too_and_the_byte_told_where_the_shard_is_gone(self, tmp_path: Path) -> None:
        shards = [write_samples(tmp_path / f"{n}.tar", 2) for n in (1, 2)]
        shards[1].write_bytes(gzip.compress(shards[1].read_bytes()))
        reports = check_all(shards)
        assert "first '000000'" in check_together(reports)[0].message
        shards[1].unlink()
        assert "first 'at byte 0'" in check_together(reports)[0].message

    def test_no_reports_have_no_findings(self) -> None:
        assert check_together([]) == []


class TestPictures:
    def test_a_picture_in_training_and_validation_is_an_error_with_both_places(self, tmp_path: Path) -> None:
        train = [labelled(tmp_path / "t0.tar", [0, 1, 2]), labelled(tmp_path / "t1.tar", [0, 1, 2], first=3)]
        val = write_shard(tmp_path / "v.tar", [*sample_members(1, first=90), ("v.jpg", jpeg_bytes(4)), ("v.cls", b"7")])
        (finding,) = check_together(check_all(train), against=check_all([val]))
        assert (finding.rule, finding.severity, finding.shard) == ("WDS055", "error", str(val))
        assert (finding.member, finding.offset) == ("v", 2560)
        assert finding.message == f"the same picture as '000004' in {train[1]} (label 7, and 1 there)"

    def test_every_one_of_them_is_told(self, tmp_path: Path) -> None:
        train, val = write_samples(tmp_path / "t.tar", 30), write_samples(tmp_path / "v.tar", 20, first=10)
        found = check_together(check_all([train]), against=check_all([val]))
        assert [finding.member for finding in found] == [f"{n:06d}" for n in range(10, 30)]

    def test_manifests_of_two_splits_say_which_shards_are_held_against_which(self, tmp_path: Path) -> None:
        val = with_manifest([labelled(tmp_path / "a" / "v.tar", [*range(10)])], split="val")
        train = with_manifest([labelled(tmp_path / "b" / "t.tar", [*range(10)], first=9)], split="train")
        found = check_together(check_all([*val, *train]))
        assert [(f.rule, f.shard, f.member) for f in found] == [("WDS055", str(val[0]), "000009")]

    def test_a_picture_twice_is_a_note_and_with_two_labels_a_warning(self, tmp_path: Path) -> None:
        path = write_shard(
            tmp_path / "x.tar",
            [
                m
                for key, picture, label in (("a", 1, 0), ("b", 2, 0), ("c", 1, 0), ("d", 1, 5))
                for m in ((f"{key}.jpg", jpeg_bytes(picture)), (f"{key}.cls", b"%d" % label))
            ],
        )
        found = {finding.rule: finding for finding in check_together(check_all([path]))}
        assert set(found) == {"WDS035", "WDS056"}
        assert (found["WDS056"].severity, found["WDS056"].member) == ("note", "c")
        assert found["WDS056"].message == f"1 picture comes a second time, first the one of 'a' in {path}"
        assert (found["WDS035"].severity, found["WDS035"].member) == ("warning", "d")
        assert found["WDS035"].message == f"the same picture as 'a' in {path} (label 5, and 0 there)"

    def test_empty_pictures_and_those_not_read_are_not_the_same(self, tmp_path: Path) -> None:
        path = write_shard(tmp_path / "x.tar", [("a.jpg", b""), ("a.cls", b"1"), ("b.jpg", b""), ("b.cls", b"2")])
        assert check_together(check_all([path])) == []
        reports = list(check_shards([str(write_samples(tmp_path / "y.tar", 2))] * 2, CheckOptions(pictures=False)))
        assert check_together(reports) == []

    def test_undecodable_pictures_are_compared_too(self, tmp_path: Path) -> None:
        train, val = (write_shard(tmp_path / n, [(f"{n}.jpg", b"broken")]) for n in ("1", "2"))
        assert rules(check_together(check_all([train]), against=check_all([val]))) == ["WDS055"]


class TestNumbering:
    def test_a_gap_in_the_numbers_of_shards_without_a_manifest_is_a_note(self, tmp_path: Path) -> None:
        shards = [write_samples(tmp_path / f"t-{n:03d}.tar", 2, first=10 * n) for n in (0, 1, 3, 5)]
        (finding,) = check_together(check_all(shards))
        assert (finding.rule, finding.severity, finding.shard) == ("WDS057", "note", str(shards[0]))
        assert finding.message == "2 shards are missing in the numbering: t-002.tar, t-004.tar"

    def test_shards_of_a_manifest_and_shards_that_it_has_are_no_gap(self, tmp_path: Path) -> None:
        listed = with_manifest([labelled(tmp_path / "t-2.tar", [*range(10)])], split="train")
        others = [labelled(tmp_path / f"t-{n}.tar", [*range(10)], first=100 * n) for n in (1, 3)]
        assert check_together(check_all([*listed, *others])) == []


class TestClasses:
    def test_shards_of_one_class_each_are_warned_of(self, tmp_path: Path) -> None:
        """DIST-15."""
        shards = [labelled(tmp_path / f"{n}.tar", [n, n], first=10 * n) for n in range(3)]
        (finding,) = check_together(check_all(shards))
        assert (finding.rule, finding.severity) == ("WDS033", "warning")
        assert finding.message == "1 class a shard, in each of 3 shards"

    def test_shards_of_few_classes_each_are_warned_of_with_both_numbers(self, tmp_path: Path) -> None:
        shards = [labelled(tmp_path / f"{n}.tar", [3 * n + m % 3 for m in range(12)], first=100 * n) for n in range(4)]
        (finding,) = check_together(check_all(shards))
        assert (finding.rule, finding.message) == ("WDS033", "3.0 classes a shard in 4 shards, 7.8 if they were mixed")

    @pytest.mark.parametrize("labels", [[[0, 1], [2, 2]], [[1, 1], [1, 1]], [[0], [1]], [[0, 0]], [[], [1]]])
    def test_shards_that_are_mixed_or_of_one_class_or_of_one_sample_are_not(
        self, tmp_path: Path, labels: list[list[int]]
    ) -> None:
        shards = [labelled(tmp_path / f"{n}.tar", own, first=10 * n) for n, own in enumerate(labels)]
        assert check_together(check_all(shards)) == []

    def test_classes_without_a_sample_are_told_for_a_whole_dataset_alone(self, tmp_path: Path) -> None:
        shards = [labelled(tmp_path / f"{n}.tar", [0, 1, 2, 5], first=10 * n) for n in range(2)]
        with_manifest(shards, split="train", num_classes=7)
        (finding,) = check_together(check_all(shards))
        assert (finding.rule, finding.message) == ("WDS037", "3 of 7 classes have no sample: 3, 4, 6")
        assert check_together(check_all(shards[:1])) == []

    def test_labels_from_1_are_told_for_the_whole_set(self, tmp_path: Path) -> None:
        """CLS-02: no single shard need hold the largest label."""
        shards = [labelled(tmp_path / f"{n}.tar", labels, first=10 * n) for n, labels in enumerate(([1, 2], [3, 4]))]
        assert check_together(check_all(shards)) == []
        (finding,) = check_together(check_all(shards), SetOptions(num_classes=4))
        assert (finding.rule, finding.severity) == ("WDS038", "error")
        assert finding.message == "labels are 1..4, and none is 0: they count from 1"
        assert check_together(check_all(shards), SetOptions(num_classes=5)) == []

    def test_without_a_number_of_classes_it_takes_ten_samples_a_class(self, tmp_path: Path) -> None:
        path = labelled(tmp_path / "x.tar", [1 + n % 3 for n in range(30)])
        assert rules(check_together(check_all([path]))) == ["WDS038"]
        assert check_together(check_all([labelled(tmp_path / "y.tar", [1 + n % 3 for n in range(29)])])) == []


class TestSizes:
    def test_uneven_shards_are_told_with_the_smallest_and_the_largest(self, tmp_path: Path) -> None:
        shards = [write_samples(tmp_path / f"{n}.tar", n, first=100 * n) for n in (4, 2, 3)]
        (finding,) = check_together(check_all(shards))
        assert (finding.rule, finding.severity, finding.shard) == ("WDS058", "note", str(shards[1]))
        assert finding.message == f"from 2 samples to 4 in {shards[0]}"

    def test_a_smaller_last_shard_is_how_packing_ends(self, tmp_path: Path) -> None:
        """DIST-01."""
        shards = [write_samples(tmp_path / f"{n}.tar", count, first=100 * n) for n, count in enumerate((10, 10, 3))]
        assert check_together(check_all(shards)) == []

    def test_fewer_shards_than_readers_are_told_with_both_numbers(self, tmp_path: Path) -> None:
        """DIST-02."""
        reports = check_all([write_samples(tmp_path / "x.tar", 4)])
        (finding,) = check_together(reports, SetOptions(readers=8))
        assert (finding.rule, finding.severity, finding.message) == ("WDS059", "warning", "1 shard for 8 readers")
        assert check_together(reports, SetOptions(readers=1)) == []


def test_two_datasets_in_one_call_are_two_sets(tmp_path: Path) -> None:
    """Keys of training and validation may be equal: nobody reads them as one set."""
    train = with_manifest([labelled(tmp_path / "t.tar", [*range(10)])], split="train")
    val = write_shard(tmp_path / "v.tar", [(n, jpeg_bytes(99) if n[-1] == "g" else c) for n, c in sample_members(1)])
    with_manifest([val], split="val", num_classes=1)
    assert read_manifest(tmp_path / "val.manifest.json").split == "val"
    assert check_together(check_all([*train, val])) == []


def test_two_sets_of_one_split_that_hold_the_same_pictures_are_told_once(tmp_path: Path) -> None:
    """An old packing and its reshard in one folder: training on the folder would see every sample twice."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old = with_manifest([labelled(tmp_path / "old" / "t-0.tar", [*range(10)])], split="train")
    new = with_manifest([labelled(tmp_path / "new" / "t-0.tar", [*range(6)], first=4)], split="train")
    (found,) = [found for found in check_together(check_all([*old, *new])) if found.rule == "WDS072"]
    assert (found.severity, found.shard) == ("warning", str(new[0]))
    assert "6 of 6 pictures of" in found.message
    assert "first the one of '000004'" in found.message


def test_a_picture_of_three_sets_of_one_split_is_told_of_the_first_with_each_other(tmp_path: Path) -> None:
    shards = [labelled(tmp_path / f"{name}-0.tar", [0, 1]) for name in ("a", "b", "c")]
    found = [found for found in check_together(check_all(shards)) if found.rule == "WDS072"]
    assert [finding.shard for finding in found] == [str(shard) for shard in shards[1:]]
    assert all(f"2 of 2 pictures of {finding.shard} are in {shards[0]} too" in finding.message for finding in found)


def test_sets_without_a_split_are_compared_as_those_of_one(tmp_path: Path) -> None:
    shards = [labelled(tmp_path / "a-0.tar", [0, 1]), labelled(tmp_path / "b-0.tar", [1], first=1)]
    assert "WDS072" in rules(check_together(check_all(shards)))


def test_the_result_is_the_same_for_two_processes(tmp_path: Path) -> None:
    shards = [write_samples(tmp_path / f"{n}.tar", 4, first=n) for n in (0, 2, 5)]
    assert check_together(check_all(shards, jobs=2)) == check_together(check_all(shards))


class TestSets:
    """Shards of one manifest are a set; of those in none, the ones whose names differ in numbers alone."""

    def mixed(self, folder: Path, prefix: str, *, counts: tuple[int, ...], first: int = 0) -> list[Path]:
        """Write shards of so many samples each, with the same keys in every set, and pictures from ``first`` on."""
        shards = []
        for number, count in enumerate(counts):
            key = sum(counts[:number])
            members = [
                member
                for n in range(key, key + count)
                for member in ((f"{n:06d}.jpg", jpeg_bytes(first + n)), (f"{n:06d}.cls", b"%d" % (n % 3)))
            ]
            shards.append(write_shard(folder / f"{prefix}-{number:06d}.tar", members))
        return shards

    @pytest.mark.parametrize("listed", [True, False], ids=["manifests", "names alone"])
    def test_two_datasets_of_one_folder_are_not_held_against_each_other(self, tmp_path: Path, listed: bool) -> None:
        train = self.mixed(tmp_path, "imagenet-train", counts=(9, 9, 9))
        val = self.mixed(tmp_path, "imagenet-val", counts=(3, 3), first=100)
        if listed:
            with_manifest(train, split="train", num_classes=3)
            with_manifest(val, split="val", num_classes=3)
        found = check_together(check_all([*val, *train]), SetOptions(readers=3))
        assert [(f.rule, f.message) for f in found] == [("WDS059", "2 shards for 3 readers")]

    def test_the_rules_still_hold_within_each_of_them(self, tmp_path: Path) -> None:
        train = self.mixed(tmp_path, "a-train", counts=(3, 3))
        again = write_shard(tmp_path / "a-train-000002.tar", [("000001.jpg", jpeg_bytes(1)), ("000001.cls", b"1")])
        val = self.mixed(tmp_path, "a-val", counts=(1, 3, 3), first=100)
        found = check_together(check_all([*train, again, *val]))
        assert [(f.rule, f.shard) for f in found] == [
            ("WDS052", str(again)), ("WDS056", str(again)), ("WDS058", str(val[0]))
        ]  # fmt: skip

    def test_names_say_the_split_where_no_manifest_does(self, tmp_path: Path) -> None:
        train = self.mixed(tmp_path / "data", "x_train", counts=(3,))
        val = self.mixed(tmp_path / "data", "x_validation", counts=(3,), first=2)
        other = self.mixed(tmp_path / "data", "y", counts=(3,), first=1)
        found = check_together(check_all([*val, *train, *other]))
        assert [(f.rule, f.shard, f.member) for f in found] == [("WDS055", str(val[0]), "000000")]

    def test_shards_without_numbers_in_their_names_are_one_set(self, tmp_path: Path) -> None:
        shards = [one(tmp_path / "data" / f"{name}.tar", "k", picture=n) for n, name in enumerate(("cats", "dogs"))]
        assert rules(check_together(check_all(shards))) == ["WDS052"]

    def test_numbered_folders_are_one_set(self, tmp_path: Path) -> None:
        shards = [one(tmp_path / f"block_{n}" / "part_8.tar", "k", picture=n) for n in (0, 1)]
        assert rules(check_together(check_all(shards))) == ["WDS052"]


class TestTheSameFileInBothSets:
    def test_it_is_told_once_however_it_is_named(self, tmp_path: Path) -> None:
        train = [write_samples(tmp_path / f"a-{n}.tar", 3, first=3 * n) for n in range(3)]
        link = tmp_path / "link.tar"
        link.symlink_to(train[1])
        own = check_all(train)
        for paths, there in (([train[1]], ""), ([link], f", there as {train[1]}")):
            (finding,) = check_together(own, against=check_all(paths))
            assert (finding.rule, finding.shard, finding.member) == ("WDS055", str(paths[0]), None)
            assert finding.message == f"the shard is in both sets{there}"
        by_url = list(check_shards([train[1].as_uri()], CheckOptions()))
        assert [f.rule for f in check_together(own, against=by_url)] == ["WDS055"]
        (finding,) = check_together(own, against=own)
        assert finding.message == "3 of 3 shards are the same files in both sets, first a-0.tar"

    def test_pictures_of_other_files_are_still_told(self, tmp_path: Path) -> None:
        both = write_samples(tmp_path / "both.tar", 2)
        train = write_shard(tmp_path / "t.tar", [("t.jpg", jpeg_bytes(0)), ("t.cls", b"0")])
        val = write_shard(tmp_path / "v.tar", [("v.jpg", jpeg_bytes(1)), ("v.cls", b"1")])
        found = check_together(check_all([both, train]), against=check_all([both, val]))
        assert [(f.shard, f.member) for f in found if f.rule == "WDS055"] == [
            (str(both), None), (str(both), "000000"), (str(val), "v")
        ]  # fmt: skip
