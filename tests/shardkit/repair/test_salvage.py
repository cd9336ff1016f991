"""What is found in shards whose bytes are damaged, as a repair shows it."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest

from tests.helpers.repairing import (
    actions,
    expected,
    is_clean,
    quarantined,
    repair,
    repair_bytes,
    samples_of,
)
from tests.helpers.shards import (
    END_MARKER,
    check,
    layout,
    raw_member,
    sample_members,
    tar_bytes,
)


class TestBytes:
    """Cuts, bytes that do not belong, several archives, gzip."""

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


HOSTILE = {
    "sizes beyond the end": raw_member(b"liar.jpg", fields={124: b"77777777777\0"}) * 3000,
    "every other header broken": (b"\xff" * 512 + raw_member(b"liar.jpg", fields={124: b"77777777777\0"})) * 1500,
    "archives and text in turn": (raw_member(b"a.txt", b"x") + bytes(1024) + b"text" * 128) * 1000,
    "nothing but magic": b"ustar" * 200_000,
    "nothing but extended headers": raw_member(b"x", b"11 path=xx\n", fields={156: b"x"}) * 3000,
    "one name over and over": raw_member(b"a.jpg", b"x") * 3000 + raw_member(b"a.cls", b"x") * 3000 + bytes(1024),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_shard_takes_time_in_proportion_to_its_size_and_hides_no_sample(tmp_path: Path, kind: str) -> None:
    report = repair_bytes(HOSTILE[kind] + tar_bytes(sample_members(2)), tmp_path, doubles="rename")
    assert list(samples_of(report.output)) == ["000000", "000001"]
