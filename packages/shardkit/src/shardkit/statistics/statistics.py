"""What a dataset's pictures and labels are like: colours, classes, sizes, duplicates. Exact, and the same for any jobs.

Owns the numbers. Colours come from integer histograms, so that no sum depends on the order of shards or on how many
processes there were. Memory is bounded by the number of pictures, not by their size: some 60 bytes a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import sqrt
from pathlib import Path

import numpy as np

from shardkit.index.shard_index import Int64s
from shardkit.index.table import read_columns
from shardkit.pictures import MAX_PIXELS
from shardkit.processes import map_in_order
from shardkit.seeded import seeded_permutation
from shardkit.statistics.duplicates import equal_rows, equal_rows_of_table, names_of_rows
from shardkit.statistics.spread import Spread, Values
from shardkit.statistics.survey import ShardSurvey, Unusable, survey_shard

__all__ = [
    "Channels",
    "Distribution",
    "Statistics",
    "StatisticsOptions",
    "measure_shards",
    "measure_table",
]

_PERCENTILES = (0, 1, 5, 25, 50, 75, 95, 99, 100)
_LEVELS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsOptions:
    """What to measure.

    ``sample``: decode only so many pictures, drawn by ``seed``; labels and bytes are still those of all samples, and
    duplicates are not looked for. ``num_classes``: labels should be ``range(num_classes)``; None: up to the highest.
    ``allow_commands``: ``pipe:`` locations are run.
    """

    sample: int | None = None
    seed: int = 0
    num_classes: int | None = None
    max_pixels: int = MAX_PIXELS
    jobs: int = 1
    allow_commands: bool = False


@dataclass(frozen=True, slots=True)
class Channels:
    """Mean and standard deviation of red, green and blue over all pixels of full-size pictures, black 0 and white 1."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Distribution:
    """``percentiles``: percent -> the smallest value that at least so many of the values do not exceed."""

    mean: float
    percentiles: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What was measured.

    ``samples``; ``pictures`` among them, ``looked_at`` of which all but labels and bytes are known, ``estimated`` where
    those are a drawn part. ``channels``: None where nothing was decoded. ``labels``: label -> samples; ``unlabelled``
    samples have none. ``missing_classes``: in range, without a sample. ``imbalance``: samples of the largest class for
    one of the smallest that has any. ``widths``, ``heights`` in pixels, ``picture_bytes``: None without a picture.
    ``bits_per_pixel``: of all pictures looked at together. ``duplicates``: groups of (shard, key) whose pictures have
    equal bytes, None where they were not looked for. ``unusable``: pictures that cannot be decoded, left out of the
    colours. ``failed``: shards that cannot be read, left out of everything, each with the reason. ``warnings``: of
    shards that may be cut.
    """

    samples: int
    pictures: int
    looked_at: int
    estimated: bool
    channels: Channels | None
    labels: dict[int, int]
    unlabelled: int
    missing_classes: tuple[int, ...]
    imbalance: float | None
    widths: Distribution | None
    heights: Distribution | None
    picture_bytes: Distribution | None
    bits_per_pixel: float | None
    duplicates: tuple[tuple[tuple[str, str], ...], ...] | None
    unusable: tuple[Unusable, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def measure_shards(
    locations: Sequence[str], options: StatisticsOptions, *, on_shard: Callable[[str], None]
) -> Statistics:
    """Read the shards (anything ``open_source`` takes) and return their statistics.

    Args: on_shard: called with each shard whose pictures are done, in order.
    Raises: WorkerDiedError.
    """
    if options.sample is None:
        surveys = _survey(locations, None, options=options, on_shard=on_shard)
        return _combine(locations, surveys, listed=surveys, options=options)
    nothing = [frozenset[int]()] * len(locations)
    listed = _survey(locations, nothing, options=options, on_shard=lambda _: None)
    chosen = _draw([survey.picture_offsets for survey in listed], options)
    read = [number for number, offsets in enumerate(chosen) if offsets]
    some = _survey([locations[n] for n in read], [chosen[n] for n in read], options=options, on_shard=on_shard)
    looked = dict(zip(read, some, strict=True))
    return _combine(
        locations, [looked.get(n, ShardSurvey()) for n in range(len(locations))], listed=listed, options=options
    )


def measure_table(path: Path, *, num_classes: int | None = None) -> Statistics:
    """Return the statistics of a table of samples: all but the colours, without reading a shard.

    Raises: TableError, OSError.
    """
    labels, sizes, looks = Spread(), Spread(), _Looks()
    samples = 0
    for piece in read_columns(path, ("label", "picture_size", "width", "height")):
        samples += len(piece["label"])
        labels.add(piece["label"])
        sizes.add(piece["picture_size"][piece["picture_size"] >= 0])
        known = piece["width"] > 0
        looks.add(piece["width"][known], piece["height"][known], num_bytes=piece["picture_size"][known])
    groups = equal_rows_of_table(path)
    names = names_of_rows(path, {row for group in groups for row in group})
    return _statistics(
        samples=samples,
        sizes=sizes,
        looks=looks,
        labels=labels.as_dict(),
        num_classes=num_classes,
        duplicates=tuple(tuple(names[row] for row in group) for group in groups),
    )


class _Looks:
    """Widths and heights of pictures, and their pixels and bytes in all."""

    def __init__(self) -> None:
        self.widths, self.heights = Spread(), Spread()
        self.pixels = self.num_bytes = 0

    def add(self, widths: Values, heights: Values, *, num_bytes: Values) -> None:
        self.widths.add(widths)
        self.heights.add(heights)
        self.pixels += int((widths.astype(np.int64) * heights.astype(np.int64)).sum())
        self.num_bytes += int(num_bytes.sum())


def _survey(
    locations: Sequence[str],
    chosen: Sequence[frozenset[int]] | None,
    *,
    options: StatisticsOptions,
    on_shard: Callable[[str], None],
) -> list[ShardSurvey]:
    tasks = [
        (location, None if chosen is None else chosen[number], options.max_pixels, options.allow_commands)
        for number, location in enumerate(locations)
    ]
    # Another process has no standard input of ours.
    jobs = 1 if "-" in locations else options.jobs
    surveys = []
    for location, survey in zip(locations, map_in_order(survey_shard, tasks, jobs=jobs), strict=True):
        surveys.append(survey)
        on_shard(location)
    return surveys


def _draw(offsets: Sequence[Int64s], options: StatisticsOptions) -> list[frozenset[int]]:
    """Draw pictures from all of them, by the byte offsets of their headers in each shard."""
    ends = np.cumsum([len(of_shard) for of_shard in offsets])
    total = int(ends[-1]) if len(ends) else 0
    drawn = np.sort(seeded_permutation(total, key=(options.seed, "statistics sample"))[: options.sample])
    owners = np.searchsorted(ends, drawn, side="right")
    return [
        frozenset(of_shard[drawn[owners == number] - (int(ends[number]) - len(of_shard))].tolist())
        for number, of_shard in enumerate(offsets)
    ]


def _combine(
    locations: Sequence[str],
    surveys: Sequence[ShardSurvey],
    *,
    listed: Sequence[ShardSurvey],
    options: StatisticsOptions,
) -> Statistics:
    """Put the shards together. ``listed``: surveys that hold labels and bytes of all samples."""
    estimated = options.sample is not None
    labels: dict[int, int] = {}
    for survey in listed:
        for label, count in survey.labels.items():
            labels[label] = labels.get(label, 0) + count
    groups = [] if estimated else equal_rows(np.concatenate([survey.hashes for survey in surveys]))
    keys = _Keys(locations, surveys)
    both = list(zip(locations, surveys, listed, strict=True))
    sizes, looks = Spread(), _Looks()
    for _, survey, whole in both:
        sizes.add(whole.picture_bytes)
        looks.add(survey.widths, survey.heights, num_bytes=survey.looked_bytes)
    found = _statistics(
        samples=sum(survey.samples for survey in listed),
        sizes=sizes,
        looks=looks,
        labels=labels,
        num_classes=options.num_classes,
        duplicates=None if estimated else tuple(tuple(keys[row] for row in group) for group in groups),
    )
    return replace(
        found,
        estimated=estimated,
        channels=_channels(sum((survey.histogram for survey in surveys), np.zeros((3, _LEVELS), np.int64))),
        unusable=tuple(picture for survey in surveys for picture in survey.unusable),
        failed={location: s.error or t.error for location, s, t in both if s.error or t.error},
        warnings=tuple(warning for survey in listed for warning in survey.warnings),
    )


def _statistics(
    *,
    samples: int,
    sizes: Spread,
    looks: _Looks,
    labels: dict[int, int],
    num_classes: int | None,
    duplicates: tuple[tuple[tuple[str, str], ...], ...] | None,
) -> Statistics:
    """Work out what follows from labels, sizes and looks."""
    counted = dict(sorted((label, count) for label, count in labels.items() if label >= 0))
    expected = range(num_classes if num_classes is not None else max(counted, default=-1) + 1)
    return Statistics(
        samples=samples,
        pictures=sizes.count,
        looked_at=looks.widths.count,
        estimated=False,
        channels=None,
        labels=counted,
        unlabelled=sum(count for label, count in labels.items() if label < 0),
        missing_classes=_missing(counted, expected),
        imbalance=max(counted.values()) / min(counted.values()) if counted else None,
        widths=_distribution(looks.widths),
        heights=_distribution(looks.heights),
        picture_bytes=_distribution(sizes),
        bits_per_pixel=8 * looks.num_bytes / looks.pixels if looks.pixels else None,
        duplicates=duplicates,
    )


def _missing(counted: dict[int, int], expected: range) -> tuple[int, ...]:
    """Return the classes without a sample; none where a label is so high that it can be no class's number."""
    most = 1_000_000
    return tuple(label for label in expected if label not in counted) if len(expected) <= most else ()


def _channels(histogram: Int64s) -> Channels | None:
    """Return mean and standard deviation, from whole numbers to the last step."""
    total = int(histogram[0].sum())
    if not total:
        return None
    means, deviations = [], []
    for counts in histogram.tolist():
        mean = Fraction(sum(level * count for level, count in enumerate(counts)), total)
        square = Fraction(sum(level * level * count for level, count in enumerate(counts)), total)
        means.append(float(mean / 255))
        deviations.append(sqrt((square - mean * mean) / 255**2))
    return Channels((means[0], means[1], means[2]), (deviations[0], deviations[1], deviations[2]))


def _distribution(values: Spread) -> Distribution | None:
    return Distribution(values.mean, values.percentiles(_PERCENTILES)) if values.count else None


class _Keys:
    """(shard, key) of each picture, numbered over all shards; keys are unpacked for the shards that are asked for."""

    def __init__(self, locations: Sequence[str], surveys: Sequence[ShardSurvey]) -> None:
        self._locations, self._surveys = locations, surveys
        self._ends = np.cumsum([len(survey.hashes) for survey in surveys])
        self._unpacked: dict[int, list[str]] = {}

    def __getitem__(self, row: int) -> tuple[str, str]:
        number = int(np.searchsorted(self._ends, row, side="right"))
        if number not in self._unpacked:
            self._unpacked[number] = self._surveys[number].keys
        first = int(self._ends[number]) - len(self._surveys[number].hashes)
        return self._locations[number], self._unpacked[number][row - first]
