"""What several shards together must not have: equal keys, equal pictures, classes in heaps, uneven sizes. Pure but for
names, which are read from the shards where a finding needs them.

Works on the marks of each shard: 48 bytes a sample, and as much again while they are sorted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shardkit.check.marks import NO_LABEL, Uint64s, names_at
from shardkit.check.rules import Finding, finding
from shardkit.check.validate import ShardReport
from shardkit.errors import counted, printable
from shardkit.index.shard_index import Int64s
from shardkit.keys import split_name
from shardkit.locations import bare_url, is_url, local_path
from shardkit.naming import dataset_named, missing_between, split_named

__all__ = ["SetOptions", "check_together"]

_NAMED = 5
# A set counted from 1 by chance: with ten samples a class, class 0 is missing in one of 20,000.
_SAMPLES_A_CLASS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOptions:
    """``num_classes``: as the caller has it, else the manifests'. ``readers``: ranks times workers that will read."""

    num_classes: int | None = None
    readers: int | None = None


@dataclass(frozen=True, slots=True)
class _Samples:
    """The samples of some shards in one row: the number of each one's shard, and its byte there."""

    shards: tuple[str, ...]
    keys: Uint64s
    pictures: Uint64s
    labels: Int64s
    shard_numbers: Int64s
    offsets: Int64s

    def names(self, rows: Int64s) -> list[str]:
        """Return the key of each of these samples, or the byte where the shard cannot be read again."""
        found = [""] * len(rows)
        for number in np.unique(self.shard_numbers[rows]):
            places = np.flatnonzero(self.shard_numbers[rows] == number)
            offsets = [int(offset) for offset in self.offsets[rows[places]]]
            for place, name, offset in zip(places, names_at(self.shards[number], offsets), offsets, strict=True):
                split = None if name is None else split_name(name)
                found[place] = f"at byte {offset}" if split is None else split[0]
        return found


def check_together(
    reports: Sequence[ShardReport], options: SetOptions = SetOptions(), *, against: Sequence[ShardReport] = ()
) -> list[Finding]:
    """Return what is wrong with shards that are each fine: see the rules of sets.

    Shards of one manifest are a set, and of those in none the ones whose names differ in numbers alone; pictures are
    compared between sets too, and between all shards and those of ``against``. The same shard twice is one.
    """
    own = _each_once(reports)
    found: list[Finding] = []
    sets = _by_dataset(own)
    for members in sets:
        samples = _gather(members)
        found += _repeated_keys(samples)
        found += _repeated_pictures(samples)
        found += _sorted_by_class(members)
        found += _classes(members, samples, options=options)
        found += _uneven(members, options)
        found += _gaps(members, there=[report.summary.shard for report in own])
    for number, one in enumerate(sets):
        for other in sets[number + 1 :]:
            splits = (_split(one), _split(other))
            if None not in splits and splits[0] != splits[1]:
                # The training set is the first of the two in the message.
                first, second = (other, one) if splits[1] == "train" else (one, other)
                found += _leaks(first, second)
    for alike in _by_split(sets):
        found += _same_again(alike)
    found += _leaks(own, _each_once(against))
    return found


def _each_once(reports: Sequence[ShardReport]) -> list[ShardReport]:
    return list({report.summary.shard: report for report in reports}.values())


def _by_dataset(reports: Sequence[ShardReport]) -> list[list[ShardReport]]:
    sets: dict[tuple[str, bool], list[ShardReport]] = {}
    for report in reports:
        shard, dataset = report.summary.shard, report.dataset
        sets.setdefault((dataset_named(shard), False) if dataset is None else (dataset.manifest, True), []).append(
            report
        )
    return list(sets.values())


def _by_split(sets: Sequence[list[ShardReport]]) -> list[list[list[ShardReport]]]:
    alike: dict[str | None, list[list[ShardReport]]] = {}
    for members in sets:
        alike.setdefault(_split(members), []).append(members)
    return list(alike.values())


def _split(members: Sequence[ShardReport]) -> str | None:
    first = members[0]
    return split_named(first.summary.shard) if first.dataset is None else first.dataset.split


def _gather(reports: Sequence[ShardReport]) -> _Samples:
    marks = [report.marks for report in reports]
    return _Samples(
        shards=tuple(report.summary.shard for report in reports),
        keys=np.concatenate([mark.keys for mark in marks]),
        pictures=np.concatenate([mark.pictures for mark in marks]),
        labels=np.concatenate([mark.labels for mark in marks]),
        shard_numbers=np.repeat(np.arange(len(marks)), [len(mark) for mark in marks]),
        offsets=np.concatenate([mark.offsets for mark in marks]),
    )


def _equal_pairs(hashes: Uint64s) -> tuple[Int64s, Int64s]:
    """Return (first, other): the rows of each hash beyond its first, with that first one; ``other`` ascends."""
    # A stable sort: the first row of equal ones is the earliest.
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    ordered = hashes[order]
    begins = np.ones(len(order), bool)
    begins[1:] = np.any(ordered[1:] != ordered[:-1], axis=1)
    first = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))] if len(order) else order
    other, first = order[~begins], first[~begins]
    by_row = np.argsort(other, kind="stable")
    return first[by_row], other[by_row]


def _repeated_keys(samples: _Samples) -> Iterator[Finding]:
    """Report, for each shard, the keys that earlier shards have too."""
    first, other = _equal_pairs(samples.keys)
    for count, row, twin in _first_of_each_shard(samples, first=first, other=other):
        (key,) = samples.names(np.array([row]))
        also = samples.shards[samples.shard_numbers[twin]]
        message = (
            f"{counted(count, 'key is/keys are')} in other shards too, first '{printable(key)}', also in "
            f"{printable(also)}"
        )
        yield finding("WDS052", samples.shards[samples.shard_numbers[row]], message)


def _repeated_pictures(samples: _Samples) -> Iterator[Finding]:
    """Report pictures that come twice: each one with two labels, and the number of the others for each shard."""
    rows = np.flatnonzero(samples.pictures.any(axis=1))
    first, other = (rows[found] for found in _equal_pairs(samples.pictures[rows]))
    one, two = samples.labels[first], samples.labels[other]
    differs = (one != two) & (one != NO_LABEL) & (two != NO_LABEL)
    yield from _told_singly("WDS035", ones=(samples, first[differs]), others=(samples, other[differs]))
    for count, row, twin in _first_of_each_shard(samples, first=first[~differs], other=other[~differs]):
        twin_key, key = samples.names(np.array([twin, row]))
        where = samples.shards[samples.shard_numbers[twin]]
        message = (
            f"{counted(count, 'picture comes/pictures come')} a second time, first the one of "
            f"'{printable(twin_key)}' in {printable(where)}"
        )
        yield finding("WDS056", samples.shards[samples.shard_numbers[row]], message, key, int(samples.offsets[row]))


def _leaks(train: Sequence[ShardReport], val: Sequence[ShardReport]) -> Iterator[Finding]:
    """Report the shards that are in both sets, in one finding, and each other picture that is."""
    files = {_file_of(report.summary.shard): report for report in train}
    both = {file: report for report in val if (file := _file_of(report.summary.shard)) in files}
    for file, report in list(both.items())[:1]:
        shard, there = report.summary.shard, files[file].summary.shard
        what = "the shard is" if len(both) == 1 else f"{len(both)} of {len(val)} shards are the same files"
        also = f", there as {printable(there)}" if there != shard else ""
        first = "" if len(both) == 1 else f", first {printable(os.path.basename(shard))}"
        yield finding("WDS055", shard, f"{what} in both sets{first}{also}")
    alone = [report for file, report in files.items() if file not in both]
    yield from _equal_pictures(alone, val)
    others = [report for report in val if _file_of(report.summary.shard) not in both]
    yield from _equal_pictures([files[file] for file in both], others)


def _same_again(sets: Sequence[Sequence[ShardReport]]) -> Iterator[Finding]:
    """Report, in one finding for a pair of these sets, the pictures that are in both; each is told of its first set.

    All are sorted together: shards whose names have nothing in common are a set each, and may be thousands.
    """
    if len(sets) < 2:
        return
    samples = _gather([report for members in sets for report in members])
    set_numbers = np.repeat(np.arange(len(sets)), [sum(len(r.marks) for r in members) for members in sets])
    rows = np.flatnonzero(samples.pictures.any(axis=1))
    first, other = (rows[found] for found in _equal_pairs(samples.pictures[rows]))
    crosses = set_numbers[first] != set_numbers[other]
    first, other = first[crosses], other[crosses]
    pairs = np.stack([set_numbers[first], set_numbers[other]], axis=1)
    numbers, begins, counts = np.unique(pairs, axis=0, return_index=True, return_counts=True)
    for (one, two), begin, count in zip(numbers, begins, counts, strict=True):
        row, twin = int(other[begin]), int(first[begin])
        (key,) = samples.names(np.array([row]))
        message = (
            f"{count} of {counted(int((set_numbers == two).sum()), 'picture')} of {_set_named(sets[two])} are in "
            f"{_set_named(sets[one])} too, first the one of '{printable(key)}', there in "
            f"{printable(samples.shards[samples.shard_numbers[twin]])}"
        )
        yield finding("WDS072", samples.shards[samples.shard_numbers[row]], message)


def _set_named(members: Sequence[ShardReport]) -> str:
    first = members[0]
    return printable(first.summary.shard if first.dataset is None else first.dataset.manifest)


def _file_of(shard: str) -> tuple[int, int] | str:
    """Return what tells a file from others: by whatever path, link or signed URL it is named."""
    place = local_path(shard)
    if place is None:
        return bare_url(shard) if is_url(shard) else shard
    try:
        found = os.stat(place)
    except OSError:
        return os.path.realpath(place)
    return found.st_dev, found.st_ino


def _equal_pictures(one: Sequence[ShardReport], two: Sequence[ShardReport]) -> Iterator[Finding]:
    """Report each picture of the second set that is in the first, with the places in both."""
    if not one or not two:
        return
    train, val = _gather(one), _gather(two)
    num_train = len(train.pictures)
    both = np.concatenate([train.pictures, val.pictures])
    rows = np.flatnonzero(both.any(axis=1))
    first, other = (rows[found] for found in _equal_pairs(both[rows]))
    crosses = (first < num_train) & (other >= num_train)
    yield from _told_singly("WDS055", ones=(train, first[crosses]), others=(val, other[crosses] - num_train))


def _told_singly(rule_id: str, *, ones: tuple[_Samples, Int64s], others: tuple[_Samples, Int64s]) -> Iterator[Finding]:
    """Report each pair of equal pictures, at the second of the two."""
    (one, first), (other, second) = ones, others
    for row, twin, key, twin_key in zip(second, first, other.names(second), one.names(first), strict=True):
        shard, where = other.shards[other.shard_numbers[row]], one.shards[one.shard_numbers[twin]]
        labels = f"label {_label(other, row)}, and {_label(one, twin)} there"
        message = f"the same picture as '{printable(twin_key)}' in {printable(where)} ({labels})"
        yield finding(rule_id, shard, message, key, int(other.offsets[row]))


def _label(samples: _Samples, row: int) -> str:
    return "none" if samples.labels[row] == NO_LABEL else str(samples.labels[row])


def _first_of_each_shard(samples: _Samples, *, first: Int64s, other: Int64s) -> Iterator[tuple[int, int, int]]:
    """Yield (number of pairs, row of the first, row of its twin) for each shard that has the second of a pair."""
    numbers, begins, counts = np.unique(samples.shard_numbers[other], return_index=True, return_counts=True)
    for _, begin, count in zip(numbers, begins, counts, strict=True):
        yield int(count), int(other[begin]), int(first[begin])


def _sorted_by_class(members: Sequence[ShardReport]) -> Iterator[Finding]:
    """Warn where the shards hold far fewer classes than they would if the samples were dealt out at random."""
    own = [report.marks.labels[report.marks.labels != NO_LABEL] for report in members]
    own = [labels for labels in own if len(labels)]
    if len(own) < 2:
        return
    counts = np.unique(np.concatenate(own), return_counts=True)[1]
    if len(counts) < 2:
        return
    share = counts / counts.sum()
    seen = [len(np.unique(labels)) for labels in own]
    expected = float(np.mean([np.sum(1 - (1 - share) ** len(labels)) for labels in own]))
    if max(seen) == 1 and min(map(len, own)) > 1:
        message = f"1 class a shard, in each of {counted(len(own), 'shard')}"
    elif 2 * np.mean(seen) < expected:
        message = (
            f"{np.mean(seen):.1f} classes a shard in {counted(len(own), 'shard')}, {expected:.1f} if they were mixed"
        )
    else:
        return
    yield finding("WDS033", members[0].summary.shard, message)


def _classes(members: Sequence[ShardReport], samples: _Samples, *, options: SetOptions) -> Iterator[Finding]:
    """Hold the classes seen in a whole set against those it should have."""
    shard, dataset = members[0].summary.shard, members[0].dataset
    labels, counts = np.unique(samples.labels[samples.labels != NO_LABEL], return_counts=True)
    if not len(labels):
        return
    declared = options.num_classes or (dataset.num_classes if dataset is not None else 0)
    contiguous = len(labels) >= 2 and labels[-1] == len(labels) and counts.sum() >= _SAMPLES_A_CLASS * len(labels)
    if labels[0] == 1 and (labels[-1] == declared if declared else contiguous):
        yield finding("WDS038", shard, f"labels are 1..{labels[-1]}, and none is 0: they count from 1")
    if dataset is not None and dataset.num_classes and len(members) == dataset.num_shards:
        missing = np.setdiff1d(np.arange(dataset.num_classes), labels)
        if len(missing):
            named = ", ".join(map(str, missing[:_NAMED])) + (", ..." if len(missing) > _NAMED else "")
            yield finding(
                "WDS037",
                shard,
                f"{len(missing)} of {counted(dataset.num_classes, 'class has/classes have')} no sample: {named}",
            )


def _gaps(members: Sequence[ShardReport], *, there: Sequence[str]) -> Iterator[Finding]:
    """Report what is missing in the numbers of shards that no manifest lists."""
    if members[0].dataset is not None:
        return
    missing = missing_between([report.summary.shard for report in members], there=there)
    if missing:
        named = ", ".join(printable(os.path.basename(name)) for name in missing[:_NAMED])
        more = ", ..." if len(missing) > _NAMED else ""
        message = f"{counted(len(missing), 'shard is/shards are')} missing in the numbering: {named}{more}"
        yield finding("WDS057", members[0].summary.shard, message)


def _uneven(members: Sequence[ShardReport], options: SetOptions) -> Iterator[Finding]:
    """Compare the shards' numbers of samples with each other, and their number with that of the readers."""
    first = members[0].summary.shard
    if options.readers is not None and len(members) < options.readers:
        yield finding("WDS059", first, f"{counted(len(members), 'shard')} for {counted(options.readers, 'reader')}")
    # The last shard holds what was left over.
    smallest = min((r for r in members[:-1] if len(r.marks)), key=lambda r: len(r.marks), default=None)
    largest = max(members, key=lambda r: len(r.marks))
    if smallest is not None and 2 * len(largest.marks) > 3 * len(smallest.marks):
        message = (
            f"from {counted(len(smallest.marks), 'sample')} to {len(largest.marks)} in "
            f"{printable(largest.summary.shard)}"
        )
        yield finding("WDS058", smallest.summary.shard, message)
