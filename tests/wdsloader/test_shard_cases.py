"""Shards that others made, case by case as users of tar shards report them: what the loader makes of each."""

from __future__ import annotations

import pickle
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers.cli import run_script
from tests.helpers.pictures import cmyk_jpeg, encode, jpeg_with_bad_exif, turned_jpeg
from tests.helpers.shards import (
    END_MARKER,
    Content,
    jpeg_bytes,
    raw_member,
    sample_members,
    tar_bytes,
    tar_entry,
    write_shard,
)
from wdsloader import AugmentConfig, Batch, Dataset, LoaderConfig, TorchLoader, open_dataset

CONFIG = LoaderConfig(
    batch_size=8, image_size=12, augment=AugmentConfig(), num_workers=0, shuffle=False, tail="pad", num_epochs=1,
    on_error="skip", max_skipped=1000, labels="optional",
)  # fmt: skip


def batches_of(dataset: Dataset) -> list[Batch]:
    with TorchLoader(dataset, CONFIG) as loader:
        return list(loader)


class _Leaves:
    """Leaves a file behind where it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("CANARY"),)


PICKLED = pickle.dumps(_Leaves())
RED = Image.new("RGB", (32, 24), (200, 30, 40))
MARKED = raw_member(b"a.jpg", jpeg_bytes(0)) + raw_member(b"a.cls", b"0")
LINKED: list[Content] = [tar_entry("b.jpg", kind=tarfile.SYMTYPE, linkname="a.jpg"), ("b.cls", b"1")]
PICKLES: list[Content] = [(f"000001.{extension}", PICKLED) for extension in ("pyd", "pkl", "pickle", "pth")]


class TestShardsOfOthers:
    """What is odd about a shard costs no sample, and a sample that has no picture is never made one."""

    def delivered(self, path: Path) -> list[str]:
        dataset = open_dataset([str(path)], on_error="skip")
        return [key for batch in batches_of(dataset) for key in batch.keys if key is not None]

    @pytest.mark.parametrize(
        ("data", "keys"),
        [
            (MARKED, ["a"]),
            (MARKED + bytes(512), ["a"]),
            (MARKED + END_MARKER + b"x" * 700, ["a"]),
            (tar_bytes([(f"{'k' * 300}.jpg", jpeg_bytes(0))], format=tarfile.GNU_FORMAT), ["k" * 300]),
            (tar_bytes([(f"{'k' * 300}.jpg", jpeg_bytes(0))], format=tarfile.PAX_FORMAT), ["k" * 300]),
            (tar_bytes([("caf\udce9.jpg", jpeg_bytes(0))]), ["caf\udce9"]),
            (MARKED + tar_bytes(LINKED), ["a"]),
            (tar_bytes([("v1.0/22.5/1.jpg", jpeg_bytes(0)), ("v1.0/22.5/1.2.jpg", b"x")]), ["v1.0/22.5/1"]),
            (tar_bytes([("a/1.jpg", jpeg_bytes(0)), ("b/1.jpg", jpeg_bytes(1))]), ["a/1", "b/1"]),
            (tar_bytes([("1.JPEG", jpeg_bytes(0)), ("2.Jpg", jpeg_bytes(1)), ("3.jpeg", jpeg_bytes(2))]), [*"123"]),
            (tar_bytes([("._1.jpg", b"x"), ("1.jpg", jpeg_bytes(0)), (".DS_Store", b"x")]), ["1"]),
            (tar_bytes([("README", b"x"), ("Thumbs.db", b"x"), ("1.jpg", jpeg_bytes(0)), ("i.json", b"{}")]), ["1"]),
            (tar_bytes([("../x.jpg", jpeg_bytes(0)), ("/tmp/y.jpg", jpeg_bytes(1))]), ["../x", "/tmp/y"]),
            (tar_bytes([*sample_members(2), *PICKLES]), ["000000", "000001"]),
        ],
        ids=[
            "TAR-04 no marker", "TAR-04 half a marker", "TAR-05", "TAR-11 gnu", "TAR-11 pax", "TAR-12", "TAR-13",
            "KEY-06", "KEY-07", "KEY-09", "KEY-10", "KEY-11", "SEC-02", "SEC-03",
        ],
    )  # fmt: skip
    def test_all_samples_are_delivered_and_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, keys: list[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "x.tar").write_bytes(data)
        assert self.delivered(tmp_path / "in") == keys
        # Nothing was unpacked, and no pickle was run.
        assert {path.name for path in tmp_path.rglob("*")} == {"in", "x.tar", "x.tar.index.json"}

    @pytest.mark.parametrize(
        "picture",
        [
            cmyk_jpeg(), encode(RED.convert("L"), "JPEG"), encode(RED.convert("P"), "PNG"),
            encode(RED.convert("1"), "PNG"), encode(RED.convert("RGBA"), "PNG"), encode(RED, "WEBP"),
            encode(Image.new("I;16", (32, 24), 30000), "PNG"), turned_jpeg(6), encode(RED, "JPEG") + b"junk",
            jpeg_with_bad_exif("short"),
        ],
        ids=[
            "IMG-01", "IMG-03 gray", "IMG-03 palette", "IMG-03 one bit", "IMG-02 rgba", "IMG-02 webp", "IMG-03 16 bits",
            "IMG-08", "IMG-07", "IMG-04",
        ],
    )  # fmt: skip
    def test_a_picture_of_any_kind_has_three_channels_and_says_nothing(
        self, tmp_path: Path, picture: bytes, capfd: pytest.CaptureFixture[str]
    ) -> None:
        path = write_shard(tmp_path / "x.tar", [("a.jpg", picture), ("a.cls", b"1")])
        (batch,) = batches_of(open_dataset([str(path)]))
        assert batch.keys[0] == "a"
        assert batch.images[0].shape == (12, 12, 3)
        assert capfd.readouterr() == ("", "")


MEASURED = """
import re, sys
from pathlib import Path
from wdsloader import LoaderConfig, SampleStream, open_dataset

def peak_mib():
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

peaks = []
for shard in sys.argv[1:]:
    with open_dataset([shard]) as dataset:
        config = LoaderConfig(batch_size=8, image_size=12, num_workers=0, tail="pad", num_epochs=1)
        print(sum(1 for _ in SampleStream(dataset, config)))
    peaks.append(peak_mib())
print(peaks[1] - peaks[0])
"""


def test_a_shard_of_many_members_takes_little_memory(tmp_path: Path) -> None:
    """KEY-15."""
    few = write_shard(tmp_path / "few.tar", sample_members(10))
    many = tmp_path / "many.tar"
    with open(many, "wb") as file:
        for number in range(8000):
            file.write(raw_member(b"%06d.jpg" % number, b"x") + raw_member(b"%06d.cls" % number, b"1"))
        file.write(END_MARKER)
    ended = run_script(MEASURED, cwd=tmp_path, args=[str(few), str(many)])
    num_few, num_many, more_mib = ended.stdout.split()
    assert (num_few, num_many) == ("10", "8000")
    assert float(more_mib) < 20
