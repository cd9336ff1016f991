from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from shardkit import CheckOptions, ShardReport, check_shards, read_manifest, write_manifest
from tests.helpers.folders import image_folder, pack_folder
from tests.helpers.shards import (
    check,
    jpeg_bytes,
    raw_member,
    rules_in,
    sample_members,
    tar_bytes,
    write_samples,
    write_shard,
)


def check_all(paths: list[Path], *, jobs: int = 1) -> list[ShardReport]:
    return list(check_shards([str(path) for path in paths], CheckOptions(jobs=jobs)))


class TestShards:
    def test_a_good_shard_has_no_finding(self, tmp_path: Path) -> None:
        report = check(write_samples(tmp_path / "x.tar", 5))
        assert report.findings == ()
        assert len(report.marks) == 5

    def test_a_finding_says_rule_severity_shard_place_and_remedy(self, tmp_path: Path) -> None:
        members = [*sample_members(1), ("a.jpg", jpeg_bytes(1)), ("a.cls", b"tench")]
        (finding,) = check(write_shard(tmp_path / "x.tar", members)).findings
        assert (finding.rule, finding.severity, finding.shard) == ("WDS030", "error", str(tmp_path / "x.tar"))
        assert (finding.member, finding.offset) == ("a.cls", 4096)
        assert finding.message == "cls holds b'tench', not an integer"
        assert finding.remedy

    def test_all_findings_come_not_the_first_alone(self, tmp_path: Path) -> None:
        members = [("a.jpg", b""), ("a.cls", b"x"), ("b.jpg", b"y"), ("b.cls", b""), ("c.cls", b"-1")]
        assert rules_in(check(write_shard(tmp_path / "x.tar", members))) == [
            "WDS021", "WDS030", "WDS031", "WDS032", "WDS040", "WDS043"
        ]  # fmt: skip

    def test_a_file_that_cannot_be_read_is_a_finding_and_the_others_are_checked(self, tmp_path: Path) -> None:
        (tmp_path / "folder.tar").mkdir()
        good = write_samples(tmp_path / "x.tar", 1)
        reports = check_all([tmp_path / "none.tar", tmp_path / "folder.tar", good])
        assert [rules_in(report) for report in reports] == [["WDS000"], ["WDS000"], []]
        assert [report.findings[0].message for report in reports[:2]] == [
            "cannot be read: No such file or directory",
            "cannot be read: Is a directory",
        ]

    def test_two_processes_find_what_one_finds(self, tmp_path: Path) -> None:
        shards = [write_samples(tmp_path / f"{n}.tar", 2, first=n) for n in range(3)]
        (tmp_path / "1.tar").write_bytes(b"<html>")
        assert check_all(shards, jobs=2) == check_all(shards)

    def test_standard_input_is_read_by_this_process(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(tar_bytes(sample_members(2)))))
        reports = check_all([Path("-"), write_samples(tmp_path / "x.tar", 1)], jobs=2)
        assert [report.summary.samples for report in reports] == [2, 1]

    def test_no_shards_are_no_reports(self) -> None:
        assert check_all([], jobs=4) == []

    @pytest.mark.parametrize("name", [b"caf\xe9.v2.jpg", b"caf\xe9.\xe9.jpg", b"a\x1b[31m.jpg", b"../caf\xe9.jpg"])
    def test_messages_are_visible_text_whatever_the_names(self, tmp_path: Path, name: bytes) -> None:
        path = tmp_path / "x.tar"
        link = raw_member(b"l.jpg", fields={156: b"2", 157: name})
        path.write_bytes(raw_member(name, b"x") + link + raw_member(b"README" + name[:4], b"") + bytes(1024))
        report = check(path)
        assert report.findings
        for finding in report.findings:
            assert finding.message.isprintable()
            finding.message.encode()


class TestManifest:
    @pytest.fixture
    def packed(self, tmp_path: Path) -> Path:
        pack_folder(image_folder(tmp_path / "in"), tmp_path / "out")
        return tmp_path / "out"

    def test_shards_as_packed_have_no_finding(self, packed: Path) -> None:
        assert [report.findings for report in check_all(sorted(packed.glob("*.tar")))] == [(), (), ()]

    def test_one_byte_of_a_picture_is_found_by_the_checksum(self, packed: Path) -> None:
        path = packed / "t-000001.tar"
        data = bytearray(path.read_bytes())
        data[700] ^= 1
        path.write_bytes(data)
        assert "WDS050" in rules_in(check(path))

    def test_a_shard_cut_between_samples_is_told_by_bytes_and_count(self, packed: Path) -> None:
        path = packed / "t-000001.tar"
        path.write_bytes(path.read_bytes()[: 512 * 5])
        found = [finding.message for finding in check(path).findings if finding.rule == "WDS050"]
        assert [message.partition(", ")[2][:17] for message in found] == ["the manifest says"] * 2

    def test_a_missing_end_marker_is_cleared_by_the_count_on_record(self, packed: Path) -> None:
        path = packed / "t-000001.tar"
        path.write_bytes(path.read_bytes()[:-1024])
        assert rules_in(check(path)) == ["WDS050"]

    def test_labels_are_held_against_its_classes(self, packed: Path) -> None:
        write_samples(packed / "t-000000.tar", 10)
        messages = [finding.message for finding in check(packed / "t-000000.tar").findings]
        assert "label 3 is outside 0..2" in messages

    def test_a_number_of_classes_that_is_given_wins(self, packed: Path) -> None:
        report = check(packed / "t-000000.tar", num_classes=2)
        assert {finding.message for finding in report.findings} == {"label 2 is outside 0..1"}

    def test_a_manifest_without_classes_sets_no_limit(self, packed: Path) -> None:
        path = packed / "t.manifest.json"
        document = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(document | {"classes": []}), encoding="utf-8")
        assert check(packed / "t-000000.tar").findings == ()

    @pytest.mark.parametrize("data", [b"", b"{}", b"\xff" * 9, b'{"format": "shardkit-manifest", "version": 9}'])
    def test_a_damaged_manifest_is_a_finding_told_once(self, packed: Path, data: bytes) -> None:
        (packed / "t.manifest.json").write_bytes(data)
        reports = check_all(sorted(packed.glob("*.tar")))
        assert [rules_in(report) for report in reports] == [["WDS053"], [], []]
        assert "t.manifest.json: " in reports[0].findings[0].message

    def test_a_shard_that_the_folder_has_lost_is_found_where_the_set_should_be_complete(self, packed: Path) -> None:
        (packed / "t-000001.tar").unlink()
        paths = [str(path) for path in sorted(packed.glob("*.tar"))]
        assert [r.findings for r in check_shards(paths, CheckOptions())] == [(), ()]
        reports = list(check_shards(paths, CheckOptions(complete=True)))
        assert [rules_in(report) for report in reports] == [["WDS054"], []]
        assert "1 shard of the manifest is not in the folder: t-000001.tar" in reports[0].findings[0].message

    def test_it_can_be_left_out(self, packed: Path) -> None:
        (packed / "t.manifest.json").write_bytes(b"{}")
        options = CheckOptions(against_manifest=False)
        assert [r.findings for r in check_shards([str(packed / "t-000000.tar")], options)] == [()]

    def test_a_shard_that_manifests_of_two_splits_list_is_an_error_that_names_them(self, packed: Path) -> None:
        manifest = read_manifest(packed / "t.manifest.json")
        write_manifest(replace(manifest, split="val", shards=manifest.shards[:1]), packed / "v.manifest.json")
        first, second = check_shards([str(packed / record.name) for record in manifest.shards[:2]], CheckOptions())
        (finding,) = first.findings
        assert (finding.rule, finding.severity) == ("WDS071", "error")
        assert finding.message == "in t.manifest.json for train, in v.manifest.json for val"
        assert second.findings == ()
        write_manifest(manifest, packed / "v.manifest.json", replace=True)
        (first,) = check_shards([str(packed / manifest.shards[0].name)], CheckOptions())
        assert first.findings == ()

    def test_a_shard_of_no_manifest_is_checked_alone(self, packed: Path) -> None:
        assert check(write_samples(packed / "other.tar", 10)).findings == ()

    def test_an_edited_manifest_is_refused(self, packed: Path) -> None:
        manifest = read_manifest(packed / "t.manifest.json")
        text = (packed / "t.manifest.json").read_text(encoding="utf-8")
        edited = text.replace(f'"num_samples": {manifest.shards[0].num_samples}', '"num_samples": 4')
        (packed / "t.manifest.json").write_text(edited, encoding="utf-8")
        assert rules_in(check(packed / "t-000000.tar")) == ["WDS053"]
        assert replace(manifest, seed=1).digest == manifest.digest


def test_a_text_in_front_of_a_tar_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"download: x\n" + tar_bytes(sample_members(2)))
    (finding,) = check(tmp_path / "x.tar").findings
    assert (finding.rule, finding.offset) == ("WDS001", 0)
    assert "download: x" in finding.message
