"""Samples to pack from the fake ImageNet generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardkit.fake_imagenet import FakeImageNet
from shardkit.keys import LABEL_EXTENSION
from shardkit.sources.source import SourceSample, listing_digest

__all__ = ["FakeSource"]


@dataclass(frozen=True, slots=True)
class FakeSource:
    """The samples of a fake ImageNet, in the order it numbers them, which is mixed already."""

    pictures: FakeImageNet

    @property
    def classes(self) -> tuple[str, ...]:
        """``fake0000``, ``fake0001`` and so on."""
        return tuple(f"fake{number:04d}" for number in range(self.pictures.num_classes))

    @property
    def num_classes(self) -> int:
        """As many as there are names."""
        return len(self.classes)

    @property
    def class_order(self) -> str:
        """By number, which the names hold."""
        return "by number"

    @property
    def shuffled(self) -> bool:
        """Always: each run of ``num_classes`` samples holds every class once, in seeded order."""
        return True

    @property
    def split(self) -> str:
        """The split of the generator."""
        return self.pictures.split

    @property
    def seed(self) -> int:
        """The seed of the generator."""
        return self.pictures.seed

    @property
    def options(self) -> Mapping[str, object]:
        """The generator's settings."""
        made = self.pictures
        return {
            "source": "fake-imagenet",
            "size": list(made.size),
            "sizes": made.sizes,
            "quality": made.quality,
            "labels": made.labels,
        }

    @property
    def recipe(self) -> Mapping[str, object]:
        """All arguments of the generator."""
        made = self.pictures
        return {
            "kind": "fake-imagenet",
            "num_samples": made.num_samples,
            "num_classes": made.num_classes,
            "split": made.split,
            "seed": made.seed,
            "size": list(made.size),
            "sizes": made.sizes,
            "quality": made.quality,
            "labels": made.labels,
        }

    @property
    def fingerprint(self) -> str:
        """Over the arguments: they decide every sample."""
        return listing_digest([self.recipe])

    def __len__(self) -> int:
        return self.pictures.num_samples

    def content_sizes(self, number: int) -> None:  # noqa: ARG002  # none is known before it is encoded
        """Return None: a picture has no size before it is encoded."""
        return

    def member_names(self, number: int) -> tuple[str, ...]:
        """Return the names of the picture and its label."""
        return f"{number:08d}.jpg", f"{number:08d}.{LABEL_EXTENSION}"

    def sample(self, number: int) -> SourceSample:
        """Draw and encode one picture."""
        picture, label = self.pictures.sample(number)
        return SourceSample(f"{number:08d}", (("jpg", picture), (LABEL_EXTENSION, str(label).encode())))
