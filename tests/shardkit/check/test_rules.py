from __future__ import annotations

import gzip
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

from shardkit import RULES, CheckOptions, UnknownRuleError, check_shards
from tests.helpers.pictures import bomb_png, cmyk_jpeg, cut_jpeg, encode, jpeg_with_bad_exif, noisy_jpeg, turned_jpeg
from tests.helpers.shards import (
    Content,
    check,
    jpeg_bytes,
    layout,
    raw_member,
    rules_in,
    sample_members,
    tar_bytes,
    tar_entry,
)

# Reported by others than the check of one shard: test_validate.py, test_together.py and ../tar/test_reader.py have
# their tests; of limits that take 256 MiB, test_limits.py and test_no_end.py.
ELSEWHERE = {
    "WDS000", "WDS014", "WDS016", "WDS017", "WDS033", "WDS035", "WDS037", "WDS038", "WDS050", "WDS051", "WDS052",
    "WDS053", "WDS054", "WDS055", "WDS056", "WDS057", "WDS058", "WDS059", "WDS071", "WDS072",
}  # fmt: skip
PICTURE = Image.new("RGB", (32, 24), (200, 30, 40))
FLOATS = encode(Image.new("F", (8, 8), 0.5), "TIFF")
TWO, TEN = sample_members(2), tar_bytes(sample_members(10))


@dataclass(frozen=True, slots=True)
class Case:
    """The smallest shard that breaks a rule, and what is said of it."""

    rule: str
    severity: str
    data: bytes
    message: str
    member: str | None = None
    offset: int | None = None


def with_sample(*members: Content, key: str = "000009") -> bytes:
    """Return a shard of two good samples and these members, which lie at byte 5120."""
    return tar_bytes([*TWO, *members])


def with_picture(data: bytes, label: bytes = b"0") -> bytes:
    return with_sample(("9.jpg", data), ("9.cls", label))


def pair(key: str) -> list[Content]:
    return [(f"{key}.jpg", jpeg_bytes(len(key) + ord(key[0]))), (f"{key}.cls", b"1")]


def labelled(labels: Sequence[int]) -> bytes:
    return tar_bytes(
        [(f"{n:06d}.{e}", c) for n, label in enumerate(labels)
         for e, c in (("jpg", jpeg_bytes(n)), ("cls", str(label).encode()))]
    )  # fmt: skip


def marked_jpeg() -> bytes:
    """Return a JPEG with an end marker within: decoders end the picture there, in gray."""
    data = noisy_jpeg()
    return data[:4000] + b"\xff\xd9" + data[4002:]


def changed(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def without_marker(data: bytes) -> bytes:
    last = layout(data)[-1]
    return data[: last.content + 512]


CASES = [
    Case("WDS001", "error", b"<html><body>Sign in</body></html>" * 20, "not a tar: an HTML page", None, 0),
    Case("WDS002", "error", TEN[:13412], "cut at byte 13412: the member needs", "000005.jpg", 12800),
    Case("WDS003", "error", changed(TEN, 12803), "header checksum is", None, 12800),
    Case(
        "WDS004", "error", with_sample(("9.jpg", jpeg_bytes(1)), ("9.jpg", jpeg_bytes(2)), ("9.cls", b"1")),
        "duplicate member name, first at byte 5120", "9.jpg", 6656,
    ),
    Case("WDS005", "error", TEN[:12800], "5 samples, end-of-archive marker missing: the file may be cut"),
    Case("WDS006", "warning", TEN + b"x" * 700, "700 bytes after the end marker that are not zeros", None, 30720),
    Case("WDS007", "error", TEN * 2, "10 samples, then another archive at byte 30720 with 10 more", None, 30720),
    Case("WDS008", "error", b"", "empty file (0 bytes)"),
    Case("WDS009", "warning", tar_bytes([]), "0 samples"),
    Case(
        "WDS010", "error", with_sample(tar_entry("9.jpg", kind=tarfile.SYMTYPE, linkname="/etc/hostname")),
        "a symbolic link to '/etc/hostname'", "9.jpg", 5120,
    ),
    Case("WDS011", "warning", with_sample(tar_entry("9.jpg", kind=tarfile.FIFOTYPE)), "a fifo", "9.jpg", 5120),
    Case("WDS012", "note", gzip.compress(TEN), "gzip: random access will be slow"),
    Case("WDS013", "note", without_marker(TEN) + bytes(512), "the end marker is one zero block, not two"),
    Case("WDS015", "note", gzip.compress(TEN[:5120]) + gzip.compress(TEN[5120:]), "2 gzip members in one file"),
    Case(
        "WDS020", "error", tar_bytes([*TWO, *sample_members(2, first=2)[::2], *sample_members(2, first=2)[1::2]]),
        "parts of one sample are not side by side: 2 of 4 keys, first 000002.cls", "000002.cls", 8192,
    ),
    Case("WDS021", "error", with_sample(("9.cls", b"1")), "lacks jpg", "9", 5120),
    Case("WDS022", "error", with_sample(("9.jpg", jpeg_bytes(0))), "lacks cls", "9", 5120),
    Case("WDS023", "note", with_sample(("._9.jpg", b"x"), (".DS_Store", b"x")), "2 hidden members ignored (1 Apple"),
    Case(
        "WDS024", "warning", with_sample(("../9.jpg", jpeg_bytes(0)), ("../9.cls", b"1")),
        "an absolute name, or one with '..'", "../9.jpg", 5120,
    ),
    Case("WDS025", "note", with_sample(("README", b"x"), ("a.txt", b"")), "2 other members: README, a.txt", "README"),
    Case(
        "WDS026", "warning", with_sample(("9.jpg", jpeg_bytes(0)), ("9.cls", b"1"), ("9.pkl", b"x")),
        "a pickle: a reader that unpickles it runs its code", "9.pkl", 7680,
    ),
    Case(
        "WDS027", "warning", with_sample(("caf\udce9.jpg", jpeg_bytes(9)), ("caf\udce9.cls", b"1")),
        "2 names that are not UTF-8 or hold control characters: caf\\xe9.jpg, caf\\xe9.cls", "caf\udce9.jpg", 5120,
    ),
    Case(
        "WDS028", "warning", with_sample(*pair("Cat"), *pair("cat")),
        "1 key differs from another in case alone, first from 'Cat'", "cat", 7680,
    ),
    Case(
        "WDS029", "note", with_sample(*pair("a/1"), *pair("b/1"), *pair("b/2")),
        "1 base names are used in several folders, first 'a/1'", "a/1", 5120,
    ),
    Case("WDS030", "error", with_picture(jpeg_bytes(0), b"tench"), "cls holds b'tench', not an integer", "9.cls"),
    Case("WDS031", "error", with_picture(jpeg_bytes(0), b"-1"), "label -1 is outside 0 and up", "9.cls"),
    Case("WDS032", "error", with_picture(jpeg_bytes(0), b"\n"), "blank cls", "9.cls"),
    Case(
        "WDS034", "warning", labelled([n // 8 for n in range(16)]),
        "the label changes 1 time in 16 samples, 8 times if they were mixed",
    ),
    Case("WDS036", "note", with_picture(jpeg_bytes(0), b"007"), "1 label is not plain digits, first b'007'", "9.cls"),
    Case("WDS040", "error", with_picture(cut_jpeg()), "the picture does not decode: ", "9.jpg", 5120),
    Case("WDS041", "note", with_picture(encode(PICTURE, "PNG")), "another format than the name says: PNG: 1", "9.jpg"),
    Case("WDS042", "error", with_picture(bomb_png(2000)), "2000x2000 = 4000000 pixels, more than the limit", "9.jpg"),
    Case("WDS043", "error", with_picture(b""), "the picture is empty (0 bytes)", "9.jpg", 5120),
    Case("WDS044", "note", with_picture(cmyk_jpeg()), "1 CMYK", "9.jpg"),
    Case("WDS045", "note", with_picture(turned_jpeg(6)), "1 turned by EXIF", "9.jpg"),
    Case("WDS046", "note", with_picture(encode(Image.new("I;16", (8, 8)), "PNG")), "1 of 16 bits", "9.jpg"),
    Case("WDS047", "note", with_picture(jpeg_with_bad_exif("short")), "1 with damaged EXIF", "9.jpg"),
    Case(
        "WDS048", "note", with_picture(encode(PICTURE, "GIF", save_all=True, append_images=[PICTURE.convert("L")])),
        "1 animated", "9.jpg",
    ),
    Case(
        "WDS049", "warning", with_picture(marked_jpeg()),
        "damaged inside: an end marker at byte 4000, and another at byte", "9.jpg",
    ),
    Case(
        "WDS060", "note", with_sample(("9.cls", b"1"), ("9.jpg", jpeg_bytes(9))),
        "1 sample has its parts in another order: cls, jpg, not jpg, cls", "9", 5120,
    ),
    Case(
        "WDS061", "note", with_sample(*pair("9"), ("9.png", encode(PICTURE, "PNG"))),
        "1 sample has several pictures: jpg, png", "9", 5120,
    ),
    Case("WDS070", "warning", with_sample(("9.tif", FLOATS), ("9.cls", b"1")), "1 of float pixels", "9.tif", 5120),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_the_rule_fires_on_the_smallest_shard_and_says_where(tmp_path: Path, case: Case) -> None:
    (tmp_path / "x.tar").write_bytes(case.data)
    found = [finding for finding in check(tmp_path / "x.tar").findings if finding.rule == case.rule]
    assert found
    assert case.message in found[0].message
    assert found[0].severity == case.severity
    assert case.member in (None, found[0].member)
    assert case.offset in (None, found[0].offset)


def test_a_good_shard_breaks_no_rule(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(TEN)
    assert check(tmp_path / "x.tar", num_classes=10).findings == ()


def test_every_rule_has_a_case_here() -> None:
    assert {case.rule for case in CASES} | ELSEWHERE == set(RULES)


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_every_rule_has_an_effect_and_a_remedy(rule_id: str) -> None:
    rule = RULES[rule_id]
    assert rule.id == rule_id
    assert rule.severity in ("error", "warning", "note")
    for text in (rule.title, rule.effect, rule.explanation):
        assert text.endswith(".")
        assert text[0].isupper() or not text[0].isalpha() or text.startswith(("gzip", "int()", "webdataset"))
    assert rule.remedy
    assert not rule.remedy.endswith(".")  # the command adds it


def alone(data: bytes, folder: Path, *, num_classes: int | None = None) -> list[str]:
    """Return the rules that a shard breaks."""
    (folder / "x.tar").write_bytes(data)
    return rules_in(check(folder / "x.tar", num_classes=num_classes))


class TestNoRuleTooMany:
    """One mistake is one rule: what follows from it is not told as another."""

    @pytest.mark.parametrize(
        ("data", "rules"),
        [
            (TEN[:13412], ["WDS002"]),
            (TEN[: layout(TEN)[11].content], ["WDS002"]),
            (TEN[: layout(TEN)[11].header + 100], ["WDS002", "WDS022"]),
            (changed(TEN, 3), ["WDS003", "WDS021"]),
            (without_marker(TEN), ["WDS005"]),
            (b"", ["WDS008"]),
            (bytes(1024), ["WDS009"]),
            (bytes(512), ["WDS009", "WDS013"]),
            (with_sample(tar_entry("9.jpg", kind=tarfile.LNKTYPE, linkname="x"), ("9.cls", b"1")), ["WDS010"]),
            (with_sample(tar_entry("folder/", kind=tarfile.DIRTYPE)), []),
            (with_picture(b""), ["WDS043"]),
            (with_picture(jpeg_bytes(0), b""), ["WDS032"]),
        ],
    )
    def test_the_rules_are_these(self, tmp_path: Path, data: bytes, rules: list[str]) -> None:
        assert alone(data, tmp_path) == rules


class TestLabels:
    def test_labels_from_1_are_told_as_that(self, tmp_path: Path) -> None:
        (tmp_path / "x.tar").write_bytes(labelled([1, 500, 999, 1000]))
        (finding,) = check(tmp_path / "x.tar", num_classes=1000).findings
        assert (finding.rule, finding.member) == ("WDS031", "000003.cls")
        assert finding.message == "label 1000 is outside 0..999 (labels from 1?)"

    def test_without_a_number_of_classes_only_negative_labels_are_wrong(self, tmp_path: Path) -> None:
        assert alone(labelled([1, 500, 999, 1000]), tmp_path) == []
        assert alone(labelled([0, 1, -1, 2]), tmp_path) == ["WDS031"]

    @pytest.mark.parametrize("labels", [[0, 3], [1, 4]])
    def test_other_labels_out_of_range_are_not_called_from_1(self, tmp_path: Path, labels: list[int]) -> None:
        (tmp_path / "x.tar").write_bytes(labelled(labels))
        assert "labels from 1?" not in check(tmp_path / "x.tar", num_classes=3).findings[0].message


class TestKeys:
    def test_dots_in_the_base_name_are_told_as_the_cause(self, tmp_path: Path) -> None:
        (tmp_path / "x.tar").write_bytes(with_sample(("n_1.v2.jpg", jpeg_bytes(0)), ("n_1.v2.cls", b"1")))
        report = check(tmp_path / "x.tar")
        assert [finding.message for finding in report.findings] == [
            "lacks jpg; fields seen v2.cls, v2.jpg: dots in the base name",
            "lacks cls; fields seen v2.cls, v2.jpg: dots in the base name",
        ]

    def test_dots_in_folder_names_are_no_problem(self, tmp_path: Path) -> None:
        members = [("imagenet.2012/train.v1/1.jpg", jpeg_bytes(0)), ("imagenet.2012/train.v1/1.cls", b"0")]
        assert alone(tar_bytes(members), tmp_path) == []

    @pytest.mark.parametrize("extension", ["pyd", "pkl", "pickle", "pth", "pt", "extra.pkl", "PKL"])
    def test_every_kind_of_pickle_is_flagged(self, tmp_path: Path, extension: str) -> None:
        members = [("9.jpg", jpeg_bytes(0)), ("9.cls", b"1"), (f"9.{extension}", b"x")]
        assert alone(with_sample(*members), tmp_path) == ["WDS026"]

    def test_upper_case_and_jpeg_endings_are_found(self, tmp_path: Path) -> None:
        members = [("0.JPG", jpeg_bytes(0)), ("0.CLS", b"0"), ("1.JPEG", jpeg_bytes(1)), ("1.cls", b"1")]
        assert alone(tar_bytes(members), tmp_path) == []

    def test_an_mpo_named_jpg_is_a_jpeg(self, tmp_path: Path) -> None:
        mpo = encode(PICTURE, "MPO", save_all=True, append_images=[PICTURE])
        assert alone(with_picture(mpo), tmp_path) == ["WDS048"]


class TestNames:
    """Names that lead out of the folder, and pickles, are flagged wherever they stand."""

    @pytest.mark.parametrize(
        "member",
        [
            ("/etc/cron.d/x", b"x"),
            ("../README", b"x"),
            ("a/../../b.jpg", b"x"),
            (".ssh/../../.x", b"x"),
            tar_entry("../l", kind=tarfile.SYMTYPE, linkname="x"),
            tar_entry("../d/", kind=tarfile.DIRTYPE),
            tar_entry("/dev/sda", kind=tarfile.BLKTYPE),
        ],
    )
    def test_a_name_that_leads_out_is_flagged_for_any_kind_of_member(self, tmp_path: Path, member: Content) -> None:
        assert "WDS024" in alone(with_sample(member), tmp_path)

    @pytest.mark.parametrize("name", ["a..b/9.jpg", "...jpg/9.txt", "9..jpg", "./9.txt"])
    def test_dots_that_lead_nowhere_are_not(self, tmp_path: Path, name: str) -> None:
        assert "WDS024" not in alone(with_sample((name, b"x")), tmp_path)

    def test_a_pickle_beside_the_samples_is_flagged(self, tmp_path: Path) -> None:
        assert alone(with_sample(("model.pkl", b"x")), tmp_path) == ["WDS025", "WDS026"]

    def test_a_line_end_in_a_name_is_shown_escaped(self, tmp_path: Path) -> None:
        (tmp_path / "x.tar").write_bytes(with_sample(("a\nb.txt", b"x")))
        found = [finding.message for finding in check(tmp_path / "x.tar").findings if finding.rule == "WDS027"]
        assert found == ["1 names that are not UTF-8 or hold control characters: a\\nb.txt"]

    def test_a_dot_slash_in_front_is_no_folder(self, tmp_path: Path) -> None:
        assert alone(tar_bytes([("./1.jpg", jpeg_bytes(1)), ("./1.cls", b"0")]), tmp_path) == []


class TestSizes:
    """A size that cannot be right is told with its place, and the members behind it are checked."""

    def test_a_negative_size_is_told_and_the_others_are_read(self, tmp_path: Path) -> None:
        data = tar_bytes(TWO)[:2560] + raw_member(b"9.jpg", fields={124: b"\xff" * 12}) + tar_bytes(TWO)[2560:]
        (tmp_path / "x.tar").write_bytes(data)
        report = check(tmp_path / "x.tar")
        assert [(f.rule, f.offset, f.message) for f in report.findings] == [("WDS003", 2560, "negative size -1")]
        assert report.summary.whole == 2

    @pytest.mark.parametrize("size", [2**33, 2**62])
    def test_a_size_beyond_the_end_with_headers_behind_it_is_a_wrong_size_and_no_cut(
        self, tmp_path: Path, size: int
    ) -> None:
        head = raw_member(b"9.jpg", jpeg_bytes(0), fields={124: (1 << 95 | size).to_bytes(12, "big")})
        (tmp_path / "x.tar").write_bytes(tar_bytes(TWO)[:2560] + head + tar_bytes(TWO)[2560:])
        report = check(tmp_path / "x.tar")
        assert [(f.rule, f.member, f.offset) for f in report.findings] == [("WDS003", "9.jpg", 2560)]
        assert f"the size field says {size} bytes, which is beyond the end" in report.findings[0].message
        assert report.summary.whole == 2

    def test_a_pax_size_that_is_absurd(self, tmp_path: Path) -> None:
        pax = raw_member(b"pax", b"22 size=9999999999999\n", fields={156: b"x"}) + raw_member(b"9.jpg", b"")
        (tmp_path / "x.tar").write_bytes(pax + tar_bytes(TWO))
        report = check(tmp_path / "x.tar")
        assert (rules_in(report), report.summary.whole) == (["WDS003"], 2)


class TestMarker:
    """A missing end marker is cleared by a switch (TAR-04), a cut is not."""

    def test_it_is_an_error_unless_it_is_not_needed(self, tmp_path: Path) -> None:
        (tmp_path / "x.tar").write_bytes(without_marker(TEN))
        (report,) = check_shards([str(tmp_path / "x.tar")], CheckOptions(end_marker=False))
        assert (report.findings, report.summary.whole) == ((), 10)

    def test_a_cut_stays_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "x.tar").write_bytes(TEN[:13412])
        (report,) = check_shards([str(tmp_path / "x.tar")], CheckOptions(end_marker=False))
        assert rules_in(report) == ["WDS002"]


class TestIgnored:
    def test_what_is_ignored_is_counted(self, tmp_path: Path) -> None:
        (tmp_path / "x.tar").write_bytes(with_sample(("README", b"x"), ("9.cls", b"1"), ("8.cls", b"1")))
        (report,) = check_shards([str(tmp_path / "x.tar")], CheckOptions(ignore=frozenset({"wds021", "WDS025"})))
        assert (report.findings, report.ignored) == ((), {"WDS021": 2, "WDS025": 1})

    def test_a_rule_that_there_is_not_is_refused_with_the_nearest(self) -> None:
        with pytest.raises(UnknownRuleError, match=r"WDS21: no such rule\. The nearest is WDS021"):
            CheckOptions(ignore=frozenset({"WDS21"}))


def test_the_second_of_two_that_compressed_a_shard_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(gzip.compress(TEN[:5120]) + bytes(512) + gzip.compress(TEN[5120:]) + bytes(100))
    report = check(tmp_path / "x.tar")
    assert (report.summary.whole, rules_in(report)) == (10, ["WDS012", "WDS015"])


@pytest.mark.parametrize("tail", [b"log text", b"\x1f\x8b\x08\x00", b"\x1f\x8b\x08" + bytes(40)])
def test_what_follows_gzip_and_is_none_is_an_error(tmp_path: Path, tail: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(gzip.compress(TEN) + tail)
    report = check(tmp_path / "x.tar")
    assert (report.summary.whole, "WDS002" in rules_in(report)) == (10, True)
