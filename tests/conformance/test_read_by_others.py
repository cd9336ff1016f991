"""Other readers read what we write, and we read what other writers write."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from shardkit import ShardWriter, build_index, iter_samples
from tests.helpers.shards import check, jpeg_bytes, rules_in, tar_bytes

KEYS = (
    "000000",
    "folder.v1/000001",
    "with space/é_ü",
    "d" * 60 + "/" + "k" * 89,
    "k" * 150,
    "/".join(["e" * 70] * 3) + "/" + "q" * 87,
    "日本" * 60,
)
MEMBERS = [
    (f"{key}.{extension}", content)
    for number, key in enumerate(KEYS)
    for extension, content in (("jpg", jpeg_bytes(number)), ("cls", str(number).encode()), ("json", b"{}"))
]


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ours") / "x.tar"
    with ShardWriter(path) as writer:
        for key in KEYS:
            own = [(name.rpartition(".")[2], content) for name, content in MEMBERS if name.rpartition(".")[0] == key]
            writer.write_sample(key, own)
    return path


def test_gnu_tar_lists_every_name(shard: Path) -> None:
    if shutil.which("tar") is None:
        pytest.skip("no tar here")
    command = ["tar", "--quoting-style=literal", "-tf", str(shard)]
    done = subprocess.run(command, check=True, capture_output=True, env={"LC_ALL": "C.UTF-8"})
    assert done.stdout.decode().splitlines() == [name for name, _ in MEMBERS]
    assert done.stderr == b""


def test_tarfile_reads_every_byte(shard: Path) -> None:
    with tarfile.open(shard, "r:") as tar:
        found = [(info.name, file.read()) for info in tar if (file := tar.extractfile(info)) is not None]
    assert found == MEMBERS


def test_tarfile_reads_it_as_a_stream(shard: Path) -> None:
    with shard.open("rb") as file, tarfile.open(fileobj=file, mode="r|") as tar:
        assert [info.name for info in tar] == [name for name, _ in MEMBERS]


def test_webdataset_reads_every_sample(shard: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    dataset = webdataset.WebDataset(str(shard), shardshuffle=False)
    found = [(sample["__key__"], sample["jpg"], sample["cls"], sample["json"]) for sample in dataset]
    assert found == [(key, jpeg_bytes(n), str(n).encode(), b"{}") for n, key in enumerate(KEYS)]


def test_webdataset_writes_what_we_read(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter(str(tmp_path / "x.tar"), encoder=False) as writer:
        for number, key in enumerate(KEYS):
            writer.write({"__key__": key, "jpg": jpeg_bytes(number), "cls": b"%d" % number})
    assert rules_in(check(tmp_path / "x.tar")) == []
    assert build_index(tmp_path / "x.tar").keys == KEYS


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_shards_of_tarfile_are_read_and_clean(tmp_path: Path, format: int) -> None:
    members = [m for m in MEMBERS if format != tarfile.USTAR_FORMAT or len(m[0].encode()) < 160]
    members = [m for m in members if format != tarfile.USTAR_FORMAT or not m[0].startswith("kkk")]
    path = tmp_path / "x.tar"
    path.write_bytes(tar_bytes(members, format=format))
    assert rules_in(check(path)) == []
    with path.open("rb") as file:
        samples = list(iter_samples(file, shard="x"))
    assert [(f"{s.key}.{e}", c) for s in samples for e, c in s.members.items()] == members


@pytest.mark.parametrize("format", ["ustar", "gnu", "pax", "v7"])
def test_shards_of_gnu_tar_are_read_and_clean(tmp_path: Path, format: str) -> None:
    if shutil.which("tar") is None:
        pytest.skip("no tar here")
    (tmp_path / "in").mkdir()
    names = ["000000", "é", *(["k" * 150] if format in {"gnu", "pax"} else [])]
    for number, name in enumerate(names):
        (tmp_path / "in" / f"{name}.jpg").write_bytes(jpeg_bytes(number))
        (tmp_path / "in" / f"{name}.cls").write_bytes(b"%d" % number)
    command = [
        "tar",
        "--sort=name",
        f"--format={format}",
        "-cf",
        str(tmp_path / "x.tar"),
        "-C",
        str(tmp_path / "in"),
        ".",
    ]
    done = subprocess.run(command, check=False, capture_output=True)
    if done.returncode:
        pytest.skip(f"this tar makes no such archive: {done.stderr.decode()}")
    assert rules_in(check(tmp_path / "x.tar")) == []
    assert sorted(build_index(tmp_path / "x.tar").keys) == sorted(f"./{name}" for name in names)


@pytest.mark.parametrize("format", ["ustar", "gnutar", "pax", "v7"])
def test_shards_of_bsdtar_are_read_and_clean(tmp_path: Path, format: str) -> None:
    if shutil.which("bsdtar") is None:
        pytest.skip("no bsdtar here")
    names = ["000000", "000001", *(["k" * 150] if format in {"gnutar", "pax"} else [])]
    files = []
    for number, name in enumerate(names):
        for extension, content in (("cls", b"%d" % number), ("jpg", jpeg_bytes(number))):
            (tmp_path / f"{name}.{extension}").write_bytes(content)
            files.append(f"{name}.{extension}")
    shard = tmp_path / "x.tar"
    subprocess.run(["bsdtar", f"--format={format}", "-cf", shard, "-C", tmp_path, *files], check=True)
    assert rules_in(check(shard)) == []
    assert build_index(shard).keys == tuple(names)


def test_shards_of_img2dataset_lack_only_labels(tmp_path: Path) -> None:
    """It writes a picture, a caption and a JSON a sample, keys of nine digits, and no class."""
    members: list[tuple[str, bytes]] = []
    for number in range(3):
        key = f"{number:09d}"
        members += [(f"{key}.jpg", jpeg_bytes(number)), (f"{key}.txt", b"a caption"), (f"{key}.json", b"{}")]
    shard = tmp_path / "00000.tar"
    shard.write_bytes(tar_bytes(members, format=tarfile.GNU_FORMAT))
    report = check(shard)
    assert rules_in(report) == ["WDS022"]
    assert (report.summary.samples, report.summary.extensions) == (3, {"jpg": 3, "json": 3, "txt": 3})


def test_gzip_shards_of_shard_writer_are_read_as_they_are(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    pattern = str(tmp_path / "x-%06d.tar.gz")
    with webdataset.ShardWriter(pattern, maxcount=2, verbose=0, encoder=False, compress=True) as writer:
        for number in range(4):
            writer.write({"__key__": f"{number:06d}", "jpg": jpeg_bytes(number), "cls": b"%d" % number})
    shards = sorted(tmp_path.glob("*.tar.gz"))
    assert [rules_in(check(shard)) for shard in shards] == [["WDS012"], ["WDS012"]]
    assert [check(shard).summary.whole for shard in shards] == [2, 2]
