"""What becomes of members that make no good samples as they stand."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.helpers.pictures import cut_jpeg
from tests.helpers.repairing import (
    account,
    actions,
    expected,
    is_clean,
    quarantined,
    repair,
    repair_bytes,
    samples_of,
)
from tests.helpers.shards import (
    Content,
    check,
    jpeg_bytes,
    sample_members,
    tar_bytes,
    tar_entry,
)


class TestMembers:
    """Links, doubles, parts apart, and what cannot be whole."""

    def test_halves_in_different_archives_are_never_joined(self, tmp_path: Path) -> None:
        """KEY-04: they were different shards."""
        data = tar_bytes([*sample_members(1), ("x.jpg", jpeg_bytes(8))]) + tar_bytes([("x.cls", b"3")])
        report = repair_bytes(data, tmp_path)
        assert list(samples_of(report.output)) == ["000000"]
        assert sorted(quarantined(report)) == ["x.cls", "x.jpg"]

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

    @pytest.mark.parametrize(("doubles", "keys"), [("drop", ["Cat", "x"]), ("rename", ["Cat", "cat_2", "x"])])
    def test_of_keys_that_differ_in_case_alone_the_first_stays(
        self, tmp_path: Path, doubles: str, keys: list[str]
    ) -> None:
        members = [(f"{key}.{e}", c) for n, key in enumerate(("Cat", "cat", "x")) for e, c in one_sample(n)]
        report = repair_bytes(tar_bytes(members), tmp_path, doubles=doubles)
        assert list(samples_of(report.output)) == keys
        assert is_clean(report.output)

    def test_a_sample_whose_name_is_not_utf8_goes(self, tmp_path: Path) -> None:
        """TAR-12."""
        bad = [(f"caf\udce9.{e}", c) for e, c in one_sample(1)]
        report = repair_bytes(tar_bytes([*sample_members(1), *bad]), tmp_path)
        assert list(samples_of(report.output)) == ["000000"]
        assert quarantined(report) == dict(bad)

    def test_shards_sorted_by_class_are_not_touched_for_it(self, tmp_path: Path) -> None:
        members = [
            (f"{n:03d}.{e}", c) for n in range(40) for e, c in (("jpg", jpeg_bytes(n)), ("cls", b"%d" % (n // 20)))
        ]
        report = repair_bytes(tar_bytes(members) + b"text", tmp_path)
        assert report.num_samples == 40


def one_sample(number: int) -> list[tuple[str, bytes]]:
    return [("jpg", jpeg_bytes(number)), ("cls", str(number).encode())]
