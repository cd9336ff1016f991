"""What shards hold, counted: the numbers that ``wds inspect`` shows, of one shard or of many. Pure: works on scans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from shardkit.check.scan import SampleScan, ShardScan
from shardkit.errors import PictureError, counted, printable
from shardkit.keys import PICTURE_EXTENSIONS, picture_extension
from shardkit.pictures import PictureFacts

__all__ = ["Extent", "ShardSummary", "combined", "summarize"]

_FIRST_KEYS = 5
_PICTURES = frozenset(PICTURE_EXTENSIONS)
_Item = TypeVar("_Item", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Extent:
    """Smallest, mean and largest of ``count`` numbers."""

    smallest: int
    mean: float
    largest: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSummary:
    """Counts of one shard, or of several together.

    ``whole``: samples a loader can use. ``num_bytes``: of the file as stored, None for a pipe. ``labels``:
    label -> number of samples. ``widths``, ``heights`` in pixels, ``picture_bytes`` in bytes: None without a picture.
    ``pixel_bins``, ``byte_bins``: number of pictures of at least so many pixels or bytes, a power of two, and fewer
    than twice as many. ``broken``: pictures that do not decode.
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
    broken: int = 0
    pixel_bins: dict[int, int] = field(default_factory=dict)
    byte_bins: dict[int, int] = field(default_factory=dict)


def summarize(scan: ShardScan) -> ShardSummary:
    """Count what the shard holds."""
    samples = list(scan.samples.values())
    looked_at = [sample.picture for sample in samples if sample.picture is not None]
    pictures = [picture for picture in looked_at if isinstance(picture, PictureFacts)]
    labels = Counter([sample.label for sample in samples if sample.label is not None])
    picture_bytes = [part.size for sample in samples for part in sample.parts if part.extension in _PICTURES]
    return ShardSummary(
        shard=scan.shard,
        compressed=scan.compressed,
        samples=len(samples),
        whole=_num_whole(scan, samples),
        num_bytes=scan.num_bytes,
        extensions=_extensions(scan),
        formats=_by_count(Counter([facts.format for facts in pictures])),
        modes=_by_count(Counter([facts.mode for facts in pictures])),
        labels=dict(sorted(labels.items())),
        widths=_extent([facts.width for facts in pictures]),
        heights=_extent([facts.height for facts in pictures]),
        picture_bytes=_extent(picture_bytes),
        first_keys=tuple(sample.key for sample in samples[:_FIRST_KEYS]),
        broken=len(looked_at) - len(pictures),
        pixel_bins=_bins([facts.width * facts.height for facts in pictures]),
        byte_bins=_bins(picture_bytes),
    )


def _extensions(scan: ShardScan) -> dict[str, int]:
    """Count the parts by extension: from the shapes, of which there are few, and which count every part once."""
    counts: Counter[str] = Counter()
    for shape, count in scan.shapes.items():
        for extension in shape:
            counts[printable(extension)] += count
    return dict(sorted(counts.items()))


def _num_whole(scan: ShardScan, samples: Sequence[SampleScan]) -> int:
    """Count the samples that a loader can use."""
    if scan.num_apart or not all(len({*shape}) == len(shape) and picture_extension(shape) for shape in scan.shapes):
        return sum(sample.is_whole for sample in samples)
    # All stand in one place, with a picture and no doubles.
    return sum(sample.label is not None and not isinstance(sample.picture, PictureError) for sample in samples)


def combined(summaries: Sequence[ShardSummary]) -> ShardSummary:
    """Return the counts of all shards together; ``num_bytes`` of those whose length is known."""
    lengths = [summary.num_bytes for summary in summaries if summary.num_bytes is not None]
    keys = (key for summary in summaries for key in summary.first_keys)
    return ShardSummary(
        shard=counted(len(summaries), "shard"),
        compressed=any(summary.compressed for summary in summaries),
        samples=sum(summary.samples for summary in summaries),
        whole=sum(summary.whole for summary in summaries),
        num_bytes=sum(lengths) if lengths else None,
        extensions=dict(sorted(_added(summary.extensions for summary in summaries).items())),
        formats=_by_count(_added(summary.formats for summary in summaries)),
        modes=_by_count(_added(summary.modes for summary in summaries)),
        labels=dict(sorted(_added(summary.labels for summary in summaries).items())),
        widths=_joined(summary.widths for summary in summaries),
        heights=_joined(summary.heights for summary in summaries),
        picture_bytes=_joined(summary.picture_bytes for summary in summaries),
        first_keys=tuple(key for key, _ in zip(keys, range(_FIRST_KEYS), strict=False)),
        broken=sum(summary.broken for summary in summaries),
        pixel_bins=dict(sorted(_added(summary.pixel_bins for summary in summaries).items())),
        byte_bins=dict(sorted(_added(summary.byte_bins for summary in summaries).items())),
    )


def _extent(numbers: Sequence[int]) -> Extent | None:
    return Extent(min(numbers), sum(numbers) / len(numbers), max(numbers), len(numbers)) if numbers else None


def _joined(extents: Iterable[Extent | None]) -> Extent | None:
    known = [extent for extent in extents if extent is not None]
    if not known:
        return None
    count = sum(extent.count for extent in known)
    return Extent(
        min(extent.smallest for extent in known),
        sum(extent.mean * extent.count for extent in known) / count,
        max(extent.largest for extent in known),
        count,
    )


def _bins(numbers: Sequence[int]) -> dict[int, int]:
    """Count numbers by the largest power of two that is not above them; 0 has a bin of its own."""
    counts = Counter(map(int.bit_length, numbers))
    return {1 << (bits - 1) if bits else 0: count for bits, count in sorted(counts.items())}


def _added(counts: Iterable[Mapping[_Item, int]]) -> Counter[_Item]:
    added: Counter[_Item] = Counter()
    for mapping in counts:
        added.update(mapping)
    return added


def _by_count(counts: Counter[str]) -> dict[str, int]:
    """Return the counts, most first and equal ones by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
