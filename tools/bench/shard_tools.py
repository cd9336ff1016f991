"""What is timed of the shard tools: packing, checking, and the peers' way to the same end.

Data: pictures of our own generator, about 110 KB each, as an image folder and as shards. Every subject handles the same
pictures and returns how many it handled.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from bench.paired import Claim, Subject, emptied
from shardkit import (
    CheckOptions,
    FakeImageNet,
    FakeSource,
    PackConfig,
    check_shards,
    iter_samples,
    open_folder,
    pack,
    parse_shard_size,
    plan_shards,
)

__all__ = ["CLAIMS", "SUBJECTS", "make_data", "versions"]

_NUM_CLASSES = 10
_PER_SHARD = "250"


def make_data(folder: Path, *, num_pictures: int) -> None:
    """Make the pictures once: ``folder/pictures/CLASS/*.jpg`` and, of the same bytes, ``folder/shards/*.tar``."""
    if (folder / "shards").is_dir():
        return
    source = FakeSource(FakeImageNet(num_samples=num_pictures, num_classes=_NUM_CLASSES))
    for number in range(len(source)):
        members = dict(source.sample(number).members)
        place = folder / "pictures" / f"n{int(members['cls']):02d}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:06d}.jpg").write_bytes(members["jpg"])
    _pack(folder, folder / "shards", jobs=1)


def versions() -> dict[str, str]:
    """Return the versions of what is compared."""
    return {name: version(name) for name in ("webdataset", "pillow", "numpy")}


def _pack(data: Path, out: Path, *, jobs: int) -> int:
    source = open_folder(data / "pictures")
    plan = plan_shards(source, prefix="imagenet-train", size=parse_shard_size(_PER_SHARD))
    config = PackConfig(folder=out, prefix="imagenet-train", jobs=jobs)
    return pack(source, plan, config=config, on_shard=lambda _: None).num_samples


def pack_ours(data: Path, scratch: Path) -> int:
    """Pack the image folder: shards, indexes, manifest, fsync."""
    return _pack(data, emptied(scratch), jobs=1)


def pack_ours_two_processes(data: Path, scratch: Path) -> int:
    """Pack with two processes."""
    return _pack(data, emptied(scratch), jobs=2)


def pack_shard_writer(data: Path, scratch: Path) -> int:
    """Pack as webdataset's documentation shows: read each file, write a dict. No index, no checksum, no fsync."""
    import webdataset

    pattern = str(emptied(scratch) / "imagenet-train-%06d.tar")
    count = 0
    with webdataset.ShardWriter(pattern, maxcount=int(_PER_SHARD), verbose=0) as writer:
        for label, folder in enumerate(sorted((data / "pictures").iterdir())):
            for path in sorted(folder.iterdir()):
                writer.write({"__key__": f"{count:08d}", "jpg": path.read_bytes(), "cls": label})
                count += 1
    return count


def structure_ours(data: Path, _: Path) -> int:
    """Check the structure of every shard: all rules but those that look into pictures."""
    return _check(data, CheckOptions(pictures=False, against_manifest=False))


def structure_tarfile(data: Path, _: Path) -> int:
    """List every shard with the standard library."""
    count = 0
    for path in _shards(data):
        with tarfile.open(path) as archive:
            count += sum(member.name.endswith(".jpg") for member in archive)
    return count


def decode_ours(data: Path, _: Path) -> int:
    """Check everything, every picture decoded."""
    return _check(data, CheckOptions(against_manifest=False))


def decode_ours_two_processes(data: Path, _: Path) -> int:
    """Check everything with two processes."""
    return _check(data, CheckOptions(against_manifest=False, jobs=2))


def decode_alone(data: Path, _: Path) -> int:
    """Decode every picture and do nothing else: the decoder's own time."""
    from PIL import Image

    count = 0
    for content in _pictures(data):
        Image.open(io.BytesIO(content)).load()
        count += 1
    return count


def _check(data: Path, options: CheckOptions) -> int:
    reports = list(check_shards([str(path) for path in _shards(data)], options))
    if any(report.findings for report in reports):
        raise RuntimeError(f"findings in good shards: {reports[0].findings}")
    return sum(report.summary.samples for report in reports)


def _pictures(data: Path) -> Iterator[bytes]:
    for path in _shards(data):
        with path.open("rb") as file:
            for sample in iter_samples(file, shard=path.name):
                yield sample.members["jpg"]


def _shards(data: Path) -> list[Path]:
    return sorted((data / "shards").glob("*.tar"))


SUBJECTS: dict[str, Subject] = {
    "pack: ours": pack_ours,
    "pack: ShardWriter": pack_shard_writer,
    "pack: ours, 2 processes": pack_ours_two_processes,
    "structure: ours": structure_ours,
    "structure: tarfile": structure_tarfile,
    "decode: ours": decode_ours,
    "decode: Pillow alone": decode_alone,
    "decode: ours, 2 processes": decode_ours_two_processes,
}
CLAIMS = (
    Claim("pack: ours", "pack: ShardWriter", 2.0),
    Claim("structure: ours", "structure: tarfile", 3.0),
    Claim("decode: ours", "decode: Pillow alone", 1 / 1.15),
    Claim("decode: ours, 2 processes", "decode: ours", 1.8),
)
