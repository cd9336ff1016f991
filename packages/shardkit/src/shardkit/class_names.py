"""Class numbers -> class names, as the manifests beside shards have them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shardkit.errors import ManifestError
from shardkit.locations import is_command, is_url
from shardkit.manifest import MANIFEST_SUFFIX, read_manifest

__all__ = ["class_names"]


def class_names(shards: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the classes, by number, on which all manifests that list one of the local shards agree.

    Returns: () where no manifest lists one, or two manifests differ: a wrong name would be worse than none.
    """
    names_in: dict[Path, set[str]] = {}
    for shard in shards:
        if shard != "-" and not is_url(shard) and not is_command(shard):
            names_in.setdefault(Path(shard).parent, set()).add(Path(shard).name)
    found = {classes for folder, names in names_in.items() for classes in _classes_in(folder, names)}
    return found.pop() if len(found) == 1 else ()


def _classes_in(folder: Path, names: set[str]) -> list[tuple[str, ...]]:
    """Return the class lists of the folder's manifests that list one of the names; damaged ones are passed over."""
    found = []
    for path in sorted(folder.glob("*" + MANIFEST_SUFFIX)):
        try:
            manifest = read_manifest(path)
        except (ManifestError, OSError):
            # A finding of its own (WDS053).
            continue
        if manifest.classes and any(shard.name in names for shard in manifest.shards):
            found.append(manifest.classes)
    return found
