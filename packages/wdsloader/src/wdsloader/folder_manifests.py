"""What the manifests of a local folder say of the shards in it."""

from __future__ import annotations

from pathlib import Path

from shardkit import Manifest, ShardkitError, ShardRecord, manifests_in
from wdsloader.errors import DatasetError
from wdsloader.shards import stale

__all__ = ["FolderManifests"]


class FolderManifests:
    """What the manifests of one folder say of its shards."""

    def __init__(self, folder: Path) -> None:
        self._listed: dict[str, list[tuple[Path, Manifest, ShardRecord]]] = {}
        try:
            manifests = manifests_in(folder)
        except ShardkitError as error:
            raise DatasetError(str(error)) from error
        for file, manifest in manifests:
            for record in manifest.shards:
                self._listed.setdefault(record.name, []).append((file, manifest, record))

    def record_of(self, path: Path, *, skip: bool) -> tuple[Path, Manifest, ShardRecord] | None:
        """Return (manifest file, manifest, record) of a shard, None where none lists it.

        Args: skip: take the record of a shard that is missing or has another size too: its samples will be passed over.

        Raises: FileNotFoundError. DatasetError: the shard cannot be looked at, or has another size than the manifests
            that list it say.
        """
        listed = self._listed.get(path.name, [])
        try:
            num_bytes = path.stat().st_size
        except OSError as error:
            if skip and listed:
                return listed[0]
            if isinstance(error, FileNotFoundError):
                raise
            raise DatasetError(f"{path}: {error.strerror}") from error
        for entry in listed:
            if entry[2].num_bytes == num_bytes:
                return entry
        if skip and listed:
            return listed[0]
        if listed:
            file, _, record = listed[0]
            raise stale(str(path), f"has {num_bytes} bytes, {file.name} says {record.num_bytes}")
        return None
