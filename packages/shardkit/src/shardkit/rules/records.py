"""Rules that hold a shard against what is on record of it, and against other shards. WDS000 and WDS05x."""

from __future__ import annotations

from collections.abc import Iterator

from shardkit.rules.rule import Hit, no_check, rule
from shardkit.scan import ShardScan

__all__: list[str] = []


@rule(
    "WDS050",
    "error",
    effect="Epochs are planned from the manifest: counts, order and resume would be wrong.",
    remedy="Fetch the shard again; if it is right as it is, remove the manifest and index the shards",
)
def differs_from_manifest(scan: ShardScan) -> Iterator[Hit]:
    """The shard is not the one that the manifest describes."""
    record = scan.expected.record
    if record is None:
        return
    if scan.num_bytes is not None and scan.num_bytes != record.num_bytes:
        yield Hit(f"{scan.num_bytes} bytes, the manifest says {record.num_bytes}")
    elif scan.checksum is not None and scan.checksum != record.checksum:
        yield Hit(f"checksum {scan.checksum}, the manifest says {record.checksum}")
    if len(scan.samples) != record.num_samples:
        yield Hit(f"{len(scan.samples)} samples, the manifest says {record.num_samples}")


rule(
    "WDS000",
    "error",
    effect="The run stops at this shard.",
    remedy="Check the path and its permissions",
)(no_check)
rule(
    "WDS051",
    "error",
    effect="A sample read at its offset is another one, or none.",
    remedy="Delete the index and index the shard again",
)(no_check)
rule(
    "WDS052",
    "warning",
    effect="Samples can no longer be told apart by key; readers that join parts by key mix them up.",
    remedy="Give every sample of a dataset its own key",
)(no_check)


@rule(
    "WDS053",
    "error",
    effect="Nothing says any more how many samples there should be, and in which classes.",
    remedy="Restore the manifest, or remove it and index the shards",
)
def manifest_unusable(scan: ShardScan) -> Iterator[Hit]:
    """A manifest beside the shard is damaged. Told with the first shard of its folder."""
    for reason in scan.expected.unusable_manifests:
        yield Hit(reason)


@rule(
    "WDS054",
    "error",
    effect="A folder or a glob passes over the missing shard in silence: its samples are never seen.",
    remedy="Fetch the shard again",
)
def shard_gone(scan: ShardScan) -> Iterator[Hit]:
    """A shard that a manifest in the folder lists is not there. Told with the first shard of its folder."""
    gone = scan.expected.gone
    if gone:
        names = ", ".join(gone[:5]) + (f" and {len(gone) - 5} more" if len(gone) > 5 else "")
        yield Hit(f"{len(gone)} shards of the manifest are not in the folder: {names}")
