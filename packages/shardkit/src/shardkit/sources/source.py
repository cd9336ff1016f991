"""What a source of samples to pack is: numbered samples, each of which it makes alone, in any process.

Owns the protocol and what every source must say of itself; reads nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Source", "SourceSample", "listing_digest"]


@dataclass(frozen=True, slots=True)
class SourceSample:
    """One sample to pack: its key, its (extension, content) pairs in order, and the file it came from."""

    key: str
    members: tuple[tuple[str, bytes], ...]
    origin: str = ""


class Source(Protocol):
    """Samples to pack, numbered from 0. Picklable: every process makes its own samples."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their numbers; empty where nobody knows them."""

    @property
    def num_classes(self) -> int | None:
        """How many there are, with names or without; None where nobody knows."""

    @property
    def class_order(self) -> str:
        """How that order was made, in words."""

    @property
    def shuffled(self) -> bool:
        """Whether the samples come in shuffled order."""

    @property
    def split(self) -> str:
        """``train`` or ``val``."""

    @property
    def seed(self) -> int:
        """The seed of order and content."""

    @property
    def options(self) -> Mapping[str, object]:
        """What made the source, for the manifest; nothing in it that differs between machines."""

    @property
    def recipe(self) -> Mapping[str, object]:
        """JSON values from which the same source is opened again, ``kind`` among them; it may hold local paths."""

    @property
    def fingerprint(self) -> str:
        """Hex digits that change when the samples, their order, labels or sizes do: see :func:`listing_digest`."""

    def __len__(self) -> int: ...

    def content_sizes(self, number: int) -> tuple[int, ...] | None:
        """Return the size in bytes of each member of a sample; None where nobody knows before it is made.

        () for a sample whose source is known to be unusable.
        """

    def member_names(self, number: int) -> tuple[str, ...]:
        """Return the names (key, dot, extension) of a sample's members, as many as it has ``content_sizes``."""

    def sample(self, number: int) -> SourceSample:
        """Make one sample. Raises: SourceError: its source cannot be used."""


def listing_digest(rows: Iterable[object]) -> str:
    """Return 32 hex digits over JSON values, one a sample: equal for equal listings."""
    state = hashlib.blake2b(digest_size=16)
    for row in rows:
        state.update(json.dumps(row, separators=(",", ":")).encode() + b"\n")
    return state.hexdigest()
