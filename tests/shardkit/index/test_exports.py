from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardkit import ExportError, WidsShard, build_index, dali_index, dali_name, read_sizes, sizes_json, wids_json
from shardkit.index.exports import wids_url
from tests.helpers.shards import jpeg_bytes, layout, sample_members, write_samples, write_shard


class TestDali:
    def test_the_format_is_pinned(self, tmp_path: Path) -> None:
        members = [("a/1.jpg", b"12345"), ("a/1.cls", b"7"), ("a/2.cls", b"10"), ("a/2.jpg", b"")]
        assert dali_index(build_index(write_shard(tmp_path / "x.tar", members))) == (
            b"v1.2 2\njpg 512 5 a/1.jpg cls 1536 1 a/1.cls\ncls 2560 2 a/2.cls jpg 3584 0 a/2.jpg\n"
        )

    def test_places_are_those_that_tarfile_finds(self, tmp_path: Path) -> None:
        shard = write_shard(tmp_path / "x.tar", [*sample_members(3), ("9.json", b"{}"), ("9.jpg", jpeg_bytes(9))])
        words = dali_index(build_index(shard)).decode().split("\n", 1)[1].split()
        entries = [words[n : n + 4] for n in range(0, len(words), 4)]
        assert entries == [
            [place.name.partition(".")[2], str(place.content), str(place.size), place.name]
            for place in layout(shard.read_bytes())
        ]

    @pytest.mark.parametrize("name", ["a b", "a\tb", "a\u2003b"])
    def test_names_that_the_format_cannot_hold_are_refused(self, tmp_path: Path, name: str) -> None:
        shard = write_shard(tmp_path / "x.tar", [(f"{name}.jpg", b"1"), (f"{name}.cls", b"1")])
        with pytest.raises(ExportError, match=r"x\.tar: .* has white space in its name, .* pack the shard again"):
            dali_index(build_index(shard))

    def test_a_shard_without_samples_is_refused_as_dali_would(self, tmp_path: Path) -> None:
        with pytest.raises(ExportError, match="no samples"):
            dali_index(build_index(write_shard(tmp_path / "x.tar", [])))

    @pytest.mark.parametrize(
        ("shard", "name"),
        [("t-0.tar", "t-0.idx"), ("a.b.tar", "a.idx"), (".a.tar", ".a.idx"), ("no-dot", "no-dot.idx")],
    )
    def test_the_index_has_the_name_that_dali_gives_it(self, shard: str, name: str) -> None:
        assert dali_name(shard) == name

    def test_dali_writes_the_same_bytes(self, tmp_path: Path) -> None:
        wds2idx = pytest.importorskip("wds2idx")  # a script of its wheel
        shard = write_samples(tmp_path / "x.tar", 20)
        subprocess.run([sys.executable, wds2idx.__file__, shard, tmp_path / "theirs"], check=True, capture_output=True)
        assert dali_index(build_index(shard)) == (tmp_path / "theirs").read_bytes()

    def test_dali_reads_the_samples(self, tmp_path: Path) -> None:
        fn = pytest.importorskip("nvidia.dali.fn")
        dali = pytest.importorskip("nvidia.dali")
        shard = write_samples(tmp_path / "x.tar", 4)
        (tmp_path / "x.idx").write_bytes(dali_index(build_index(shard)))
        pipeline = dali.Pipeline(batch_size=4, num_threads=1, device_id=None)
        with pipeline:
            paths = {"paths": [str(shard)], "index_paths": [str(tmp_path / "x.idx")]}
            pipeline.set_outputs(*fn.readers.webdataset(ext=["jpg", "cls"], **paths))
        pipeline.build()
        pictures, labels = pipeline.run()
        assert [bytes(pictures.at(n)) for n in range(4)] == [jpeg_bytes(n) for n in range(4)]
        assert [bytes(labels.at(n)) for n in range(4)] == [b"0", b"1", b"2", b"3"]


def test_the_wids_index_is_pinned() -> None:
    shards = [WidsShard(url="t-0.tar", md5="ab" * 16, num_samples=3, num_bytes=20480)]
    assert json.loads(wids_json(shards, name="t")) == {
        "__kind__": "wids-shard-index-v1",
        "wids_version": 1,
        "name": "t",
        "shardlist": [{"url": "t-0.tar", "md5sum": "ab" * 16, "nsamples": 3, "filesize": 20480}],
    }


@pytest.mark.filterwarnings("ignore:String specifications:UserWarning")
def test_wids_reads_every_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wids = pytest.importorskip("wids")
    shards = []
    for number in range(2):
        path = write_samples(tmp_path / f"t-{number}.tar", 3, first=10 * number)
        md5 = wids.wids.compute_file_md5sum(str(path))
        shards.append(WidsShard(url=path.name, md5=md5, num_samples=3, num_bytes=path.stat().st_size))
    (tmp_path / "t.wids.json").write_bytes(wids_json(shards, name="t"))
    monkeypatch.chdir(tmp_path)
    dataset: Any = wids.ShardListDataset("t.wids.json", cache_dir=str(tmp_path / "cache"))
    assert [dataset[n]["__key__"] for n in range(len(dataset))] == [f"{n:06d}" for n in (0, 1, 2, 10, 11, 12)]
    dataset.close()


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("d/x.tar", "x.tar"),
        ("d/x?.tar", "x?.tar"),
        ("https://host/a/x.tar?sig=secret", "https://host/a/x.tar"),
        ("https://user:secret@host/a/x.tar#secret", "https://host/a/x.tar"),
    ],
)
def test_the_place_of_a_shard_holds_no_path_and_no_secret(location: str, url: str) -> None:
    assert wids_url(location) == url


@pytest.mark.parametrize(
    "secret", ["{}:{}@h/a/b.tar", "{}@h/a/b.tar", "h/a/b.tar?sig={}", "h/a/b.tar#{}", "h/a/b.tar?x@y/{}"]
)
def test_the_place_for_wids_holds_no_secret(secret: str) -> None:
    assert wids_url("https://" + secret.replace("{}", "SECRET")) == "https://h/a/b.tar"


def test_sizes_survive_their_file() -> None:
    assert sizes_json({"b.tar": 2, "a.tar": 1}) == b'{\n "a.tar": 1,\n "b.tar": 2\n}\n'
    assert read_sizes(sizes_json({"b.tar": 2, "a.tar": 1})) == {"a.tar": 1, "b.tar": 2}


@pytest.mark.parametrize("data", [b"", b"[]", b'{"a": "1"}', b'{"a": true}', b"\xff", b"[" * 100_000])
def test_what_is_no_sizes_json_is_refused(data: bytes) -> None:
    with pytest.raises(ExportError, match=r"not a sizes\.json"):
        read_sizes(data)
