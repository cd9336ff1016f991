"""Samples to pack from the original ImageNet archives of ILSVRC2012, read where they lie and never unpacked.

The train archive is a tar of one tar a class (``n########.tar``); the val archive is a flat tar of pictures, whose
classes are in a file of the development kit. Classes are numbered by their WordNet id, as torchvision has them, which
is not the order of the ids 1 to 1000 that the development kit uses.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from shardkit.errors import PackError, PictureError, ShardReadError, SourceError, printable
from shardkit.keys import LABEL_EXTENSION
from shardkit.pictures import open_picture
from shardkit.seeded import seeded_permutation
from shardkit.sources.columns import Int64s, TextColumn, TextColumnBuilder
from shardkit.sources.folder import file_key
from shardkit.sources.ilsvrc_labels import read_ground_truth
from shardkit.sources.source import SourceSample, listing_digest
from shardkit.tar.byte_source import FileSource
from shardkit.tar.walk import Member, ShardWalk

__all__ = ["IlsvrcSource", "open_ilsvrc_train", "open_ilsvrc_val"]

_CLASS_TAR = re.compile(r"(?:\./)?(n[0-9]{8})\.tar")
_PICTURE = re.compile(r".*\.jpe?g", re.IGNORECASE)
_VAL_NUMBER = re.compile(r".*?([0-9]+)\.jpe?g", re.IGNORECASE)
# So many damaged class tars are told of at once.
_NAMED = 20


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class IlsvrcSource:
    """The pictures of an original archive. Make one with :func:`open_ilsvrc_train` or :func:`open_ilsvrc_val`.

    In the order of the archive: ``names``, ``labels``, ``offsets`` and ``sizes`` in bytes. ``order``: in packing order.
    ``ignored``: the other members, each behind its tar. ``tables``: the files that the labels of ``val`` come from.
    """

    archive: Path
    names: TextColumn
    labels: Int64s
    offsets: Int64s
    sizes: Int64s
    order: Int64s
    classes: tuple[str, ...]
    shuffled: bool
    split: str
    seed: int
    ignored: tuple[str, ...]
    tables: tuple[Path | None, Path | None] = (None, None)

    @property
    def num_classes(self) -> int:
        """As many as there are names."""
        return len(self.classes)

    @property
    def class_order(self) -> str:
        """By WordNet id."""
        return "by WordNet id, as text"

    @property
    def options(self) -> Mapping[str, object]:
        """Which archive it is."""
        return {"source": f"ilsvrc-{self.split}"}

    @property
    def recipe(self) -> Mapping[str, object]:
        """The arguments of the function that opened it."""
        ground_truth, synsets = self.tables
        return {
            "kind": f"ilsvrc-{self.split}",
            "archive": str(self.archive.absolute()),
            "ground_truth": None if ground_truth is None else str(ground_truth.absolute()),
            "synsets": None if synsets is None else str(synsets.absolute()),
            "seed": self.seed,
            "shuffle": self.shuffled,
        }

    @property
    def fingerprint(self) -> str:
        """Over name, label, place and size of every picture, in order."""
        return listing_digest(
            (self.names[row], int(self.labels[row]), int(self.offsets[row]), int(self.sizes[row]))
            for row in self.order.tolist()
        )

    def __len__(self) -> int:
        return len(self.order)

    def content_sizes(self, number: int) -> tuple[int, ...]:
        """Return the size of the picture and of its label."""
        row = int(self.order[number])
        return int(self.sizes[row]), len(str(int(self.labels[row])))

    def member_names(self, number: int) -> tuple[str, ...]:
        """Return the names that the picture and its label get."""
        key, extension = file_key(number, self.names[int(self.order[number])])
        return f"{key}.{extension}", f"{key}.{LABEL_EXTENSION}"

    def sample(self, number: int) -> SourceSample:
        """Read one picture at its place in the archive. Raises: SourceError: the archive is gone, or it is none."""
        row = int(self.order[number])
        name, size = self.names[row], int(self.sizes[row])
        try:
            with open(self.archive, "rb") as file:
                file.seek(int(self.offsets[row]))
                picture = file.read(size)
            if len(picture) < size:
                raise SourceError(name, f"{self.archive.name} has become shorter")
            open_picture(picture)
        except OSError as error:
            raise SourceError(name, f"{self.archive}: {error.strerror or error}") from error
        except PictureError as error:
            raise SourceError(name, error.reason) from error
        key, extension = file_key(number, name)
        label = str(int(self.labels[row])).encode()
        return SourceSample(key, ((extension, picture), (LABEL_EXTENSION, label)), origin=name)


def open_ilsvrc_train(archive: Path, *, seed: int = 0, shuffle: bool = True) -> IlsvrcSource:
    """List the train archive, ``ILSVRC2012_img_train.tar``: all headers are read, and no picture.

    Raises: PackError: another archive, or a damaged or cut one, all of its damaged class tars by name. OSError.
    """
    class_tars = _class_tars(archive)
    classes = tuple(sorted(class_tars))
    listing = _Listing()
    damaged: list[str] = []
    with open(archive, "rb") as file:
        for wnid in sorted(class_tars, key=lambda wnid: class_tars[wnid].offset):
            member = class_tars[wnid]
            source = FileSource(file, num_bytes=member.offset + member.size)
            source.skip(member.offset)
            try:
                listing.add_tar(source, shard=f"{wnid}.tar", label=classes.index(wnid))
            except ShardReadError as error:
                damaged.append(str(error))
    if damaged:
        more = f"; and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
        raise PackError(
            f"{archive}: {len(damaged)} damaged class tars: {'; '.join(damaged[:_NAMED])}{more}. Fetch it again"
        )
    return listing.source(archive, classes, split="train", order=(seed, shuffle))


def open_ilsvrc_val(
    archive: Path, *, ground_truth: Path, synsets: Path | None = None, seed: int = 0, shuffle: bool = True
) -> IlsvrcSource:
    """List the val archive, ``ILSVRC2012_img_val.tar``, with the classes from a file of the development kit.

    Args: ground_truth: a line a picture, in the order of their numbers: an id from 1 on as in
        ``ILSVRC2012_validation_ground_truth.txt``, or a WordNet id; or lines of file name and WordNet id. synsets:
        lines of id and WordNet id, which ids need: the kit's ``meta.mat`` as text.
    Raises: PackError: another archive, a damaged or cut one, or files that do not fit it. OSError.
    """
    listing = _Listing()
    try:
        with open(archive, "rb") as file:
            listing.add_tar(_whole(file), shard=str(archive), label=-1)
    except ShardReadError as error:
        raise PackError(str(error)) from error
    names = listing.names()
    if any(_VAL_NUMBER.fullmatch(name) is None for name in names):
        raise PackError(f"{archive}: not the val archive: pictures without a number. Is it the train archive?")
    numbers = [int(found[1]) for name in names if (found := _VAL_NUMBER.fullmatch(name))]
    wnids, classes = read_ground_truth(ground_truth, synsets, names=dict(zip(names, numbers, strict=True)))
    place = {wnid: label for label, wnid in enumerate(classes)}
    labels = np.array([place[wnid] for wnid in wnids], np.int64)
    return listing.source(
        archive, classes, split="val", order=(seed, shuffle), labels=labels, tables=(ground_truth, synsets)
    )


class _Listing:
    """The pictures found so far."""

    def __init__(self) -> None:
        self._names = TextColumnBuilder()
        self._labels, self._offsets, self._sizes = array("q"), array("q"), array("q")
        self._ignored: list[str] = []

    def add_tar(self, source: FileSource, *, shard: str, label: int) -> None:
        """Take in the pictures of one tar. Raises: ShardReadError: it is damaged, cut, or holds none."""
        walk = ShardWalk(source, shard=shard, want=_nothing)
        found = 0
        for member, _ in walk:
            if member.kind != "file" or _PICTURE.fullmatch(member.name) is None:
                if member.kind != "folder":
                    self._ignored.append(f"{shard}: {member.name}")
                continue
            found += 1
            self._names.append(member.name.removeprefix("./"))
            self._labels.append(label)
            self._offsets.append(member.offset)
            self._sizes.append(member.size)
        _require_end(walk, shard=shard)
        if not found:
            raise ShardReadError(shard, "no picture in it", rule="WDS008")

    def names(self) -> list[str]:
        """Return the names so far."""
        column = self._names.column()
        return [column[row] for row in range(len(column))]

    def source(
        self,
        archive: Path,
        classes: tuple[str, ...],
        *,
        split: str,
        order: tuple[int, bool],
        labels: Int64s | None = None,
        tables: tuple[Path | None, Path | None] = (None, None),
    ) -> IlsvrcSource:
        """Return all that was found. Args: order: the seed, and whether to shuffle by it."""
        seed, shuffle = order
        count = len(self._labels)
        return IlsvrcSource(
            archive=archive,
            names=self._names.column(),
            labels=np.array(self._labels, np.int64) if labels is None else labels,
            offsets=np.array(self._offsets, np.int64),
            sizes=np.array(self._sizes, np.int64),
            order=seeded_permutation(count, key=(seed, "pack", split)) if shuffle else np.arange(count),
            classes=classes,
            shuffled=shuffle,
            split=split,
            seed=seed,
            ignored=tuple(self._ignored),
            tables=tables,
        )


def _class_tars(archive: Path) -> dict[str, Member]:
    """Return the class tars of a train archive by WordNet id, as members of it."""
    found: dict[str, Member] = {}
    try:
        with open(archive, "rb") as file:
            walk = ShardWalk(_whole(file), shard=str(archive), want=_nothing)
            for member, _ in walk:
                match = _CLASS_TAR.fullmatch(member.name)
                if match is None or member.kind != "file":
                    raise PackError(
                        f"{archive}: not the train archive: it holds '{printable(member.name)}' where tars called "
                        "n01440764.tar belong. The val archive needs its classes (--ground-truth)"
                    )
                if match[1] in found:
                    raise PackError(f"{archive}: {match[1]}.tar is there twice. Fetch it again")
                found[match[1]] = member
        _require_end(walk, shard=str(archive))
    except ShardReadError as error:
        raise PackError(str(error)) from error
    if not found:
        raise PackError(f"{archive}: an empty archive. Fetch it again")
    return found


def _require_end(walk: ShardWalk, *, shard: str) -> None:
    """Raise ShardReadError for a tar without an end, which may have been cut between two members."""
    if walk.ending is None or not walk.ending.zero_blocks:
        raise ShardReadError(shard, "no end marker: it was cut", rule="WDS005", remedy="Fetch it again")


def _whole(file: BinaryIO) -> FileSource:
    return FileSource(file, num_bytes=os.fstat(file.fileno()).st_size)


def _nothing(_: Member) -> bool:
    """Want no content: headers are enough."""
    return False
