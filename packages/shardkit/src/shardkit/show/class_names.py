"""How many classes shards have, and what they are called, as the manifests that list them say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shardkit.locations import local_path
from shardkit.manifest import Manifest, most_classes, readable_manifests_in

__all__ = ["class_names", "num_classes_of"]


def class_names(shards: Iterable[str], *, manifests: Iterable[Manifest] = ()) -> tuple[str, ...]:
    """Return the names of the classes, by number, on which all manifests that list one of the shards agree.

    Args: manifests: those that lie elsewhere; those in the folders of local shards are found.

    Returns: () where no manifest lists one, or two manifests differ: a wrong name would be worse than none.
    """
    found = {manifest.classes for manifest in _listing(shards, manifests) if manifest.classes}
    return found.pop() if len(found) == 1 else ()


def num_classes_of(shards: Iterable[str], *, manifests: Iterable[Manifest] = ()) -> int | None:
    """Return how many classes they have by the same manifests, with names or without; None where one does not say."""
    return most_classes(_listing(shards, manifests))


def _listing(shards: Iterable[str], manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the manifests that list one of the shards, and those given; damaged ones are WDS053's."""
    names_in: dict[Path, set[str]] = {}
    for shard in shards:
        if (place := local_path(shard)) is not None:
            names_in.setdefault(Path(place).parent, set()).add(Path(place).name)
    found = list(manifests)
    for folder, names in names_in.items():
        beside, _ = readable_manifests_in(folder)
        found += [manifest for _, manifest in beside if any(shard.name in names for shard in manifest.shards)]
    return found
