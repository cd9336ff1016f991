"""The manifest of a dataset: its shards with counts, bytes and checksums, its classes, its digest. One JSON file.

Format ``shardkit-manifest`` version 1, named ``<prefix>.manifest.json`` in the folder of its shards. It holds no date,
no host and no path, so that equal shards have equal manifests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardkit.atomic import write_atomically
from shardkit.errors import ManifestError

__all__ = [
    "MANIFEST_SUFFIX",
    "MAX_MANIFEST_BYTES",
    "Manifest",
    "ShardRecord",
    "dataset_digest",
    "manifest_from_json",
    "manifests_in",
    "most_classes",
    "read_manifest",
    "readable_manifests_in",
    "write_manifest",
]

MANIFEST_SUFFIX = ".manifest.json"
# 256 MiB: two million shards.
MAX_MANIFEST_BYTES = 1 << 28
_FORMAT = "shardkit-manifest"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """What the manifest says of one shard; ``checksum`` is XXH3 (128 bits, hex) of the whole file."""

    name: str
    num_samples: int
    num_bytes: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A dataset as it was packed.

    ``classes``: their names in the order of their numbers. ``class_order``: how that order was made. ``shuffled``:
    packed in shuffled order. ``options``: what the packing was told. ``skipped``: the sources that were left out.
    ``kept``: the pictures that stay as they are though somebody may not expect it, counted by reason: the transform can
    do nothing with them, or their names say another format. ``num_classes``: as many as have names; where none has, it
    is as given, None where nobody knows.
    """

    name: str
    split: str
    seed: int
    classes: tuple[str, ...]
    class_order: str
    shuffled: bool
    shards: tuple[ShardRecord, ...]
    options: Mapping[str, object] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    kept: Mapping[str, int] = field(default_factory=dict)
    num_classes: int | None = None

    def __post_init__(self) -> None:
        if self.classes:
            object.__setattr__(self, "num_classes", len(self.classes))

    @property
    def num_samples(self) -> int:
        """The number of samples in all shards."""
        return sum(shard.num_samples for shard in self.shards)

    @property
    def num_bytes(self) -> int:
        """The number of bytes of all shards."""
        return sum(shard.num_bytes for shard in self.shards)

    @property
    def digest(self) -> str:
        """The identity of the data: see :func:`dataset_digest`."""
        return dataset_digest(self.shards)


def dataset_digest(shards: Iterable[ShardRecord]) -> str:
    """Return the identity of a dataset, 32 hex digits: over name, sample count and checksum of its shards, as listed.

    No URL, tool version or date is in it, so that a copy elsewhere is the same dataset.
    """
    state = hashlib.blake2b(digest_size=16)
    for shard in shards:
        state.update(json.dumps([shard.name, shard.num_samples, shard.checksum]).encode() + b"\n")
    return state.hexdigest()


def most_classes(manifests: Iterable[Manifest]) -> int | None:
    """Return the number of classes that all labels of these datasets have room in; None where one does not know.

    Where some have names, and they are the same, it is the number of names.
    """
    listed = list(manifests)
    numbers = [manifest.num_classes for manifest in listed if manifest.classes] or [m.num_classes for m in listed]
    known = [number for number in numbers if number is not None]
    return max(known) if known and len(known) == len(numbers) else None


def write_manifest(manifest: Manifest, path: Path, *, replace: bool = False) -> None:
    """Write the manifest atomically. Raises: OutputExistsError: it is there and not to be replaced. OSError."""
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "name": manifest.name,
        "split": manifest.split,
        "seed": manifest.seed,
        "num_samples": manifest.num_samples,
        "num_bytes": manifest.num_bytes,
        "digest": manifest.digest,
        "shuffled": manifest.shuffled,
        "class_order": manifest.class_order,
        "options": dict(manifest.options),
        "shards": [
            {"name": s.name, "num_samples": s.num_samples, "num_bytes": s.num_bytes, "xxh3_128": s.checksum}
            for s in manifest.shards
        ],
        "classes": list(manifest.classes),
        "skipped": list(manifest.skipped),
        **({"kept": dict(manifest.kept)} if manifest.kept else {}),
        **({"num_classes": manifest.num_classes} if manifest.num_classes and not manifest.classes else {}),
    }
    write_atomically(path, json.dumps(document, indent=1).encode() + b"\n", replace=replace)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest file. Raises: ManifestError: no manifest, or one that contradicts itself. OSError."""
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise ManifestError(f"more than {MAX_MANIFEST_BYTES} bytes, which no manifest has")
        return manifest_from_json(path.read_bytes())
    except ManifestError as error:
        raise ManifestError(f"{path}: {error}") from error


def manifest_from_json(data: bytes) -> Manifest:
    """Return the manifest that these bytes hold. Raises: ManifestError: none, or one that contradicts itself."""
    try:
        document = json.loads(data)
        if document["format"] != _FORMAT or document["version"] != _VERSION:
            raise ManifestError(f"format {document['format']!r} version {document['version']!r} is not known here")
        digest = document["digest"]
        manifest = Manifest(
            name=_text(document["name"]),
            split=_text(document["split"]),
            seed=int(document["seed"]),
            classes=tuple(_text(name) for name in document["classes"]),
            class_order=_text(document["class_order"]),
            shuffled=bool(document["shuffled"]),
            shards=tuple(_record(entry) for entry in document["shards"]),
            options=dict(document["options"]),
            skipped=tuple(_text(name) for name in document["skipped"]),
            kept={reason: _number(count) for reason, count in document.get("kept", {}).items()},
            num_classes=_number(document["num_classes"]) if "num_classes" in document else None,
        )
        if document.get("num_classes", manifest.num_classes) != manifest.num_classes:
            raise ManifestError(f"{document['num_classes']} classes, and {manifest.num_classes} names of classes")
    except ManifestError:
        raise
    # json goes as deep as the brackets in the file.
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ManifestError(f"not a manifest ({type(error).__name__}: {error})") from error
    if len({shard.name for shard in manifest.shards}) != len(manifest.shards):
        raise ManifestError("a shard is listed twice")
    if digest != manifest.digest:
        raise ManifestError("its digest does not fit its shards: it was edited or damaged")
    return manifest


def _record(entry: Any) -> ShardRecord:
    """Return one shard's record. Raises: ManifestError: a name that leads elsewhere, or a count that is none."""
    name, checksum = entry["name"], entry["xxh3_128"]
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ManifestError(f"shard name {name!r} is not a plain file name")
    for count in ("num_samples", "num_bytes"):
        if type(entry[count]) is not int or entry[count] < 0:
            raise ManifestError(f"{name}: {count} is {entry[count]!r}, no number from 0 up")
    return ShardRecord(name, entry["num_samples"], entry["num_bytes"], _text(checksum))


def _number(value: object) -> int:
    if type(value) is not int or value < 1:
        raise ManifestError(f"{value!r} stands where a number from 1 up belongs")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ManifestError(f"{value!r} stands where text belongs")
    return value


def manifests_in(folder: Path) -> list[tuple[Path, Manifest]]:
    """Return the manifests in a folder by name. Raises: ManifestError: one of them cannot be read."""
    return [(path, read_manifest(path)) for path in sorted(folder.glob("*" + MANIFEST_SUFFIX))]


def readable_manifests_in(folder: Path) -> tuple[list[tuple[Path, Manifest]], tuple[str, ...]]:
    """Return the manifests in a folder by name, and in words why others there cannot be read."""
    found, reasons = [], []
    for path in sorted(folder.glob("*" + MANIFEST_SUFFIX)):
        try:
            found.append((path, read_manifest(path)))
        except (ManifestError, OSError) as error:
            reasons.append(str(error))
    return found, tuple(reasons)
