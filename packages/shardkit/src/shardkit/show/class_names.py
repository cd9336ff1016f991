"""Class numbers -> class names, as the manifests beside shards have them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shardkit.locations import is_command, is_url
from shardkit.manifest import Manifest, readable_manifests_in

__all__ = ["class_names"]


def class_names(shards: Iterable[str], *, manifests: Iterable[Manifest] = ()) -> tuple[str, ...]:
    """Return the names of the classes, by number, on which all manifests that list one of the shards agree.

    Args: manifests: those that lie elsewhere; those in the folders of local shards are found.

    Returns: () where no manifest lists one, or two manifests differ: a wrong name would be worse than none.
    """
    names_in: dict[Path, set[str]] = {}
    for shard in shards:
        if shard != "-" and not is_url(shard) and not is_command(shard):
            names_in.setdefault(Path(shard).parent, set()).add(Path(shard).name)
    found = {classes for folder, names in names_in.items() for classes in _classes_in(folder, names)}
    found |= {manifest.classes for manifest in manifests if manifest.classes}
    return found.pop() if len(found) == 1 else ()


def _classes_in(folder: Path, names: set[str]) -> list[tuple[str, ...]]:
    """Return the class lists of the folder's manifests that list one of the names; damaged ones are WDS053's."""
    manifests, _ = readable_manifests_in(folder)
    return [m.classes for _, m in manifests if m.classes and any(shard.name in names for shard in m.shards)]
