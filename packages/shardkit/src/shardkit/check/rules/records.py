"""Rules that hold a shard against what is on record of it. WDS000 and WDS05x."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shardkit.check.rules.rule import Hit, declare, rule
from shardkit.check.scan import ShardScan
from shardkit.errors import counted, printable
from shardkit.index.shard_index import ShardIndex

__all__: list[str] = []

_NAMED = 5


declare(
    "WDS000",
    "error",
    title="The shard cannot be read.",
    effect="The run stops at this shard.",
    remedy="Check the path and its permissions",
    explanation="The system refused to open or to read the file: it is not there, is a folder, or is another user's.",
)


@rule(
    "WDS050",
    "error",
    effect="Epochs are planned from the manifest: counts, order and resume would be wrong.",
    remedy="Fetch the shard again; if it is right as it is, remove the manifest and index the shards",
    explanation="A manifest in the shard's folder lists it with other bytes, another checksum or another number of "
    "samples.",
)
def differs_from_manifest(scan: ShardScan) -> Iterator[Hit]:
    """The shard is not the one that the manifest describes."""
    record = scan.expected.record
    if record is None:
        return
    if scan.num_bytes is not None and scan.num_bytes != record.num_bytes:
        yield Hit(f"{counted(scan.num_bytes, 'byte')}, the manifest says {record.num_bytes}")
    elif scan.checksum is not None and scan.checksum != record.checksum:
        yield Hit(f"checksum {scan.checksum}, the manifest says {record.checksum}")
    if len(scan.samples) != record.num_samples:
        yield Hit(f"{counted(len(scan.samples), 'sample')}, the manifest says {record.num_samples}")


@rule(
    "WDS051",
    "error",
    effect="A sample read at its offset is another one, or none.",
    remedy="Delete the index and index the shard again",
    explanation="The index beside the shard cannot be read, or says other keys, offsets, sizes or labels than the "
    "shard holds: the shard was replaced after it was indexed.",
)
def differs_from_index(scan: ShardScan) -> Iterator[Hit]:
    """The index beside the shard is not the shard's."""
    index = scan.expected.index
    if isinstance(index, str):
        yield Hit(index)
    elif index is not None and scan.expected.record is not None and index.checksum == scan.expected.record.checksum:
        return  # the index fits the manifest: where the shard does not, that is WDS050
    elif index is not None and (reason := _difference(scan, index)) is not None:
        yield Hit(reason)


@rule(
    "WDS053",
    "error",
    effect="Nothing says any more how many samples there should be, and in which classes.",
    remedy="Restore the manifest, or remove it and index the shards",
    explanation="A manifest in the folder cannot be read, or contradicts itself: its digest does not fit its shards. "
    "Told with the first shard of the folder.",
)
def manifest_unusable(scan: ShardScan) -> Iterator[Hit]:
    """A manifest beside the shard is damaged."""
    for reason in scan.expected.unusable_manifests:
        yield Hit(reason)


@rule(
    "WDS054",
    "error",
    effect="A folder or a glob passes over the missing shard in silence: its samples are never seen.",
    remedy="Fetch the shard again",
    explanation="The manifest lists shards that its folder does not have. Told with the first shard of the folder.",
)
def shard_gone(scan: ShardScan) -> Iterator[Hit]:
    """A shard that a manifest in the folder lists is not there."""
    gone = scan.expected.gone
    if gone:
        names = ", ".join(gone[:_NAMED]) + (f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else "")
        yield Hit(
            f"{counted(len(gone), 'shard of the manifest is/shards of the manifest are')} not in the folder: {names}"
        )


@rule(
    "WDS071",
    "error",
    effect="A set is trained on and validated on: the accuracy is too high.",
    remedy="Take the shard out of one of the manifests, or remove the wrong one",
    explanation="Two manifests list the shard, and name different splits.",
)
def in_two_splits(scan: ShardScan) -> Iterator[Hit]:
    """Manifests of different splits list the shard."""
    if scan.expected.splits:
        yield Hit(", ".join(f"in {printable(place)} for {printable(split)}" for place, split in scan.expected.splits))


def _difference(scan: ShardScan, index: ShardIndex) -> str | None:
    """Return the first thing in which the index differs from the shard, None where it fits."""
    if scan.num_bytes is not None and scan.num_bytes != index.num_bytes:
        return f"the index is of a file of {counted(index.num_bytes, 'byte')}, this one has {scan.num_bytes}"
    if scan.checksum is not None and scan.checksum != index.checksum:
        return f"the index is of a file with the checksum {index.checksum}, this one has {scan.checksum}"
    samples = list(scan.samples.values())
    if len(samples) != index.num_samples:
        return f"the index has {counted(index.num_samples, 'sample')}, the shard {len(samples)}"
    offsets = np.array([sample.parts[0].header_offset for sample in samples], np.int64)
    for row in np.flatnonzero(offsets != index.offsets)[:1]:
        return f"the index has sample {row} at byte {index.offsets[row]}, the shard at {offsets[row]}"
    for row, sample in enumerate(samples):
        if sample.key != index.keys[row]:
            return f"the index calls sample {row} '{printable(index.keys[row])}', the shard '{printable(sample.key)}'"
        label = -1 if sample.label is None else sample.label
        if label != index.labels[row]:
            return f"the index gives '{printable(sample.key)}' the label {index.labels[row]}, the shard {label}"
    return None
