"""Rules on the content of ``cls`` members. WDS03x."""

from __future__ import annotations

from collections.abc import Iterator

from shardkit.keys import LABEL_EXTENSION
from shardkit.rules.rule import Hit, no_check, rule
from shardkit.scan import SampleScan, ShardScan

__all__: list[str] = []


@rule("WDS030", "error", effect="The label cannot be used: the run stops here.", remedy="Write a whole number into it")
def label_no_integer(scan: ShardScan) -> Iterator[Hit]:
    """The label is not an integer."""
    for sample in scan.samples.values():
        content = sample.label_content
        if content is not None and content.strip() and sample.label is None:
            yield Hit(f"cls holds {content!r}, not an integer", *_label_place(sample))


@rule(
    "WDS031",
    "error",
    effect="The loss reads past its classes: a device assert on a GPU, or training on wrong classes.",
    remedy="Number the classes from 0, or pass the right --classes",
)
def label_out_of_range(scan: ShardScan) -> Iterator[Hit]:
    """The label is negative, or not below the number of classes."""
    limit = scan.expected.num_classes
    labels = [sample.label for sample in scan.samples.values() if sample.label is not None]
    from_one = limit is not None and labels and min(labels) > 0 and max(labels) == limit
    hint = " (labels from 1?)" if from_one else ""
    for sample in scan.samples.values():
        if sample.label is not None and (sample.label < 0 or (limit is not None and sample.label >= limit)):
            allowed = f"0..{limit - 1}" if limit is not None else "0 and up"
            yield Hit(f"label {sample.label} is outside {allowed}{hint}", *_label_place(sample))


@rule("WDS032", "error", effect="The label cannot be used: the run stops here.", remedy="Write a whole number into it")
def label_empty(scan: ShardScan) -> Iterator[Hit]:
    """The label is empty or blank."""
    for sample in scan.samples.values():
        if sample.label_content is not None and not sample.label_content.strip():
            kind = "blank" if sample.label_content else "empty"
            yield Hit(f"{kind} cls", *_label_place(sample))


rule(
    "WDS033",
    "warning",
    effect="No shuffle buffer mixes them: batches hold a class or two, and training suffers.",
    remedy="Pack again in shuffled order (as wds make-shards does without --no-shuffle)",
)(no_check)


def _label_place(sample: SampleScan) -> tuple[str, int]:
    part = next(part for part in sample.parts if part.extension == LABEL_EXTENSION)
    return part.name, part.header_offset
