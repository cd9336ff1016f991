"""Where samples to pack come from: the fake ImageNet or an image folder. Each source makes any of its samples alone.

Owns keys, labels and class names of each source; writes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shardkit.errors import PackError, PictureError, SourceError
from shardkit.fake_imagenet import FakeImageNet
from shardkit.keys import PICTURE_EXTENSIONS
from shardkit.pictures import open_picture
from shardkit.seeded import seeded_permutation

__all__ = ["FakeSource", "FolderSource", "Source", "SourceSample", "open_folder"]

# As many characters of a file's name as keep a key within plain ustar.
_MAX_STEM = 64


@dataclass(frozen=True, slots=True)
class SourceSample:
    """One sample to pack: the picture's bytes as they are, their extension, the label, and the file it came from."""

    key: str
    extension: str
    picture: bytes
    label: int
    origin: str = ""


class Source(Protocol):
    """Samples to pack, numbered from 0. Picklable: every process makes its own samples."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their numbers."""

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

    def __len__(self) -> int: ...

    def sample(self, number: int) -> SourceSample:
        """Make one sample. Raises: SourceError: its source cannot be used."""


@dataclass(frozen=True, slots=True)
class FakeSource:
    """The samples of a fake ImageNet, in the order it numbers them, which is mixed already."""

    pictures: FakeImageNet

    @property
    def classes(self) -> tuple[str, ...]:
        """``fake0000``, ``fake0001`` and so on."""
        return tuple(f"fake{number:04d}" for number in range(self.pictures.num_classes))

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

    def __len__(self) -> int:
        return self.pictures.num_samples

    def sample(self, number: int) -> SourceSample:
        """Draw and encode one picture."""
        picture, label = self.pictures.sample(number)
        return SourceSample(f"{number:08d}", "jpg", picture, label)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSource:
    """The pictures of an image folder, with their bytes as they are. Make one with :func:`open_folder`.

    ``files``: (path below the folder, label) in packing order. ``ignored``: how many other files lie there.
    """

    folder: Path
    files: tuple[tuple[str, int], ...]
    classes: tuple[str, ...]
    class_order: str
    shuffled: bool
    split: str
    seed: int
    val_share: float | None
    ignored: int

    @property
    def options(self) -> Mapping[str, object]:
        """How the folder was read; not where it lies."""
        return {"source": "image-folder", "val_share": self.val_share}

    def __len__(self) -> int:
        return len(self.files)

    def sample(self, number: int) -> SourceSample:
        """Read one file and see that it begins as a picture does. Raises: SourceError: it does not."""
        name, label = self.files[number]
        try:
            picture = (self.folder / name).read_bytes()
            open_picture(picture)
        except OSError as error:
            raise SourceError(name, error.strerror or str(error)) from error
        except PictureError as error:
            raise SourceError(name, error.reason) from error
        stem, _, suffix = name.rpartition("/")[2].rpartition(".")
        extension = "jpg" if suffix.lower() == "jpeg" else suffix.lower()
        return SourceSample(f"{number:08d}_{_plain(stem)}", extension, picture, label, origin=name)


def open_folder(
    folder: Path, *, split: str = "train", seed: int = 0, val_share: float | None = None, shuffle: bool = True
) -> FolderSource:
    """List an image folder: one folder a class, numbered by name, pictures at any depth in them, links followed.

    Args: val_share: with it, the share in (0, 1) of every class that is ``val``, the rest ``train``; for one seed the
        two together are the whole folder. shuffle: pack in seeded order, else by class and name.
    Raises: PackError: no folder, no class, a class without a picture, nothing left for the split.
    """
    if not folder.is_dir():
        raise PackError(f"{folder}: not a folder. Name a folder with one subfolder a class")
    if val_share is not None and not 0 < val_share < 1:
        raise PackError(f"val share {val_share}: give a share between 0 and 1, such as 0.1")
    classes = tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."))
    if not classes:
        raise PackError(f"{folder}: no subfolders. Name a folder with one subfolder a class")
    files: list[tuple[str, int]] = []
    ignored = 0
    for label, name in enumerate(classes):
        found = sorted(_files_below(folder, name))
        pictures = [path for path in found if _is_picture(path)]
        ignored += len(found) - len(pictures)
        if not pictures:
            raise PackError(f"{folder / name}: a class without a picture. Remove the folder, or put pictures into it")
        chosen = _split(pictures, split=split, seed=seed, val_share=val_share)
        files.extend((path, label) for path in chosen)
    if not files:
        raise PackError(f"{folder}: no picture is left for the split '{split}' with a val share of {val_share}")
    if shuffle:
        files = [files[i] for i in seeded_permutation(len(files), key=(seed, "pack", split))]
    return FolderSource(
        folder=folder,
        files=tuple(files),
        classes=classes,
        class_order="by name, as text",
        shuffled=shuffle,
        split=split,
        seed=seed,
        val_share=val_share,
        ignored=ignored,
    )


def _files_below(folder: Path, name: str) -> Iterator[str]:
    """Yield the files below a class folder, as paths from ``folder`` with forward slashes; each folder once."""
    seen: set[tuple[int, int]] = set()
    for parent, folders, files in os.walk(folder / name, followlinks=True, onerror=_raise):
        status = os.stat(parent)
        if (status.st_dev, status.st_ino) in seen:
            # A link that leads back: following it again and again would pack each picture many times.
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        relative = Path(parent).relative_to(folder).as_posix()
        yield from (f"{relative}/{file}" for file in files)


def _raise(error: OSError) -> None:
    """Stop at a folder that cannot be read: os.walk would pass over it without a word."""
    raise error


def _is_picture(path: str) -> bool:
    base = path.rpartition("/")[2]
    return not base.startswith(".") and base.rpartition(".")[2].lower() in PICTURE_EXTENSIONS


def _split(pictures: list[str], *, split: str, seed: int, val_share: float | None) -> list[str]:
    """Return the pictures of one class that belong to the split, by name."""
    if val_share is None:
        return pictures
    order = seeded_permutation(len(pictures), key=(seed, "split", pictures[0].partition("/")[0]))
    num_val = round(val_share * len(pictures))
    chosen = order[:num_val] if split == "val" else order[num_val:]
    return [pictures[i] for i in sorted(chosen)]


def _plain(stem: str) -> str:
    """Return the name with letters, digits, '-' and '_' alone: no dot, no space, nothing that readers differ on."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", stem)[:_MAX_STEM]
