"""Several datasets as one, by weight: which dataset a position draws from, and which of its samples.

Each dataset keeps its own epochs, laid end to end without a gap: stream place Q is position Q mod N of its epoch Q div
N, and exactly-once holds within each of them. A block of B positions draws a fixed number from every dataset (the
weights rounded by largest remainder), in an order keyed by ``(seed, "mix", block, lane)``.

Lane l of the mixture draws the places = l (mod L) of every dataset's stream, in order; so whoever owns a lane reads its
shards forward, as in one dataset alone, and ranks and workers appear nowhere. For that every lane must draw equally
often from each dataset: what is left over when a block's number is divided by L moves on by one lane each block, and is
even again after L blocks. All of it is arithmetic on (block, lane): any place is found without what came before it.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardkit import seeded_permutation
from wdsloader.dataset import Dataset, LabelRange
from wdsloader.errors import ConfigError, DatasetError
from wdsloader.order import Int64s
from wdsloader.shards import ShardTable

__all__ = ["MixSchedule", "MixedDataset", "largest_remainder", "mix"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedDataset:
    """Datasets that are drawn from by weight; takes the place of a :class:`Dataset` in a loader.

    ``weights`` add up to 1. ``epoch_samples``: the length of an epoch of the mixture, cut to whole batches by
    the loader. ``table``: the shards of all parts, one after the other.
    """

    parts: tuple[Dataset, ...]
    weights: tuple[float, ...]
    epoch_samples: int
    table: ShardTable

    @property
    def urls(self) -> tuple[str, ...]:
        """The shards of all parts."""
        return tuple(url for part in self.parts for url in part.urls)

    @property
    def counts(self) -> tuple[int, ...]:
        """The samples of each shard of all parts."""
        return tuple(count for part in self.parts for count in part.counts or ())

    @property
    def part_samples(self) -> tuple[int, ...]:
        """The samples of each part."""
        return tuple(part.num_samples or 0 for part in self.parts)

    @property
    def num_samples(self) -> int:
        """The samples of an epoch of the mixture."""
        return self.epoch_samples

    @property
    def digest(self) -> str:
        """The identity of the mixture: of its parts, their weights and its length."""
        text = repr(([part.digest for part in self.parts], self.weights, self.epoch_samples))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The class names that all parts have, None where one has none."""
        return self.parts[0].classes if all(part.classes for part in self.parts) else None

    @property
    def num_classes(self) -> int | None:
        """The number of classes that holds the labels of all parts, None where one does not know."""
        known = [part.num_classes for part in self.parts if part.num_classes is not None]
        return max(known) if len(known) == len(self.parts) else None

    @property
    def packed_shuffled(self) -> bool:
        """Whether all parts were packed in shuffled order."""
        return all(part.packed_shuffled for part in self.parts)

    @property
    def remote(self) -> bool:
        """Whether any shard has to be fetched."""
        return any(part.remote for part in self.parts)

    @property
    def lost_shards(self) -> tuple[str, ...]:
        """Shards of unknown length that are not there."""
        return tuple(shard for part in self.parts for shard in part.lost_shards)

    def label_range(self) -> LabelRange | None:
        """Return the smallest and the largest label over all parts, None where one does not know."""
        ranges = [part.label_range() for part in self.parts]
        known = [found for found in ranges if found is not None]
        if len(known) < len(ranges):
            return None
        low, high = min(known, key=lambda found: found.lowest), max(known, key=lambda found: found.highest)
        return LabelRange(lowest=low.lowest, lowest_at=low.lowest_at, highest=high.highest, highest_at=high.highest_at)

    def close(self) -> None:
        """Close every part."""
        for part in self.parts:
            part.close()


def mix(parts: Sequence[tuple[Dataset, float]], *, epoch_samples: int | None = None) -> MixedDataset:
    """Return the mixture of datasets, each with its weight (any positive numbers).

    Args: epoch_samples: the length of an epoch of the mixture; None: as many as all parts have together.
    Raises: ConfigError: fewer than two parts, a weight that is not above 0. DatasetError: unknown sample counts, or
        class lists that differ.
    """
    if len(parts) < 2:
        raise ConfigError(f"a mixture of {len(parts)} datasets: name at least two")
    for dataset, weight in parts:
        if not (weight > 0 and math.isfinite(weight)):
            raise ConfigError(f"{dataset.urls[0]}: weight {weight} must be a number above 0")
        if dataset.counts is None:
            raise DatasetError(f"{dataset.urls[0]}: a mixture needs sample counts, and no manifest has them")
    lists = [dataset.classes for dataset, _ in parts if dataset.classes]
    if any(classes != lists[0] for classes in lists):
        raise DatasetError("the parts of the mixture have different class lists: one label would mean two classes")
    if epoch_samples is not None and epoch_samples < 1:
        raise ConfigError(f"epoch_samples={epoch_samples}: must be an integer of at least 1")
    datasets, total = tuple(dataset for dataset, _ in parts), sum(weight for _, weight in parts)
    fetchers = [dataset.table.fetcher for dataset in datasets if dataset.table.fetcher is not None]
    entries = tuple(entry for dataset in datasets for entry in dataset.table.entries)
    return MixedDataset(
        parts=datasets,
        weights=tuple(weight / total for _, weight in parts),
        epoch_samples=epoch_samples or sum(dataset.num_samples or 0 for dataset in datasets),
        table=ShardTable(entries, fetchers[0] if fetchers else None),
    )


def largest_remainder(total: int, *, weights: Sequence[float]) -> tuple[int, ...]:
    """Return whole numbers in the proportion of the weights, which add up to ``total``.

    What is left after rounding down goes to the largest remainders, of equal ones to the first.
    """
    exact = [total * weight / sum(weights) for weight in weights]
    shares = [math.floor(share) for share in exact]
    order = sorted(range(len(exact)), key=lambda part: (shares[part] - exact[part], part))
    for part in order[: total - sum(shares)]:
        shares[part] += 1
    return tuple(shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixSchedule:
    """Which part each place of the mixture draws from. Blocks are counted over the whole run, not anew each epoch.

    ``part_shards``: the number of shards of each part, in the order of the table. ``part_samples``: of its samples.
    ``shares``: how many of a block's positions draw from each part; they add up to B, which L divides.
    """

    part_shards: tuple[int, ...]
    part_samples: tuple[int, ...]
    shares: tuple[int, ...]
    lanes: int
    seed: int

    @classmethod
    def of(cls, dataset: MixedDataset, *, batch_size: int, lanes: int, seed: int) -> MixSchedule:
        """Return the schedule of a mixture for a global batch.

        Raises: ConfigError: the batch is so small that a part would never be drawn from.
        """
        shares = largest_remainder(batch_size, weights=dataset.weights)
        if 0 in shares:
            part = shares.index(0)
            raise ConfigError(
                f"{dataset.parts[part].urls[0]}: weight {dataset.weights[part]:g} of a batch of {batch_size} is less "
                f"than one sample. Use a global batch of at least {math.ceil(1 / min(dataset.weights))}, or a larger "
                "weight"
            )
        return cls(
            part_shards=tuple(len(part.urls) for part in dataset.parts),
            part_samples=dataset.part_samples,
            shares=shares,
            lanes=lanes,
            seed=seed,
        )

    @property
    def rounds(self) -> int:
        """The places of one lane in a block: B / L."""
        return sum(self.shares) // self.lanes

    def labels(self, block: int, lane: int) -> Int64s:
        """Return the part that each place of a lane draws from in a block: int64 (B / L,)."""
        base = np.repeat(np.arange(len(self.shares)), self._base())
        labels = np.concatenate((base, self._extras()[self._extra_cells(block, lane)]))
        return labels[seeded_permutation(len(labels), key=(self.seed, "mix", block, lane))]

    def drawn_before(self, block: int, lane: int) -> Int64s:
        """Return how often a lane draws from each part before a block: int64 (parts,)."""
        turns, rest = divmod(block, self.lanes)
        extras = self._extras()
        drawn = block * self._base() + turns * np.bincount(extras, minlength=len(self.shares))
        for passed in range(turns * self.lanes, turns * self.lanes + rest):
            drawn += np.bincount(extras[self._extra_cells(passed, lane)], minlength=len(self.shares))
        return drawn

    def _base(self) -> Int64s:
        return np.asarray(self.shares, np.int64) // self.lanes

    def _extras(self) -> Int64s:
        """Return the parts of what the lanes cannot share evenly, laid end to end: a multiple of L long."""
        return np.repeat(np.arange(len(self.shares)), np.asarray(self.shares) % self.lanes)

    def _extra_cells(self, block: int, lane: int) -> slice:
        """Return which of the extras a lane gets in a block: over L blocks, each of them once."""
        return slice((lane + block) % self.lanes, None, self.lanes)
