"""Rules that hold a shard against what is on record of it in the manifest. WDS05x."""

from __future__ import annotations

from collections.abc import Iterator

from shardkit.rules.rule import Hit, rule
from shardkit.scan import ShardScan

__all__: list[str] = []


@rule(
    "WDS050",
    "error",
    effect="Epochs are planned from the manifest: counts, order and resume would be wrong.",
    remedy="Fetch the shard again, or index the folder again if the shard is right",
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
