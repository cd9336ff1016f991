"""What one shard holds, counted: the numbers that ``wds inspect`` shows. Pure: works on a scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from shardkit.errors import printable
from shardkit.keys import PICTURE_EXTENSIONS
from shardkit.pictures import PictureFacts
from shardkit.scan import ShardScan

__all__ = ["FIRST_KEYS", "Extent", "ShardSummary", "summarize"]

FIRST_KEYS = 5


@dataclass(frozen=True, slots=True)
class Extent:
    """Smallest, mean and largest of some numbers."""

    smallest: int
    mean: float
    largest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSummary:
    """Counts of one shard.

    ``whole``: samples a loader can use. ``num_bytes``: of the file as stored, None for a pipe. ``labels``:
    label -> number of samples. ``widths``, ``heights`` in pixels, ``picture_bytes`` in bytes: None without a picture.
    """

    shard: str
    compressed: bool
    samples: int
    whole: int
    num_bytes: int | None
    extensions: dict[str, int]
    formats: dict[str, int]
    modes: dict[str, int]
    labels: dict[int, int]
    widths: Extent | None
    heights: Extent | None
    picture_bytes: Extent | None
    first_keys: tuple[str, ...]


def summarize(scan: ShardScan) -> ShardSummary:
    """Count what the shard holds."""
    samples = list(scan.samples.values())
    pictures = [sample.picture for sample in samples if isinstance(sample.picture, PictureFacts)]
    extensions = Counter(printable(part.extension) for sample in samples for part in sample.parts)
    labels = Counter(sample.label for sample in samples if sample.label is not None)
    return ShardSummary(
        shard=scan.shard,
        compressed=scan.compressed,
        samples=len(samples),
        whole=sum(sample.is_whole for sample in samples),
        num_bytes=scan.num_bytes,
        extensions=dict(sorted(extensions.items())),
        formats=dict(Counter(facts.format for facts in pictures).most_common()),
        modes=dict(Counter(facts.mode for facts in pictures).most_common()),
        labels=dict(sorted(labels.items())),
        widths=_extent(facts.width for facts in pictures),
        heights=_extent(facts.height for facts in pictures),
        picture_bytes=_extent(
            part.size for sample in samples for part in sample.parts if part.extension in PICTURE_EXTENSIONS
        ),
        first_keys=tuple(sample.key for sample in samples[:FIRST_KEYS]),
    )


def _extent(values: Iterable[int]) -> Extent | None:
    numbers = list(values)
    return Extent(min(numbers), sum(numbers) / len(numbers), max(numbers)) if numbers else None
