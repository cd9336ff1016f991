"""Build shards with the manifest and indexes that packing leaves beside them."""

from __future__ import annotations

from pathlib import Path

from shardkit import Manifest, ShardRecord, build_index, index_path_of, write_index, write_manifest
from tests.helpers.shards import write_samples

__all__ = ["write_packed"]


def write_packed(
    folder: Path, counts: list[int], *, shuffled: bool = False, index: bool = True, size: tuple[int, int] = (20, 16)
) -> list[Path]:
    """Write shards with their manifest, and their indexes unless told not to."""
    paths, records = [], []
    for number, count in enumerate(counts):
        path = write_samples(folder / f"t-{number:02d}.tar", count, first=100 * number, size=size)
        made = build_index(path)
        if index:
            write_index(made, Path(index_path_of(str(path))))
        paths.append(path)
        records.append(ShardRecord(path.name, count, made.num_bytes, made.checksum))
    manifest = Manifest(
        name="t", split="train", seed=0, classes=tuple("abcdefghij"), class_order="by name", shuffled=shuffled,
        shards=tuple(records),
    )  # fmt: skip
    write_manifest(manifest, folder / "t.manifest.json", replace=True)
    return paths
