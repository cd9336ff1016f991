from __future__ import annotations

import io
import os
import random
from pathlib import Path

import pytest

from shardkit import Manifest, PatternError, ShardRecord, expand_braces, expand_patterns, is_url, write_manifest


def write_manifest_of(path: Path, shard: str) -> str:
    """Write a manifest that lists one shard, and return the shard's path."""
    record = ShardRecord(shard, 1, 512, "ab")
    manifest = Manifest(name="t", split="train", seed=0, classes=(), class_order="", shuffled=True, shards=(record,))
    write_manifest(manifest, path)
    return str(path.parent / shard)


def touch(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).touch()
    return [str(folder / name) for name in names]


class TestBraces:
    @pytest.mark.parametrize(
        ("pattern", "names"),
        [
            ("a.tar", ["a.tar"]),
            ("{000000..000003}", ["000000", "000001", "000002", "000003"]),
            ("{0..11}", [str(n) for n in range(12)]),
            ("{08..11}", ["08", "09", "10", "11"]),
            ("{8..011}", ["008", "009", "010", "011"]),
            ("{3..0}", ["3", "2", "1", "0"]),
            ("{0..10..5}", ["0", "5", "10"]),
            ("{10..0..5}", ["10", "5", "0"]),
            ("{-1..1}", ["-1", "0", "1"]),
            ("{a..c}", ["a", "b", "c"]),
            ("{a,b}-{0..1}", ["a-0", "a-1", "b-0", "b-1"]),
            ("{train,val}.tar", ["train.tar", "val.tar"]),
            ("x{,.bak}.tar", ["x.tar", "x.bak.tar"]),
            ("<000..002>.tar", ["000.tar", "001.tar", "002.tar"]),
            ("<0..1>-{0..1}", ["0-0", "0-1", "1-0", "1-1"]),
            ("{5..5}", ["5"]),
        ],
    )
    def test_a_pattern_stands_for_these_names(self, pattern: str, names: list[str]) -> None:
        assert expand_braces(pattern) == names

    @pytest.mark.parametrize("pattern", ["imagenet-train-{000000..001281}.tar", "imagenet-train-<000000..001281>.tar"])
    def test_imagenet_has_1282_shards(self, pattern: str) -> None:
        names = expand_braces(pattern)
        assert (len(names), names[0], names[-1]) == (
            1282,
            "imagenet-train-000000.tar",
            "imagenet-train-001281.tar",
        )

    @pytest.mark.parametrize(
        ("pattern", "place"),
        [
            ("x-{000000..000003.tar", "the '{' at character 3 has no partner"),
            ("{a,b}-{0..1", "the '{' at character 7 has no partner"),
            ("x-0..3}.tar", "'}' at character 7 has no partner"),
            ("{0..1}x}", "'}' at character 8 has no partner"),
            ("x-<0..3.tar", "'<' at character 3 has no partner"),
            ("x-0..3>.tar", "'>' at character 7 has no partner"),
            ("x-<a>.tar", "'<' at character 3 has no partner"),
            ("x-(000..003).tar", "'(000..003)' is no range here; write {000..003}"),
            ("{0..1}-[0..3].tar", "'[0..3]' is no range here; write {0..3}"),
            ("x-{000000..}.tar", "'{000000..}' is neither a range"),
            ("x-{}.tar", "'{}' is neither a range"),
            ("x-{a}.tar", "'{a}' is neither a range"),
            ("x-{0..a}.tar", "'{0..a}' is neither a range"),
            ("x-{0...3}.tar", "'{0...3}' is neither a range"),
            ("x-{٠..٣}.tar", "is neither a range"),
            ("{a,{b,c}}", "the '{' at character 1 has another one before its partner"),
            ("{0..3..0}", "has a step of 0"),
            ("{0..9999999}", "stands for more than 2000000 shards"),
            ("{0..99999}{0..99999}", "stands for more than 2000000 shards"),
            ("{0..9" + "9" * 5000 + "}", "is neither a range"),
        ],
    )
    def test_a_slip_is_pointed_at(self, pattern: str, place: str) -> None:
        with pytest.raises(PatternError) as caught:
            expand_braces(pattern)
        assert place in str(caught.value)

    def test_what_braceexpand_understands_we_read_alike(self) -> None:
        braceexpand = pytest.importorskip("braceexpand").braceexpand
        pieces = [
            "{0..3}",
            "{08..11}",
            "{3..0}",
            "{-2..01}",
            "{0..10..3}",
            "{a,b}",
            "{,x}",
            "{a..c}",
            "{C..A}",
            "-",
            "x",
        ]
        generator = random.Random(0)
        for _ in range(500):
            pattern = "".join(generator.choices(pieces, k=generator.randint(1, 4)))
            assert expand_braces(pattern) == list(braceexpand(pattern)), pattern


class TestUrls:
    @pytest.mark.parametrize(
        ("location", "is_one"),
        [("http://h/x", True), ("HTTPS://h/x", True), ("s3://b/x", True), ("c:/x", False), ("pipe:cat x", False)],
    )
    def test_a_url_names_its_scheme(self, location: str, is_one: bool) -> None:
        assert is_url(location) is is_one

    def test_braces_of_a_url_are_expanded(self) -> None:
        assert expand_patterns(["https://h/d/x-{0..1}.tar?sig=a*b"]) == [
            "https://h/d/x-0.tar?sig=a*b",
            "https://h/d/x-1.tar?sig=a*b",
        ]

    def test_a_star_in_a_url_is_refused_with_the_way_out(self) -> None:
        with pytest.raises(PatternError, match="cannot be listed over http; use braces"):
            expand_patterns(["http://127.0.0.1:8099/ok/shard-*.tar"])

    def test_a_file_url_is_the_path_it_names(self, tmp_path: Path) -> None:
        shards = touch(tmp_path, "a 0.tar", "a 1.tar")
        here = tmp_path.as_uri()
        for pattern in (f"{here}/a%200.tar::{here}/a%201.tar", f"{here}/a%20{{0..1}}.tar", f"{here}/*.tar", here):
            assert expand_patterns([pattern]) == shards
        with pytest.raises(PatternError, match=r"file://\*\*\*: no URL"):
            expand_patterns(["file://[x/a.tar"])

    def test_a_file_url_is_of_this_machine_and_has_no_query(self, tmp_path: Path) -> None:
        shards = touch(tmp_path, "a#0.tar", "a#1.tar", "a?0.tar")
        assert expand_patterns([f"file://localhost{tmp_path}/a?0.tar"]) == shards[2:]
        assert expand_patterns([f"file://{tmp_path}/a#?.tar"]) == shards[:2]
        with pytest.raises(PatternError, match=r"^file://data/a-.*: no path of this machine: .* host\. Three slashes"):
            expand_patterns(["file://data/a-{0..1}.tar"])

    @pytest.mark.parametrize("pattern", ["http://u:SECRET@[/a.tar", "s3://[x/a-{0..1}.tar", "@list"])
    def test_what_only_looks_like_a_url_is_refused_without_its_secrets(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "list").write_text("http://u:SECRET@[/a.tar\n")
        with pytest.raises(PatternError, match=r"://\*\*\*: no URL \(Invalid IPv6 URL\)") as caught:
            expand_patterns([pattern])
        assert "SECRET" not in str(caught.value)

    def test_two_patterns_may_be_joined_by_colons(self) -> None:
        assert expand_patterns(["http://h/a.tar::b-{0..1}.tar"]) == ["http://h/a.tar", "b-0.tar", "b-1.tar"]

    def test_an_ipv6_host_is_not_torn_apart(self) -> None:
        assert expand_patterns(["http://[::1]:8099/a.tar::http://[fe80::2]/b.tar"]) == [
            "http://[::1]:8099/a.tar",
            "http://[fe80::2]/b.tar",
        ]


class TestFiles:
    def test_a_glob_gives_the_shards_by_name(self, tmp_path: Path) -> None:
        shards = touch(tmp_path, *(f"s-{n:02d}.tar" for n in (0, 1, 2, 10)))
        assert expand_patterns([str(tmp_path / "s-*.tar")]) == shards

    def test_a_glob_passes_over_indexes_manifests_and_hidden_files(self, tmp_path: Path) -> None:
        touch(tmp_path, "s-0.tar.index.json", "s.manifest.json", ".unfinished-s-1.tar-00", "._s-0.tar")
        assert expand_patterns([str(tmp_path / "s*")] if touch(tmp_path, "s-0.tar") else []) == [
            str(tmp_path / "s-0.tar")
        ]

    def test_a_glob_takes_files_and_where_it_matches_none_the_shards_of_folders(self, tmp_path: Path) -> None:
        for folder in ("a", "b", "quarantine"):
            (tmp_path / folder).mkdir()
        inner = touch(tmp_path / "a", "a-0.tar")
        touch(tmp_path / "quarantine", "a-0.quarantine.tar")
        assert expand_patterns([str(tmp_path / "*")]) == inner
        assert expand_patterns([str(tmp_path / "*")] if (shard := touch(tmp_path, "s-0.tar")) else []) == shard
        with pytest.raises(PatternError, match=r"/b\*: no file matches, and no folder with shards"):
            expand_patterns([str(tmp_path / "b*")])

    def test_a_glob_that_matches_nothing_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(PatternError, match=r"none-\*\.tar: no file matches"):
            expand_patterns([str(tmp_path / "none-*.tar")])

    def test_braces_and_globs_work_together(self, tmp_path: Path) -> None:
        shards = touch(tmp_path, "train-0.tar", "train-1.tar", "val-0.tar")
        assert expand_patterns([str(tmp_path / "{val,train}-*.tar")]) == [shards[2], *shards[:2]]

    def test_a_folder_stands_for_its_shards(self, tmp_path: Path) -> None:
        shards = touch(tmp_path, "a.tar", "b.tar.gz", "c.tgz")
        touch(tmp_path, "a.tar.index.json", "notes.txt", "._a.tar", ".unfinished-d.tar")
        assert expand_patterns([str(tmp_path)]) == shards

    def test_a_folder_without_shards_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(PatternError, match="no shards"):
            expand_patterns([str(tmp_path)])

    def test_a_folder_whose_subfolders_have_the_shards_names_them(self, tmp_path: Path) -> None:
        for folder in ("train", "val", "other"):
            (tmp_path / folder).mkdir()
        touch(tmp_path / "train", "a.tar")
        touch(tmp_path / "val", "b.tgz")
        named = f"no shards (*.tar) in this folder. Name one of its folders that has some: {tmp_path}/train, "
        with pytest.raises(PatternError) as caught:
            expand_patterns([str(tmp_path)])
        assert str(caught.value) == f"{tmp_path}: {named}{tmp_path}/val"

    @pytest.mark.parametrize("pattern", ["~/s-0.tar", "~/s-*.tar", "~/s.manifest.json", "a.tar::~/s-{0..1}.tar"])
    def test_a_tilde_that_no_shell_expanded_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(PatternError, match=r"^~/.*'~' is no folder here. Write the path in full"):
            expand_patterns([pattern])
        (tmp_path / "~").mkdir()
        touch(tmp_path / "~", "s-0.tar", "s-1.tar")
        write_manifest_of(tmp_path / "~" / "s.manifest.json", "s-0.tar")
        assert "~/s-0.tar" in expand_patterns([pattern])

    def test_a_missing_file_keeps_its_place(self, tmp_path: Path) -> None:
        shards = touch(tmp_path, "s-0.tar", "s-1.tar", "s-3.tar")
        assert expand_patterns([str(tmp_path / "s-{0..3}.tar")]) == [*shards[:2], str(tmp_path / "s-2.tar"), shards[2]]

    @pytest.mark.parametrize("name", ["a{1}.tar", "a<1>.tar", "a[1].tar", "a::b.tar", "a*.tar", "a(1..2).tar"])
    def test_a_file_that_has_our_signs_in_its_name_is_itself(self, tmp_path: Path, name: str) -> None:
        touch(tmp_path, name, "ab.tar", "a1.tar")
        assert expand_patterns([str(tmp_path / name)]) == [str(tmp_path / name)]

    def test_a_manifest_stands_for_its_shards_in_its_order(self, tmp_path: Path) -> None:
        records = tuple(ShardRecord(f"t-{n}.tar", 1, 512, "ab") for n in (1, 0))
        manifest = Manifest(
            name="t", split="train", seed=0, classes=(), class_order="", shuffled=True, shards=records, options={}
        )
        write_manifest(manifest, tmp_path / "t.manifest.json")
        assert expand_patterns([str(tmp_path / "t.manifest.json")]) == [
            str(tmp_path / "t-1.tar"),
            str(tmp_path / "t-0.tar"),
        ]

    def test_a_glob_of_manifests_stands_for_the_shards_of_each(self, tmp_path: Path) -> None:
        shards = [write_manifest_of(tmp_path / f"{name}.manifest.json", f"{name}-0.tar") for name in ("train", "val")]
        assert expand_patterns([str(tmp_path / "*.manifest.json")]) == shards
        assert expand_patterns([str(tmp_path / "{val,tr*}.manifest.json")]) == shards[::-1]
        with pytest.raises(PatternError, match=r"none\*\.manifest\.json: no file matches"):
            expand_patterns([str(tmp_path / "none*.manifest.json")])

    def test_a_manifest_among_its_own_shards_names_none_of_them_again(self, tmp_path: Path) -> None:
        manifest = tmp_path / "t.manifest.json"
        shard = write_manifest_of(manifest, "t-0.tar")
        assert expand_patterns([f"{tmp_path}/./t-0.tar", str(manifest)]) == [f"{tmp_path}/./t-0.tar"]
        assert expand_patterns([str(manifest), shard]) == [shard]
        assert expand_patterns([str(manifest), f"{tmp_path}/u.tar"]) == [shard, f"{tmp_path}/u.tar"]
        assert expand_patterns([str(manifest), str(manifest)]) == [shard, shard]

    def test_a_missing_manifest_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(PatternError, match="the manifest cannot be read: No such file"):
            expand_patterns([str(tmp_path / "t.manifest.json")])

    def test_several_patterns_keep_their_order_and_repeats(self, tmp_path: Path) -> None:
        shards = touch(tmp_path, "a.tar", "b.tar")
        assert expand_patterns([shards[1], shards[0], shards[1]]) == [shards[1], shards[0], shards[1]]

    @pytest.mark.parametrize("pattern", ["", "  "])
    def test_an_empty_pattern_is_refused(self, pattern: str) -> None:
        with pytest.raises(PatternError, match="empty shard pattern"):
            expand_patterns([pattern])

    def test_no_pattern_is_refused(self) -> None:
        with pytest.raises(PatternError, match="no shard pattern"):
            expand_patterns([])

    @pytest.mark.parametrize(
        "pattern", ["$(touch CANARY).tar", "x.tar; touch CANARY", "--output=CANARY", "pipe:touch CANARY"]
    )
    def test_what_looks_like_a_command_is_a_name_and_nothing_is_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert expand_patterns([pattern]) == [pattern]
        assert list(tmp_path.iterdir()) == []


class TestLists:
    def test_a_list_gives_its_lines_with_patterns_expanded(self, tmp_path: Path) -> None:
        (tmp_path / "list.txt").write_text("# our shards\na-{0..1}.tar\n\n  b.tar  \r\n", encoding="utf-8")
        assert expand_patterns([f"@{tmp_path / 'list.txt'}", "c.tar"]) == ["a-0.tar", "a-1.tar", "b.tar", "c.tar"]

    def test_relative_paths_start_at_the_working_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "lists").mkdir()
        touch(tmp_path, "a-0.tar", "a-1.tar")
        (tmp_path / "lists" / "l.txt").write_text("a-*.tar\n", encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        assert expand_patterns(["@lists/l.txt"]) == ["a-0.tar", "a-1.tar"]

    def test_a_byte_order_mark_is_no_part_of_the_first_name(self, tmp_path: Path) -> None:
        (tmp_path / "l.txt").write_text("a.tar\n", encoding="utf-8-sig")
        assert expand_patterns([f"@{tmp_path / 'l.txt'}"]) == ["a.tar"]

    def test_a_name_that_is_not_utf8_survives(self, tmp_path: Path) -> None:
        path = os.fsdecode(bytes(tmp_path) + b"/caf\xe9.tar")
        Path(path).touch()
        (tmp_path / "l.txt").write_bytes(os.fsencode(path))
        assert expand_patterns([f"@{tmp_path / 'l.txt'}"]) == [path]

    def test_the_line_of_a_slip_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "l.txt").write_text("a.tar\nb-{0..1.tar\n", encoding="utf-8")
        with pytest.raises(PatternError, match=r"l\.txt, line 2: b-\{0\.\.1\.tar: the '\{' at character 3"):
            expand_patterns([f"@{tmp_path / 'l.txt'}"])

    def test_a_list_does_not_open_another(self, tmp_path: Path) -> None:
        (tmp_path / "l.txt").write_text("@l.txt\n-\n", encoding="utf-8")
        assert expand_patterns([f"@{tmp_path / 'l.txt'}"]) == ["@l.txt", "./-"]

    def test_standard_input_is_a_list(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO("a.tar\nb-{0..1}.tar\n"))
        assert expand_patterns(["-"]) == ["a.tar", "b-0.tar", "b-1.tar"]

    def test_a_list_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(PatternError, match="the list cannot be read: No such file"):
            expand_patterns([f"@{tmp_path / 'none.txt'}"])

    def test_a_shard_taken_for_a_list_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "x.tar").write_bytes(b"000000.jpg".ljust(600, b"\0") + b"\xff\xd8\xff")
        with pytest.raises(PatternError, match="no path holds a NUL"):
            expand_patterns([f"@{tmp_path / 'x.tar'}"])

    def test_an_empty_list_names_no_shard(self, tmp_path: Path) -> None:
        (tmp_path / "l.txt").write_text("# nothing\n", encoding="utf-8")
        with pytest.raises(PatternError, match="no shard pattern"):
            expand_patterns([f"@{tmp_path / 'l.txt'}"])


BESIDE = ("t-0.tar.index.json", "t-0.tar.skipped.json", "t-0.idx", "t.plan.json", "t.wids.json", "sizes.json")


class TestBesideShards:
    @pytest.mark.parametrize("made_by", ["us", "the shell"])
    def test_what_we_write_beside_shards_is_passed_over_in_a_glob(self, tmp_path: Path, made_by: str) -> None:
        shard, *beside = touch(tmp_path, "t-0.tar", *BESIDE)
        patterns = [str(tmp_path / "*")] if made_by == "us" else sorted([shard, *beside])
        assert expand_patterns(patterns) == [shard]

    @pytest.mark.parametrize("name", [*BESIDE, "*.index.json", "http://h/d/t.tar.index.json?sig=SECRET"])
    def test_alone_it_is_an_error_that_says_what_it_is(self, tmp_path: Path, name: str) -> None:
        touch(tmp_path, *BESIDE)
        pattern = name if is_url(name) else str(tmp_path / name)
        with pytest.raises(PatternError, match=r"no shard: it lies beside shards. Name the shards") as caught:
            expand_patterns([pattern])
        assert "SECRET" not in str(caught.value)


class TestCommands:
    """SEC-01: a command comes from an argument alone; no list, no pattern and no file's name turns into one."""

    def test_a_command_is_handed_on_whole_but_for_its_numbered_braces(self) -> None:
        command = "pipe:curl -s http://h/a-{08..10}.tar | awk '{print}' < {a,b} :: ${X}"
        names = [command.replace("{08..10}", number) for number in ("08", "09", "10")]
        assert expand_patterns([command]) == names

    @pytest.mark.parametrize("line", ["pipe:touch CANARY", "{a.tar,pipe:touch CANARY}", "a.tar::pipe:touch CANARY"])
    def test_a_list_names_no_command(self, tmp_path: Path, line: str) -> None:
        (tmp_path / "l.txt").write_text(line + "\n", encoding="utf-8")
        with pytest.raises(PatternError, match=r"l\.txt, line 1: pipe:touch CANARY: only a whole argument"):
            expand_patterns([f"@{tmp_path / 'l.txt'}"])

    @pytest.mark.parametrize("pattern", ["{a.tar,pipe:touch CANARY}", "a.tar::pipe:touch CANARY"])
    def test_a_part_of_a_pattern_is_no_command(self, pattern: str) -> None:
        with pytest.raises(PatternError, match="pipe:touch CANARY: only a whole argument can be a command"):
            expand_patterns([pattern])

    @pytest.mark.parametrize("pattern", ["*.tar", "pipe*", "pipe:touch CANARY;.tar"])
    def test_a_file_whose_name_looks_like_a_command_stays_a_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
    ) -> None:
        touch(tmp_path, "pipe:touch CANARY;.tar")
        monkeypatch.chdir(tmp_path)
        assert expand_patterns([pattern]) == ["./pipe:touch CANARY;.tar"]


def test_the_scheme_that_cannot_be_listed_is_named_without_secrets() -> None:
    with pytest.raises(PatternError, match=r"s3://\*\*\*@b/a-\*\.tar: shards cannot be listed over s3; use braces"):
        expand_patterns(["s3://k:SECRET@b/a-*.tar"])
