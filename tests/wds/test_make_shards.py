from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import signal
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers.cli import Ended, invoke, processes_of_session, run_wds, started_wds, wait_until
from tests.helpers.ilsvrc import train_archive
from tests.helpers.shards import jpeg_bytes

# Pictures as small as the generator makes them, in this process.
SMALL = ("--size", "32x32", "--sizes", "fixed", "--jobs", 1)
FOUR = [f"imagenet-train-{number:06d}.tar" for number in range(4)]


def make(out: Path, *args: object) -> Ended:
    return invoke("make-shards", "--out", out, *args)


def make_folder(folder: Path, counts: dict[str, int]) -> Path:
    """An image folder with so many pictures in each class."""
    for position, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            (folder / name / f"picture {number}.jpg").write_bytes(jpeg_bytes(1000 * position + number))
    return folder


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def members(shard: Path) -> list[str]:
    with tarfile.open(shard) as tar:
        return tar.getnames()


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """What `wds make-shards --count 4` makes, with small pictures."""
    folder = tmp_path_factory.mktemp("four")
    return folder, make(folder, "--count", 4, *SMALL)


def test_count_4_writes_four_shards_their_indexes_and_one_manifest(four: tuple[Path, Ended]) -> None:
    folder, ended = four
    assert ended.code == 0
    expected = [*FOUR, *(f"{name}.index.json" for name in FOUR), "imagenet-train.manifest.json"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(expected)


def test_a_shard_has_100_samples_of_a_picture_and_its_label(four: tuple[Path, Ended]) -> None:
    for number, name in enumerate(FOUR):
        keys = [f"{key:08d}" for key in range(100 * number, 100 * number + 100)]
        assert members(four[0] / name) == [f"{key}.{extension}" for key in keys for extension in ("jpg", "cls")]


def test_the_result_is_told_on_stdout_and_the_next_step_on_stderr(four: tuple[Path, Ended]) -> None:
    folder, ended = four
    digest = json.loads((folder / "imagenet-train.manifest.json").read_text())["digest"]
    assert ended.stdout.startswith(f"4 shards, {folder}/{FOUR[0]} to {FOUR[3]}\n400 samples, 1000 classes by number, ")
    assert ended.stdout.endswith(f"digest {digest}\n")
    assert ended.stderr == f"Look at one: wds inspect {folder}/{FOUR[0]}\n"


def test_two_processes_write_the_same_bytes_as_one(four: tuple[Path, Ended], tmp_path: Path) -> None:
    assert make(tmp_path, "--count", 4, *SMALL, "--jobs", 2).code == 0
    assert digests(tmp_path) == digests(four[0])


def test_another_seed_makes_other_pictures(four: tuple[Path, Ended], tmp_path: Path) -> None:
    make(tmp_path, "--count", 1, "--seed", 1, *SMALL)
    assert (tmp_path / FOUR[0]).read_bytes() != (four[0] / FOUR[0]).read_bytes()


@pytest.mark.slow
def test_the_default_shards_look_like_imagenet(tmp_path: Path) -> None:
    ended = make(tmp_path, "--count", 4, "--json")
    num_bytes = json.loads(ended.stdout)["bytes"]
    assert 80_000 < num_bytes / 400 < 150_000
    report = json.loads(invoke("inspect", tmp_path, "--json").stdout)["shards"][0]
    assert 450 < report["widths"]["mean"] < 550
    assert report["heights"]["smallest"] < report["heights"]["largest"]
    assert report["findings"] == []


def test_json_names_what_was_made(tmp_path: Path) -> None:
    ended = make(tmp_path, "--count", 2, "--shard-size", 3, "--prefix", "mini", "--json", *SMALL)
    document = json.loads(ended.stdout)
    assert document["schema_version"] == 1
    assert document["shards"] == [f"{tmp_path}/mini-000000.tar", f"{tmp_path}/mini-000001.tar"]
    assert document["manifest"] == f"{tmp_path}/mini.manifest.json"
    assert (document["samples"], document["classes"], document["skipped"]) == (6, 1000, [])
    assert document["bytes"] == sum(Path(shard).stat().st_size for shard in document["shards"])
    assert ended.stderr == ""


def test_a_dry_run_tells_the_layout_and_writes_nothing(tmp_path: Path) -> None:
    ended = make(tmp_path / "new", "--count", 2, "--dry-run", *SMALL)
    assert ended.code == 0
    assert ended.stdout.splitlines() == [
        f"{tmp_path}/new/{FOUR[0]}  100 samples",
        f"{tmp_path}/new/{FOUR[1]}  100 samples",
        f"{tmp_path}/new/imagenet-train.manifest.json  200 samples in 2 shards, 1000 classes",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_says_what_is_in_the_way(four: tuple[Path, Ended]) -> None:
    before = digests(four[0])
    document = json.loads(make(four[0], "--count", 1, "--dry-run", "--json").stdout)
    assert document["shards"] == [{"name": FOUR[0], "samples": 100, "bytes": None}]
    assert len(document["existing"]) == 9
    assert digests(four[0]) == before


def test_existing_shards_are_refused_by_name(four: tuple[Path, Ended]) -> None:
    before = digests(four[0])
    ended = make(four[0], "--count", 2, *SMALL)
    assert ended.code == 2
    assert all(name in ended.stderr for name in before)
    assert "--on-exists overwrite" in ended.stderr
    assert digests(four[0]) == before


def test_overwriting_leaves_none_of_the_old_shards(tmp_path: Path) -> None:
    few = ("--shard-size", 2, *SMALL)
    make(tmp_path, "--count", 3, *few)
    (tmp_path / "other-000000.tar").write_bytes(b"not ours")
    assert make(tmp_path, "--count", 1, "--seed", 5, "--on-exists", "overwrite", *few).code == 0
    expected = [FOUR[0], f"{FOUR[0]}.index.json", "imagenet-train.manifest.json", "other-000000.tar"]
    assert sorted(path.name for path in tmp_path.iterdir()) == expected


@pytest.mark.parametrize("args", [("--count", 0), ("--count", -1), ("--size", "500"), ("--seed", -1), ("--quality", 0)])
def test_numbers_out_of_range_are_wrong_use(tmp_path: Path, args: tuple[object, ...]) -> None:
    assert make(tmp_path / "new", *args).code == 2
    assert not (tmp_path / "new").exists()


def test_a_folder_is_packed_with_the_bytes_of_its_pictures(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "pictures", {"cat": 5, "dog": 4})
    ended = make(tmp_path / "out", "--from-folder", source, "--count", 2, "--jobs", 1)
    assert ended.code == 0
    packed = set()
    for shard in sorted((tmp_path / "out").glob("*.tar")):
        with tarfile.open(shard) as tar:
            packed |= {tar.extractfile(member).read() for member in tar if member.name.endswith(".jpg")}  # type: ignore[union-attr]  # files only
    assert packed == {path.read_bytes() for path in source.rglob("*.jpg")}


def test_train_and_val_share_the_folder_without_overlap(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "pictures", {"cat": 10, "dog": 10})
    common = ("--from-folder", source, "--val-share", 0.3, "--jobs", 1)
    for split in ("train", "val"):
        assert make(tmp_path / "out", *common, "--split", split).code == 0
    names = {
        split: {name.partition("_")[2] for name in members(tmp_path / "out" / f"imagenet-{split}-000000.tar")}
        for split in ("train", "val")
    }
    manifests = [json.loads((tmp_path / "out" / f"imagenet-{s}.manifest.json").read_text()) for s in ("train", "val")]
    assert [manifest["num_samples"] for manifest in manifests] == [14, 6]
    assert [manifest["split"] for manifest in manifests] == ["train", "val"]
    assert all(manifest["classes"] == ["cat", "dog"] for manifest in manifests)
    assert len(names["train"]) + len(names["val"]) >= 20  # two classes use the same file names


def test_without_shuffling_a_shard_holds_one_class_and_inspect_says_so(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "pictures", {"cat": 4, "dog": 4})
    make(tmp_path / "out", "--from-folder", source, "--no-shuffle", "--count", 2, "--jobs", 1)
    ended = invoke("inspect", tmp_path / "out", "--jobs", 1)
    assert ended.code == 0
    assert "1 class a shard" in ended.stdout


def test_a_source_that_is_no_picture_stops_the_packing_and_is_named(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "pictures", {"cat": 3, "dog": 3})
    (source / "cat" / "zero.jpg").write_bytes(b"")
    (source / "dog" / "text.jpg").write_bytes(b"hello")
    (source / "dog" / "notes.txt").write_bytes(b"hello")
    ended = make(tmp_path / "out", "--from-folder", source, "--jobs", 1)
    assert ended.code == 1
    assert "cat/zero.jpg: " in ended.stderr
    assert "dog/text.jpg: " in ended.stderr
    assert "notes.txt" not in ended.stderr
    assert list((tmp_path / "out").glob("*.tar")) == []


def test_bad_sources_are_skipped_and_counted_on_request(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "pictures", {"cat": 3, "dog": 3})
    (source / "cat" / "zero.jpg").write_bytes(b"")
    ended = make(tmp_path / "out", "--from-folder", source, "--on-error", "skip", "--jobs", 1)
    assert ended.code == 0
    assert ended.stderr.startswith("warning: skipped 1 file: cat/zero.jpg: ")
    assert len(members(tmp_path / "out" / FOUR[0])) == 12
    manifest = json.loads((tmp_path / "out" / "imagenet-train.manifest.json").read_text())
    assert [text.partition(":")[0] for text in manifest["skipped"]] == ["cat/zero.jpg"]


def test_fewer_pictures_than_shards_are_refused(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "pictures", {"cat": 2, "dog": 1})
    ended = make(tmp_path / "out", "--from-folder", source, "--count", 4)
    assert (ended.code, ended.stderr.count("\n")) == (2, 1)
    assert "3 pictures cannot fill 4 shards" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_class_names_that_are_numbers_sorted_as_text_are_pointed_out(tmp_path: Path) -> None:
    """CLS-03; that train compares the lists is in tests/resnettrain."""
    source = make_folder(tmp_path / "pictures", {str(number): 1 for number in range(11)})
    ended = make(tmp_path / "out", "--from-folder", source, "--jobs", 1)
    assert ended.code == 0
    assert ended.stderr.startswith("warning: class names are numbers, sorted as text: 0, 1, 10, 2, ..\n")


@pytest.mark.parametrize("how", [(), ("--dry-run",), ("--plan-only",), ("--on-exists", "resume")])
def test_shards_inside_the_folder_that_is_packed_are_wrong_use(tmp_path: Path, how: tuple[str, ...]) -> None:
    source = make_folder(tmp_path / "pictures", {"a": 2, "b": 2})
    ended = make(source / "shards", "--from-folder", source, "--jobs", 1, *how)
    assert (ended.code, ended.stderr.count("\n"), ended.stdout) == (2, 1, "")
    assert f"inside of {source}" in ended.stderr
    assert not (source / "shards").exists()


@pytest.mark.parametrize("missing", ["nowhere", "empty"])
def test_a_folder_without_classes_is_wrong_use(tmp_path: Path, missing: str) -> None:
    (tmp_path / "empty").mkdir()
    ended = make(tmp_path / "out", "--from-folder", tmp_path / missing)
    assert (ended.code, ended.stderr.count("\n")) == (2, 1)
    assert "one subfolder a class" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_after_a_signal_the_packing_can_be_resumed_by_the_command_it_names(
    tmp_path: Path, number: int, code: int
) -> None:
    args = ("make-shards", "--count", 300, "--size", "200x150", "--shard-size", 20, "--jobs", 2, "--out", "out")
    with started_wds(*args, cwd=tmp_path) as process:
        assert wait_until((tmp_path / "out" / FOUR[0]).exists)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == code
        assert wait_until(lambda: not processes_of_session(process.pid))
    lines = stderr.splitlines()
    assert re.fullmatch(r"Error: stopped by \S+", lines[-1])
    words = " ".join(str(arg) for arg in args)
    assert lines[-2] == f"Finished shards stay in out. To go on: wds {words} --on-exists resume"
    assert "Traceback" not in stderr
    assert not list((tmp_path / "out").glob(".unfinished-*"))
    finished = sorted((tmp_path / "out").glob("*.tar"))
    assert 0 < len(finished) < 300
    assert all(path.with_name(path.name + ".index.json").exists() for path in finished)
    assert not (tmp_path / "out" / "imagenet-train.manifest.json").exists()


@pytest.mark.slow
def test_an_unfinished_packing_is_resumed_when_told_and_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    args = ("make-shards", "--count", 3, "--shard-size", 3, "--out", "out", *SMALL)
    undisturbed = make(tmp_path / "undisturbed", *args[1:5], *SMALL)
    assert undisturbed.code == 0
    assert run_wds(*args, "--plan-only", cwd=tmp_path).code == 0
    shutil.copy(tmp_path / "undisturbed" / FOUR[1], tmp_path / "out")
    shutil.copy(tmp_path / "undisturbed" / f"{FOUR[1]}.index.json", tmp_path / "out")
    refused = run_wds(*args, cwd=tmp_path)
    assert (refused.code, refused.stderr.count("\n")) == (2, 1)
    assert "an unfinished packing of 'imagenet-train' lies there, 1 of 3 shards" in refused.stderr
    words = " ".join(str(arg) for arg in args)
    assert refused.stderr.endswith(f"To go on: wds {words} --on-exists resume\n")
    other = run_wds(*args, "--seed", 1, "--on-exists", "resume", cwd=tmp_path)
    assert other.code == 2
    assert "other than planned: the source" in other.stderr
    assert run_wds(*args, "--on-exists", "resume", cwd=tmp_path).code == 0
    assert digests(tmp_path / "out") == digests(tmp_path / "undisturbed")
    assert run_wds(*args, "--on-exists", "resume", cwd=tmp_path).code == 0


def test_shards_by_bytes_are_laid_out_exactly_before_packing(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "pictures", {"cat": 8, "dog": 8})
    args = ("--from-folder", source, "--shard-size", "10kB", "--jobs", 1)
    layout = json.loads(make(tmp_path / "out", *args, "--dry-run", "--json").stdout)["shards"]
    assert len(layout) > 2
    assert not (tmp_path / "out").exists()
    assert make(tmp_path / "out", *args).code == 0
    packed = [{"name": path.name, "bytes": path.stat().st_size} for path in sorted((tmp_path / "out").glob("*.tar"))]
    assert packed == [{"name": shard["name"], "bytes": shard["bytes"]} for shard in layout]
    assert all(shard["bytes"] <= 10_000 for shard in layout)


def test_fake_pictures_have_no_size_before_they_are_made(tmp_path: Path) -> None:
    ended = make(tmp_path / "out", "--shard-size", "1GiB", *SMALL)
    assert (ended.code, ended.stderr.count("\n")) == (2, 1)
    assert "as a number of samples" in ended.stderr


class TestRecoding:
    def test_pictures_are_scaled_and_reencoded_and_the_manifest_says_so(self, tmp_path: Path) -> None:
        source = make_folder(tmp_path / "pictures", {"cat": 2, "dog": 2})
        args = ("--from-folder", source, "--max-size", 10, "--quality", 80, "--crop-ready", "--jobs", 1)
        assert make(tmp_path / "out", *args).code == 0
        with tarfile.open(tmp_path / "out" / FOUR[0]) as tar:
            pictures = [tar.extractfile(name).read() for name in tar.getnames() if name.endswith("jpg")]  # type: ignore[union-attr]  # files only
        assert {Image.open(io.BytesIO(data)).size for data in pictures} == {(10, 8)}
        assert all(b"\xff\xdd" in data for data in pictures)
        manifest = json.loads((tmp_path / "out" / "imagenet-train.manifest.json").read_text())
        assert manifest["options"]["recode"] == {"max_size_px": 10, "quality": 80, "crop_ready": True}


def test_shards_are_packed_anew_in_shuffled_order(tmp_path: Path) -> None:
    make(tmp_path / "in", "--count", 3, "--shard-size", 4, "--classes", 2, *SMALL)
    ended = make(tmp_path / "out", "--shard-size", 5, "--from-shards", *sorted((tmp_path / "in").glob("*.tar")))
    assert ended.code == 0
    before = [name for shard in sorted((tmp_path / "in").glob("*.tar")) for name in members(shard)]
    after = [name for shard in sorted((tmp_path / "out").glob("*.tar")) for name in members(shard)]
    assert [len(members(shard)) for shard in sorted((tmp_path / "out").glob("*.tar"))] == [10, 10, 4]
    assert sorted(after) == sorted(before)
    assert after != before


def test_the_original_train_archive_is_packed_as_it_is(tmp_path: Path) -> None:
    archive = train_archive(tmp_path / "ILSVRC2012_img_train.tar", {"n02": 2, "n01": 3})
    ended = make(tmp_path / "out", "--from-ilsvrc", archive, "--jobs", 1)
    assert ended.code == 0
    assert "5 samples, 2 classes by WordNet id, as text" in ended.stdout


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--from-folder", "pictures", "--labels", "shuffled"), "--labels"),
        (("--from-folder", "pictures", "--size", "64x64"), "--size"),
        (("--val-share", 0.1), "--val-share"),
        (("--no-shuffle",), "--shuffle"),
        (("--max-size", 100), "--max-size"),
        (("--from-folder", "pictures", "--label-column", "x"), "--label-column"),
        (("--from-folder", "pictures", "--from-table", "t.csv"), "one source at a time"),
        (("--from-ilsvrc", "x.tar", "--split", "val"), "--split"),
    ],
)
def test_an_option_of_the_other_kind_of_source_is_refused(
    args: tuple[object, ...], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("t.csv", "x.tar"):
        (tmp_path / name).touch()
    ended = invoke("make-shards", *args)
    assert ended.code == 2
    assert named in ended.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv", "x.tar"}


def test_files_of_a_folder_that_are_no_pictures_are_named(tmp_path: Path) -> None:
    (tmp_path / "in" / "cat").mkdir(parents=True)
    (tmp_path / "in" / "cat" / "a.jpg").write_bytes(jpeg_bytes(1))
    (tmp_path / "in" / "cat" / "b.heic").write_bytes(b"x")
    ended = invoke("make-shards", "--from-folder", tmp_path / "in", "--out", tmp_path / "out", "--jobs", 1)
    assert ended.code == 0
    words = "1 file of the source was left out: no pictures by their names, or in no class: cat/b.heic\n"
    assert words in ended.stderr
    assert f"no picture was decoded: wds validate {tmp_path}/out does that\n" in ended.stderr


def test_where_many_files_are_left_out_json_lists_them_all(tmp_path: Path) -> None:
    (tmp_path / "in" / "cat").mkdir(parents=True)
    (tmp_path / "in" / "cat" / "a.jpg").write_bytes(jpeg_bytes(1))
    for number in range(7):
        (tmp_path / "in" / "cat" / f"{number}.heic").write_bytes(b"x")
    ended = invoke("make-shards", "--from-folder", tmp_path / "in", "--out", tmp_path / "out", "--jobs", 1, "--json")
    assert json.loads(ended.stdout)["left_out"] == [f"cat/{number}.heic" for number in range(7)]
    assert "cat/4.heic; .. (--json lists all)\n" in ended.stderr
