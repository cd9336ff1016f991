"""Manifests that lie elsewhere: read whole, and put in place of their URLs the shards that they list."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from shardkit.errors import ManifestError
from shardkit.locations import beside, is_url, mask_url
from shardkit.manifest import MANIFEST_SUFFIX, MAX_MANIFEST_BYTES, Manifest, manifest_from_json
from shardkit.remote.stream import RemotePool

__all__ = ["expand_manifests"]

_PIECE_BYTES = 1 << 20


def expand_manifests(locations: Iterable[str]) -> tuple[list[str], dict[str, Manifest]]:
    """Return the shards, those of a manifest in place of its URL, and the manifests by URL; all else is handed on.

    Raises: RemoteError: one cannot be read. ManifestError: it is none.
    """
    shards: list[str] = []
    manifests: dict[str, Manifest] = {}
    with closing(RemotePool()) as pool:
        for location in locations:
            if not is_url(location) or not location.partition("?")[0].endswith(MANIFEST_SUFFIX):
                shards.append(location)
                continue
            if location not in manifests:
                manifests[location] = _read(location, pool)
            shards += [beside(location, record.name) for record in manifests[location].shards]
    return shards, manifests


def _read(url: str, pool: RemotePool) -> Manifest:
    data = bytearray()
    with closing(pool.open(url, shard=False)) as stream:
        while len(data) <= MAX_MANIFEST_BYTES and (piece := stream.read(_PIECE_BYTES)):
            data += piece
        if stream.error is not None:
            raise stream.error
    if len(data) > MAX_MANIFEST_BYTES:
        raise ManifestError(f"{mask_url(url)}: more than {MAX_MANIFEST_BYTES} bytes, which no manifest has")
    try:
        return manifest_from_json(bytes(data))
    except ManifestError as error:
        raise ManifestError(f"{mask_url(url)}: {error}") from error
