"""Rules on the content of ``cls`` members and on the order of labels. WDS03x."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator

from shardkit.check.rules.rule import Hit, declare, rule
from shardkit.check.scan import SampleScan, ShardScan
from shardkit.errors import counted
from shardkit.keys import LABEL_EXTENSION
from shardkit.labels import is_plain_label

__all__: list[str] = []

# Fewer samples may come in runs by chance.
_MIN_SAMPLES = 16


@rule(
    "WDS030",
    "error",
    effect="The label cannot be used: the run stops here.",
    remedy="Write a whole number into it",
    explanation="The content is not a whole number in ASCII digits with at most 18 of them: a class name, a float, a "
    "list, digits of another script, or `1_000`, which Python's int() would take.",
)
def label_no_integer(scan: ShardScan) -> Iterator[Hit]:
    """The label is not an integer."""
    for sample in scan.samples.values():
        content = sample.label_content
        if content is not None and sample.label is None and content.strip():
            yield Hit(f"cls holds {content!r}, not an integer", *_label_place(sample))


@rule(
    "WDS031",
    "error",
    effect="The loss reads past its classes: a device assert on a GPU, or training on wrong classes.",
    remedy="Number the classes from 0, or pass the right --classes",
    explanation="A label is negative, or not below the number of classes that --classes or the manifest gives.",
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


@rule(
    "WDS032",
    "error",
    effect="The label cannot be used: the run stops here.",
    remedy="Write a whole number into it",
    explanation="The member `cls` is there, and has no bytes or nothing but white space.",
)
def label_empty(scan: ShardScan) -> Iterator[Hit]:
    """The label is empty or blank."""
    for sample in scan.samples.values():
        if sample.label_content is not None and sample.label is None and not sample.label_content.strip():
            kind = "blank" if sample.label_content else "empty"
            yield Hit(f"{kind} cls", *_label_place(sample))


declare(
    "WDS033",
    "warning",
    title="The shards are sorted by class.",
    effect="No shuffle buffer mixes them: batches hold a class or two, and training suffers.",
    remedy="Pack again in shuffled order (as wds make-shards does without --no-shuffle)",
    explanation="The mean number of classes in a shard is below half of what it would be if the same labels were "
    "dealt out at random, or every shard has one class alone. Measured over all shards of a set.",
)


@rule(
    "WDS034",
    "warning",
    effect="A shuffle buffer smaller than a run gives batches of few classes.",
    remedy="Pack again in shuffled order; a loader that reads by index in global order is not affected",
    explanation="Neighbouring samples have the same label more than twice as often as chance would have it: the label "
    "changes in fewer than half of the expected places. Told from 16 samples on.",
)
def labels_in_runs(scan: ShardScan) -> Iterator[Hit]:
    """Within the shard, equal labels come in runs."""
    labels = [sample.label for sample in scan.samples.values() if sample.label is not None]
    counts = Counter(labels)
    if len(labels) < _MIN_SAMPLES or len(counts) < 2:
        return
    changes = sum(map(operator.ne, labels, labels[1:]))
    expected = len(labels) - sum(count * count for count in counts.values()) / len(labels)
    if 2 * changes < expected:
        yield Hit(
            f"the label changes {counted(changes, 'time')} in {counted(len(labels), 'sample')}, {expected:.0f} "
            "times if they were mixed"
        )


@rule(
    "WDS036",
    "note",
    effect="int() reads them; a strict parser stops, and one in C may take 010 for 8.",
    remedy="Write plain digits: no sign, no leading zeros, no white space",
    explanation="The label is an integer that is not written as the plain digits of one: `007`, `+5`, `-0` or a line "
    "end behind it.",
)
def label_not_plain(scan: ShardScan) -> Iterator[Hit]:
    """A label is not written as plain digits."""
    # There are far fewer contents than samples.
    if all(content is None or is_plain_label(content) for content in scan.label_contents):
        return
    found = [
        sample
        for sample in scan.samples.values()
        if sample.label is not None and sample.label_content is not None and not is_plain_label(sample.label_content)
    ]
    if found:
        message = f"{counted(len(found), 'label is/labels are')} not plain digits, first {found[0].label_content!r}"
        yield Hit(message, *_label_place(found[0]))


declare(
    "WDS037",
    "warning",
    title="Classes have no sample.",
    effect="The model never learns them, and its accuracy on them is 0.",
    remedy="See what became of their pictures; pack again",
    explanation="All shards of a manifest were checked, and some of the classes it declares have no sample in any of "
    "them.",
)
declare(
    "WDS038",
    "error",
    title="The labels count from 1.",
    effect="Every class is off by one: the last one is out of range, and class 0 is never seen.",
    remedy="Subtract 1 from every label: wds reshard relabels by a table",
    explanation="No label of the whole set is 0, and the largest is the number of classes that --classes or the "
    "manifest gives; or, without such a number, every label from 1 to the largest is there, in ten samples a class "
    "and more.",
)


def _label_place(sample: SampleScan) -> tuple[str, int]:
    part = next(part for part in sample.parts if part.extension == LABEL_EXTENSION)
    return part.name, part.header_offset
