"""Peers that are not among our requirements read our shards; each test runs where its peer is installed."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.helpers.folders import image_folder, pack_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two shards of six samples in all, packed as `wds make-shards` packs."""
    folder = tmp_path_factory.mktemp("packed")
    pack_folder(image_folder(folder / "pictures", per_class=2), folder / "shards", num_shards=2)
    return folder / "shards"


def expected(folder: Path) -> list[tuple[str, bytes, int]]:
    """Return (key, picture, label) of all samples in order, as Python's tarfile has them."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            for info in tar:
                content = tar.extractfile(info)
                assert content is not None
                key, _, extension = info.name.partition(".")
                found.setdefault(key, {})[extension] = content.read()
    return [(key, parts["jpg"], int(parts["cls"])) for key, parts in found.items()]


def test_datasets_builds_every_sample(folder: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    shards = [str(path) for path in sorted(folder.glob("*.tar"))]
    rows = datasets.load_dataset("webdataset", data_files={"train": shards}, split="train", cache_dir=str(tmp_path))
    rows = rows.cast_column("jpg", datasets.Image(decode=False))
    assert [(row["__key__"], row["jpg"]["bytes"], row["cls"]) for row in rows] == expected(folder)


def test_dali_reads_every_sample_by_its_own_index(folder: Path, tmp_path: Path) -> None:
    dali, fn = pytest.importorskip("nvidia.dali"), pytest.importorskip("nvidia.dali.fn")
    wds2idx = Path(sys.executable).with_name("wds2idx")
    shards = sorted(folder.glob("*.tar"))
    indexes = [tmp_path / f"{shard.stem}.idx" for shard in shards]
    for shard, index in zip(shards, indexes, strict=True):
        subprocess.run([sys.executable, wds2idx, shard, index], check=True, capture_output=True)

    built = dali.Pipeline(batch_size=1, num_threads=1, device_id=None)
    with built:
        paths, index_paths = [str(shard) for shard in shards], [str(index) for index in indexes]
        built.set_outputs(*fn.readers.webdataset(paths=paths, index_paths=index_paths, ext=["jpg", "cls"]))
    built.build()
    found = []
    for _ in range(6):
        picture, label = built.run()
        found.append((bytes(picture.as_array()[0]), int(bytes(label.as_array()[0]))))
    assert found == [(picture, label) for _, picture, label in expected(folder)]


def test_energon_prepares_the_shards_and_finds_every_sample(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("megatron.energon")
    copy = shutil.copytree(folder, tmp_path / "shards")
    energon = Path(sys.executable).with_name("energon")
    command = [str(energon), "prepare", "--non-interactive", "--split-ratio=1,0,0", "--skip-dataset-yaml", str(copy)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    info = json.loads((copy / ".nv-meta" / ".info.json").read_text())
    assert sorted(info["shard_counts"].values()) == [3, 3]
    with sqlite3.connect(copy / ".nv-meta" / "index.sqlite") as database:
        keys = [key for (key,) in database.execute("SELECT sample_key FROM samples ORDER BY tar_file_id, sample_index")]
    assert keys == [key for key, _, _ in expected(folder)]
