"""Repairing shards: what is kept, what is dropped and where it goes, for every kind of damage."""

from __future__ import annotations

import dataclasses
import gzip
import json
import tarfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardkit import (
    OutputExistsError,
    PackError,
    RepairConfig,
    RepairReport,
    build_index,
    index_path_of,
    iter_samples,
    read_index,
    read_manifest,
    repair_shards,
)
from shardkit.quarantine import quarantine_path
from tests.helpers.packed import write_packed
from tests.helpers.pictures import cut_jpeg
from tests.helpers.shards import (
    END_MARKER,
    Content,
    check,
    jpeg_bytes,
    layout,
    raw_member,
    sample_members,
    tar_bytes,
    tar_entry,
    write_samples,
    write_shard,
)


def repair(path: Path, out: Path, **settings_: Any) -> RepairReport:
    """Repair one shard into a folder."""
    return next(iter(repair_shards([str(path)], RepairConfig(folder=out, **settings_))))


def repair_bytes(data: bytes, tmp_path: Path, **settings_: Any) -> RepairReport:
    (tmp_path / "s.tar").write_bytes(data)
    return repair(tmp_path / "s.tar", tmp_path / "out", **settings_)


def samples_of(path: Path | str | None) -> dict[str, dict[str, bytes]]:
    """Return the samples of a shard in order: key -> extension -> content."""
    assert path is not None
    with open(path, "rb") as file:
        return {str(sample.key): dict(sample.members) for sample in iter_samples(file, shard=str(path))}


def expected(members: list[tuple[str, bytes]]) -> dict[str, dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {}
    for name, content in members:
        key, _, extension = name.partition(".")
        found.setdefault(key, {})[extension] = content
    return found


def quarantined(report: RepairReport) -> dict[str, bytes]:
    """Return the members of the quarantine by name, its report left out."""
    if report.quarantine is None:
        return {}
    with tarfile.open(report.quarantine) as tar:
        contents = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]  # all files
    del contents["report.json"]
    return contents


def account(report: RepairReport) -> list[dict[str, Any]]:
    """Return the quarantine's report: an entry a member."""
    assert report.quarantine is not None
    with tarfile.open(report.quarantine) as tar:
        document = json.load(tar.extractfile("report.json"))  # type: ignore[arg-type]  # it is a file
    assert (document["format"], document["version"]) == ("shardkit-quarantine", 1)
    members: list[dict[str, Any]] = document["members"]
    return members


def actions(report: RepairReport) -> list[tuple[str, str, str | None]]:
    return [(change.action, change.rule, change.member) for change in report.changes]


def is_clean(path: str | None, *, num_classes: int | None = None) -> bool:
    assert path is not None
    return not [f for f in check(path, num_classes=num_classes).findings if f.severity != "note"]


class TestDamage:
    """What becomes of each kind of damage, one case each."""

    def test_a_cut_member_ends_the_shard_before_its_sample(self, tmp_path: Path) -> None:
        """TAR-01."""
        members = sample_members(6)
        data = tar_bytes(members)
        cut = layout(data)[10]
        report = repair_bytes(data[: cut.content + 100], tmp_path)
        assert samples_of(report.output) == expected(members[:10])
        assert is_clean(report.output)
        assert actions(report) == [("ended", "WDS005", None), ("quarantined", "WDS002", "000005.jpg")]
        assert list(quarantined(report)) == ["000005.jpg.raw"]
        assert quarantined(report)["000005.jpg.raw"][512:] == members[10][1][:100]

    def test_a_cut_between_members_loses_nothing_and_gets_its_end(self, tmp_path: Path) -> None:
        """TAR-02."""
        members = sample_members(6)
        data = tar_bytes(members)
        report = repair_bytes(data[: layout(data)[10].header], tmp_path)
        assert samples_of(report.output) == expected(members[:10])
        assert report.quarantine is None
        assert Path(str(report.output)).read_bytes().endswith(END_MARKER)

    def test_the_last_sample_goes_when_a_cut_took_what_all_others_have(self, tmp_path: Path) -> None:
        members = [m for n in range(4) for m in [*sample_members(1, first=n), (f"{n:06d}.json", b"{}")]]
        data = tar_bytes(members)
        report = repair_bytes(data[: layout(data)[-1].header], tmp_path)
        assert list(samples_of(report.output)) == ["000000", "000001", "000002"]
        assert sorted(quarantined(report)) == ["000003.cls", "000003.jpg"]

    @pytest.mark.parametrize("zeros", [0, 512])
    def test_an_end_marker_is_made_whole(self, tmp_path: Path, zeros: int) -> None:
        """TAR-04."""
        members = sample_members(3)
        data = tar_bytes(members)
        last = layout(data)[-1]
        report = repair_bytes(data[: last.content + 512] + bytes(zeros), tmp_path)
        assert samples_of(report.output) == expected(members)
        assert not check(str(report.output)).findings

    def test_bytes_behind_the_end_go_to_the_quarantine(self, tmp_path: Path) -> None:
        """TAR-05."""
        report = repair_bytes(tar_bytes(sample_members(3)) + b"log " * 175, tmp_path)
        assert list(quarantined(report).values()) == [b"log " * 175]
        assert not check(str(report.output)).findings

    def test_text_in_front_is_passed_over(self, tmp_path: Path) -> None:
        """TAR-06."""
        text = b"download: 's3://bucket/base.tar' -> '-' [1 of 1]\n"
        members = sample_members(3)
        report = repair_bytes(text + tar_bytes(members), tmp_path)
        assert samples_of(report.output) == expected(members)
        assert list(quarantined(report).values()) == [text]

    def test_several_archives_become_one(self, tmp_path: Path) -> None:
        """TAR-07, and with text between them."""
        one, two, three = sample_members(2), sample_members(2, first=2), sample_members(2, first=4)
        report = repair_bytes(tar_bytes(one) + tar_bytes(two) + b"text\n" + tar_bytes(three), tmp_path)
        assert samples_of(report.output) == expected(one + two + three)
        assert list(samples_of(report.output)) == [f"{n:06d}" for n in range(6)]
        assert [change.action for change in report.changes] == ["joined", "quarantined"]

    def test_halves_in_different_archives_are_never_joined(self, tmp_path: Path) -> None:
        """KEY-04: they were different shards."""
        data = tar_bytes([*sample_members(1), ("x.jpg", jpeg_bytes(8))]) + tar_bytes([("x.cls", b"3")])
        report = repair_bytes(data, tmp_path)
        assert list(samples_of(report.output)) == ["000000"]
        assert sorted(quarantined(report)) == ["x.cls", "x.jpg"]

    @pytest.mark.parametrize("name", ["s.tar", "s.tar.gz", "s.tgz"])
    def test_gzip_becomes_a_plain_tar_of_a_plain_name(self, tmp_path: Path, name: str) -> None:
        """TAR-08, of two gzip members."""
        data = tar_bytes(sample_members(3))
        (tmp_path / name).write_bytes(gzip.compress(data[:700]) + gzip.compress(data[700:]))
        report = repair(tmp_path / name, tmp_path / "out")
        assert report.output == str(tmp_path / "out" / "s.tar")
        assert samples_of(report.output) == expected(sample_members(3))
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["s.tar"]

    def test_a_cut_gzip_gives_every_sample_that_can_be_unpacked(self, tmp_path: Path) -> None:
        """TAR-10."""
        members = sample_members(10)
        data = tar_bytes(members)
        packed = gzip.compress(data)[:-900]
        unpacked = len(zlib.decompressobj(31).decompress(packed))
        whole = [place for place in layout(data) if place.content + place.size <= unpacked]
        report = repair_bytes(packed, tmp_path)
        assert len(samples_of(report.output)) == len(whole) // 2 > 1
        assert is_clean(report.output)
        assert any(c.action == "unpacked" and "ends early" in c.message for c in report.changes)

    def test_gzip_with_a_damaged_byte_gives_what_is_in_front_of_it(self, tmp_path: Path) -> None:
        members = sample_members(10)
        packed = bytearray(gzip.compress(tar_bytes(members), 0))
        # Stored, not deflated: its one block header is broken.
        packed[10] = 0xFF
        assert not repair_bytes(bytes(packed), tmp_path).saved
        packed = bytearray(gzip.compress(tar_bytes(members), 0))
        packed[-6] ^= 0xFF
        report = repair_bytes(bytes(packed), tmp_path)
        assert samples_of(report.output) == expected(members)
        assert any("damaged" in change.message for change in report.changes)

    def test_links_within_the_shard_become_bytes_and_others_go(self, tmp_path: Path) -> None:
        """TAR-13; nothing outside the shard is read."""
        first, second = sample_members(2)[0], sample_members(2)[2]
        members: list[Content] = [
            tar_entry("./", kind=tarfile.DIRTYPE),
            *sample_members(2),
            tar_entry("000005.jpg", kind=tarfile.SYMTYPE, linkname="000000.jpg"),
            ("000005.cls", b"5"),
            tar_entry("000006.jpg", kind=tarfile.LNKTYPE, linkname="000001.jpg"),
            ("000006.cls", b"6"),
            tar_entry("a/000007.jpg", kind=tarfile.SYMTYPE, linkname="../000005.jpg"),
            ("a/000007.cls", b"7"),
            tar_entry("000008.jpg", kind=tarfile.SYMTYPE, linkname="/etc/hostname"),
            ("000008.cls", b"8"),
            tar_entry("000009.jpg", kind=tarfile.SYMTYPE, linkname="000009.jpg"),
            ("000009.cls", b"9"),
            tar_entry("pipe.fifo", kind=tarfile.FIFOTYPE),
        ]
        report = repair_bytes(tar_bytes(members), tmp_path)
        found = samples_of(report.output)
        assert list(found) == ["000000", "000001", "000005", "000006", "a/000007"]
        assert [found[k]["jpg"] for k in list(found)[2:]] == [first[1], second[1], first[1]]
        assert is_clean(report.output)
        raw = [name for name in quarantined(report) if name.endswith(".raw")]
        assert raw == ["unnamed.raw", "000008.jpg.raw", "000009.jpg.raw", "pipe.fifo.raw"]

    def test_parts_apart_are_put_together_in_the_order_of_their_first(self, tmp_path: Path) -> None:
        """KEY-01."""
        members = sample_members(5)
        for order in (members[0::2] + members[1::2], [members[i] for i in (0, 2, 1, 3)]):
            report = repair_bytes(tar_bytes(order), tmp_path, on_exists="overwrite")
            assert samples_of(report.output) == expected(order)
            assert report.quarantine is None
            assert not check(str(report.output)).findings

    def test_of_a_double_name_the_first_is_kept_and_the_other_quarantined(self, tmp_path: Path) -> None:
        """KEY-03."""
        twice = [("000002.jpg", jpeg_bytes(2)), ("000002.jpg", jpeg_bytes(77)), ("000002.cls", b"2")]
        report = repair_bytes(tar_bytes([*sample_members(2), *twice]), tmp_path)
        assert samples_of(report.output)["000002"] == {"jpg": jpeg_bytes(2), "cls": b"2"}
        assert quarantined(report) == {"000002.jpg": jpeg_bytes(77)}
        assert "other bytes than the member of this name" in account(report)[0]["message"]

    def test_a_double_of_the_same_bytes_is_dropped_and_told(self, tmp_path: Path) -> None:
        members = sample_members(2)
        report = repair_bytes(tar_bytes([*members, *members[:2]]), tmp_path)
        assert samples_of(report.output) == expected(members)
        assert report.quarantine is None
        assert actions(report) == [("dropped", "WDS004", "000000.jpg"), ("dropped", "WDS004", "000000.cls")]

    def test_a_whole_double_gets_a_free_key_where_told(self, tmp_path: Path) -> None:
        one, two = sample_members(1), [("000000.jpg", jpeg_bytes(9)), ("000000.cls", b"9")]
        taken = [(f"000000_2.{name[-3:]}", content) for name, content in sample_members(1, first=5)]
        report = repair_bytes(tar_bytes(one + taken) + tar_bytes(two), tmp_path, doubles="rename")
        assert samples_of(report.output) == {**expected(one + taken), "000000_3": {"jpg": jpeg_bytes(9), "cls": b"9"}}
        assert report.quarantine is None
        dropping = repair(tmp_path / "s.tar", tmp_path / "other")
        assert quarantined(dropping) == dict(two)

    def test_a_broken_first_does_not_take_the_key_from_a_whole_second(self, tmp_path: Path) -> None:
        broken = [("000000.jpg", cut_jpeg()), ("000000.cls", b"1")]
        report = repair_bytes(tar_bytes(broken + sample_members(1)), tmp_path)
        assert samples_of(report.output) == expected(sample_members(1))
        assert quarantined(report) == dict(broken)

    def test_dots_in_base_names_are_not_guessed_at(self, tmp_path: Path) -> None:
        """KEY-05: the key ends at the first dot, so these are no samples."""
        dotted = [("n01_1.v2.jpg", jpeg_bytes(1)), ("n01_1.v2.cls", b"1")]
        report = repair_bytes(tar_bytes(dotted + sample_members(1)), tmp_path)
        assert list(samples_of(report.output)) == ["000000"]
        assert quarantined(report) == dict(dotted)
        assert "dots in the base name" in account(report)[0]["message"]

    def test_hidden_members_and_side_files_are_set_aside(self, tmp_path: Path) -> None:
        """KEY-10 and KEY-11."""
        aside = [("._000000.jpg", b"Mac"), (".DS_Store", b"Bud1"), ("README", b"hello"), ("classes.txt", b"tench\n")]
        report = repair_bytes(tar_bytes(aside + sample_members(2)), tmp_path)
        assert not check(str(report.output)).findings
        # Their names are safe to unpack: nothing hidden.
        assert list(quarantined(report)) == ["_000000.jpg", "DS_Store", "README", "classes.txt"]

    def test_samples_that_cannot_be_whole_are_set_aside(self, tmp_path: Path) -> None:
        """KEY-12, KEY-13, IMG-06 and a label out of range."""
        good = sample_members(1)
        bad = [
            ("1.jpg", jpeg_bytes(1)), ("2.cls", b"2"), ("3.jpg", b""), ("3.cls", b"3"), ("4.jpg", jpeg_bytes(4)),
            ("4.cls", b" "), ("5.jpg", cut_jpeg()), ("5.cls", b"5"), ("6.jpg", jpeg_bytes(6)), ("6.cls", b"10"),
        ]  # fmt: skip
        report = repair_bytes(tar_bytes(bad + good), tmp_path, num_classes=10)
        assert samples_of(report.output) == expected(good)
        assert quarantined(report) == dict(bad)
        assert [entry["rule"] for entry in account(report)] == [
            "WDS022", "WDS021", "WDS043", "WDS043", "WDS032", "WDS032", "WDS040", "WDS040", "WDS031", "WDS031",
        ]  # fmt: skip

    def test_a_pickle_goes_and_its_sample_stays(self, tmp_path: Path) -> None:
        """SEC-03."""
        report = repair_bytes(tar_bytes([*sample_members(1), ("000000.pyd", b"cos\nsystem\n")]), tmp_path)
        assert samples_of(report.output) == expected(sample_members(1))
        assert quarantined(report) == {"000000.pyd": b"cos\nsystem\n"}

    def test_names_that_lead_elsewhere_are_quarantined_under_safe_ones(self, tmp_path: Path) -> None:
        """SEC-02."""
        unsafe = [
            ("../../e.jpg", jpeg_bytes(0)),
            ("../../e.cls", b"0"),
            ("/tmp/a.jpg", jpeg_bytes(1)),
            ("/tmp/a.cls", b"1"),
        ]
        report = repair_bytes(tar_bytes([*unsafe, *sample_members(2)]), tmp_path)
        assert list(samples_of(report.output)) == ["000000", "000001"]
        assert list(quarantined(report)) == ["e.jpg", "e.cls", "tmp/a.jpg", "tmp/a.cls"]
        assert [entry["member"] for entry in account(report)] == [name for name, _ in unsafe]

    def test_behind_a_damaged_header_the_rest_is_found_also_out_of_step(self, tmp_path: Path) -> None:
        data = tar_bytes(sample_members(6))
        broken = layout(data)[4]
        data = data[: broken.header] + b"\xff" * 512 + data[broken.header + 512 :]
        for inserted in (b"", b"seven"):
            report = repair_bytes(
                data[: broken.content] + inserted + data[broken.content :], tmp_path, on_exists="overwrite"
            )
            assert list(samples_of(report.output)) == ["000000", "000001", "000003", "000004", "000005"]
            assert is_clean(report.output)

    def test_a_size_beyond_the_end_hides_nothing_that_follows(self, tmp_path: Path) -> None:
        liar = raw_member(b"liar.jpg", b"x" * 512, fields={124: b"77777777777\0"})
        data = tar_bytes(sample_members(1))
        cut = layout(data)[-1].content + 512
        report = repair_bytes(data[:cut] + liar + tar_bytes(sample_members(2, first=1)), tmp_path)
        assert list(samples_of(report.output)) == ["000000", "000001", "000002"]
        assert quarantined(report) == {"liar.jpg.raw": liar}

    def test_the_members_of_a_cut_inner_tar_are_not_taken_for_ours(self, tmp_path: Path) -> None:
        inner = tar_bytes(sample_members(3, first=50))
        data = tar_bytes([*sample_members(2), ("inner.tar", inner)])
        place = layout(data)[-1]
        report = repair_bytes(data[: place.content + 3000], tmp_path)
        assert list(samples_of(report.output)) == ["000000", "000001"]


class TestOutput:
    """Where the new shard goes, and what else changes with it."""

    def test_a_good_shard_is_left_alone(self, tmp_path: Path) -> None:
        report = repair(write_samples(tmp_path / "s.tar", 3), tmp_path / "out")
        assert (report.changes, report.output, report.num_samples) == ((), None, 3)
        assert not list((tmp_path / "out").iterdir())
        copied = repair(tmp_path / "s.tar", tmp_path / "out", copy_good=True)
        assert samples_of(copied.output) == expected(sample_members(3))

    def test_the_entry_of_a_folder_is_no_damage(self, tmp_path: Path) -> None:
        report = repair_bytes(tar_bytes([tar_entry("./", kind=tarfile.DIRTYPE), *sample_members(1)]), tmp_path)
        assert (report.changes, report.output) == ((), None)

    @pytest.mark.parametrize("data", [b"", bytes(1024), b"<html>" + b"x" * 3000, tar_bytes([("README", b"")])])
    def test_where_nothing_can_be_saved_nothing_is_written(self, tmp_path: Path, data: bytes) -> None:
        """TAR-17 and TAR-18."""
        (tmp_path / "s.tar").write_bytes(data)
        (report,) = repair_shards([str(tmp_path / "s.tar")], RepairConfig(folder=None))
        assert not report.saved
        assert (tmp_path / "s.tar").read_bytes() == data
        assert [path.name for path in tmp_path.iterdir()] == ["s.tar"]

    def test_a_dry_run_says_the_same_and_writes_nothing(self, tmp_path: Path) -> None:
        data = gzip.compress(tar_bytes(sample_members(3)) + b"garbage")
        dry = repair_bytes(data, tmp_path, dry_run=True)
        assert [path.name for path in tmp_path.iterdir()] == ["s.tar"]
        done = repair(tmp_path / "s.tar", tmp_path / "out")
        assert dataclasses.replace(done, output=None, quarantine=None) == dry

    def test_in_place_keeps_every_quarantine(self, tmp_path: Path) -> None:
        path = tmp_path / "s.tar"
        for garbage in (b"one", b"two"):
            path.write_bytes(tar_bytes(sample_members(2)) + garbage)
            (report,) = repair_shards([str(path)], RepairConfig(folder=None))
            assert report.output == str(path)
            assert list(quarantined(report).values()) == [garbage]
        names = sorted(entry.name for entry in (tmp_path / "quarantine").iterdir())
        assert names == ["s.quarantine-2.tar", "s.quarantine.tar"]
        # No pattern for shards finds it.
        assert list(tmp_path.glob("*.tar")) == [path]

    def test_in_place_brings_index_and_manifest_up_to_date(self, tmp_path: Path) -> None:
        first, second = write_packed(tmp_path, [3, 2])
        first.write_bytes(first.read_bytes()[: layout(first.read_bytes())[4].content + 10])
        (report,) = repair_shards([str(first)], RepairConfig(folder=None))
        assert report.num_samples == 2
        for path in (first, second):
            assert is_clean(str(path))
            assert read_index(Path(index_path_of(str(path)))).checksum == build_index(path).checksum
        manifest = read_manifest(tmp_path / "t.manifest.json")
        assert manifest.num_samples == 4
        assert [line.partition(" at byte")[0] for line in manifest.skipped] == ["t-00.tar: 000002.jpg"]

    def test_labels_are_held_against_the_manifest_beside_the_shard(self, tmp_path: Path) -> None:
        (path,) = write_packed(tmp_path, [2])
        write_shard(path, [*sample_members(1), ("x.jpg", jpeg_bytes(1)), ("x.cls", b"10")])
        assert list(samples_of(repair(path, tmp_path / "out").output)) == ["000000"]

    def test_nothing_is_overwritten_unless_told(self, tmp_path: Path) -> None:
        path = tmp_path / "s.tar"
        path.write_bytes(tar_bytes(sample_members(2)) + b"x")
        repair(path, tmp_path / "out")
        with pytest.raises(OutputExistsError, match="there already"):
            repair(path, tmp_path / "out")
        repair(path, tmp_path / "out", on_exists="overwrite")
        for setting in ("fail", "overwrite"):
            with pytest.raises(OutputExistsError, match="say --in-place"):
                repair(path, tmp_path, on_exists=setting)

    def test_two_shards_of_one_name_are_refused_before_either_is_touched(self, tmp_path: Path) -> None:
        paths = [str(write_samples(tmp_path / folder / "s.tar", 1)) for folder in ("a", "b")]
        with pytest.raises(PackError, match="would both become"):
            list(repair_shards(paths, RepairConfig(folder=tmp_path / "out")))
        assert not (tmp_path / "out").exists()

    def test_a_gzip_name_is_refused_in_place(self, tmp_path: Path) -> None:
        with pytest.raises(PackError, match="which this name denies"):
            list(repair_shards([str(tmp_path / "s.tar.gz")], RepairConfig(folder=None)))

    def test_processes_give_the_same_reports(self, tmp_path: Path) -> None:
        paths = []
        for number in range(3):
            path = tmp_path / f"s-{number}.tar"
            path.write_bytes(tar_bytes(sample_members(2, first=number)) + b"x" * number)
            paths.append(str(path))
        one = list(repair_shards(paths, RepairConfig(folder=tmp_path / "out")))
        two = list(repair_shards(paths, RepairConfig(folder=tmp_path / "out", on_exists="overwrite"), jobs=2))
        assert one == two
        assert quarantine_path(tmp_path / "out" / "s-2.tar").exists()


# A sample in the making: which of its parts are there, how its picture is, whether it comes twice.
SAMPLE = st.tuples(
    st.sampled_from(["whole", "whole", "whole", "no jpg", "no cls", "bad jpg", "bad cls"]),
    st.sampled_from(["once", "once", "once", "same again", "other again"]),
)
EXTRA = st.sampled_from(
    ["._hidden.jpg", "README", "../up.jpg", "/abs.jpg", "dots.v2.jpg", "link.jpg", "away.jpg", "fifo", "folder/"]
)


def build_members(samples: list[tuple[str, str]], extras: list[str]) -> tuple[list[Content], set[str]]:
    """Return members, and the keys of samples that are whole and come once."""
    members: list[Content] = []
    whole = set()
    for number, (state, times) in enumerate(samples):
        picture = cut_jpeg() if state == "bad jpg" else jpeg_bytes(number)
        label = b"seven" if state == "bad cls" else str(number).encode()
        parts = [(f"{number:03d}.jpg", picture), (f"{number:03d}.cls", label)]
        parts = [part for part in parts if not (state == "no jpg" and part[0].endswith("jpg"))]
        parts = [part for part in parts if not (state == "no cls" and part[0].endswith("cls"))]
        members += parts
        if times == "same again":
            members += parts
        elif times == "other again":
            members += [(name, content + b"\n") for name, content in parts]
        if state == "whole":
            whole.add(f"{number:03d}")
    for name in extras:
        if name == "link.jpg":
            members.append(tar_entry(name, kind=tarfile.SYMTYPE, linkname="000.jpg"))
        elif name == "away.jpg":
            members.append(tar_entry(name, kind=tarfile.LNKTYPE, linkname="../../etc/passwd"))
        elif name in {"fifo", "folder/"}:
            members.append(tar_entry(name, kind=tarfile.FIFOTYPE if name == "fifo" else tarfile.DIRTYPE))
        else:
            members.append((name, name.encode()))
    return members, whole


TEXT = b"text\n"


def damaged(members: list[Content], *, damage: str, where: float) -> tuple[bytes, set[int]]:
    """Return a shard with this damage, at this share of its length, and the numbers of the members that are intact."""
    data = tar_bytes(members)
    places = layout(data)
    numbers = range(len(places))
    if damage == "cut":
        at = int(where * len(data))
        return data[:at], {number for number in numbers if places[number].content + places[number].size <= at}
    if damage == "header":
        hit = min(int(where * len(places)), len(places) - 1)
        at = places[hit].header
        return data[:at] + b"\xff" + data[at + 1 :], set(numbers) - {hit}
    made = {
        "none": data,
        "no end": data[: places[-1].content + -(-places[-1].size // 512) * 512],
        "front": TEXT + data,
        "behind": data + TEXT,
        "twice": data + tar_bytes(sample_members(2, first=900)),
        "gzip": gzip.compress(data),
    }
    return made[damage], set(numbers)


def require_account(
    report: RepairReport, kept: dict[str, dict[str, bytes]], members: list[tuple[Content, int]]
) -> None:
    """Assert that each member (and its header's offset) is kept, or in the quarantine with its bytes, or told of."""
    contents = [content for sample in kept.values() for content in sample.values()]
    told = {(change.member, change.offset): change.action for change in report.changes}
    files = quarantined(report)
    entries = account(report) if report.quarantine else []
    dropped = {(entry["member"], entry["offset"]): files[entry["name"]] for entry in entries}
    for member, offset in members:
        if isinstance(member, tarfile.TarInfo):
            assert (member.name, offset) in told or not report.changes
        elif (member[0], offset) in dropped:
            assert dropped[member[0], offset] == member[1]
        else:
            assert member[1] in contents, (member[0], told)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    samples=st.lists(SAMPLE, min_size=1, max_size=4),
    extras=st.lists(EXTRA, max_size=3, unique=True),
    order=st.randoms(use_true_random=False),
    mixed=st.booleans(),
    damage=st.sampled_from(["none", "cut", "header", "front", "behind", "twice", "gzip", "no end"]),
    where=st.floats(min_value=0, max_value=1),
    doubles=st.sampled_from(["drop", "rename"]),
)
def test_whatever_the_damage_the_result_is_clean_and_every_member_is_accounted_for(
    tmp_path_factory: pytest.TempPathFactory,
    samples: list[tuple[str, str]],
    extras: list[str],
    order: Any,
    mixed: bool,
    damage: str,
    where: float,
    doubles: str,
) -> None:
    members, whole = build_members(samples, extras)
    if mixed:
        order.shuffle(members)
    data, intact = damaged(members, damage=damage, where=where)
    folder = tmp_path_factory.mktemp("law")
    report = repair_bytes(data, folder, doubles=doubles)
    if not report.saved:
        assert report.output is None
        return
    output = folder / "s.tar" if report.output is None else Path(report.output)
    assert is_clean(str(output))
    assert repair(output, folder / "again").changes == ()
    kept = samples_of(output)
    places = layout(tar_bytes(members))
    shift = len(TEXT) if damage == "front" else 0
    require_account(report, kept, [(members[n], places[n].header + shift) for n in sorted(intact)])
    at: dict[str, set[int]] = {}
    for number, place in enumerate(places):
        at.setdefault(place.name.partition(".")[0], set()).add(number)
    undamaged = sorted(key for key in whole if at[key] <= intact)
    for key in undamaged:
        number = int(key)
        if samples[number][1] == "other again" and mixed:
            # Which of the two labels was with which picture, nothing in the shard says any more.
            assert kept[key]["jpg"] in {jpeg_bytes(number), jpeg_bytes(number) + b"\n"}
        else:
            assert kept[key] == {"jpg": jpeg_bytes(number), "cls": str(number).encode()}
    assert mixed or [key for key in kept if key in undamaged] == undamaged
