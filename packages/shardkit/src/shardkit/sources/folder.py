"""Samples to pack from an image folder: one subfolder a class, the files' bytes as they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from shardkit.errors import PackError, PictureError, SourceError, counted
from shardkit.keys import LABEL_EXTENSION, PICTURE_EXTENSIONS
from shardkit.pictures import open_picture
from shardkit.seeded import seeded_permutation
from shardkit.sources.source import SourceSample, listing_digest

__all__ = ["FolderSource", "file_key", "open_folder", "plain_stem", "read_picture"]

# As many characters of a file's name as keep a key within plain ustar.
_MAX_STEM = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSource:
    """The pictures of an image folder, with their bytes as they are. Make one with :func:`open_folder`.

    ``files``: (path below the folder, label, size in bytes when listed) in packing order. ``ignored``: the other
    files that lie there, in the order of their paths.
    """

    folder: Path
    files: tuple[tuple[str, int, int], ...]
    classes: tuple[str, ...]
    class_order: str
    shuffled: bool
    split: str
    seed: int
    val_share: float | None
    ignored: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        """As many as there are names."""
        return len(self.classes)

    @property
    def options(self) -> Mapping[str, object]:
        """How the folder was read; not where it lies."""
        return {"source": "image-folder", "val_share": self.val_share}

    @property
    def recipe(self) -> Mapping[str, object]:
        """The arguments of :func:`open_folder`."""
        return {
            "kind": "image-folder",
            "folder": str(self.folder.absolute()),
            "split": self.split,
            "seed": self.seed,
            "val_share": self.val_share,
            "shuffle": self.shuffled,
        }

    @property
    def fingerprint(self) -> str:
        """Over path, label and size of every file, in order."""
        return listing_digest(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def content_sizes(self, number: int) -> tuple[int, ...]:
        """Return the size of the file when it was listed, and of its label."""
        _, label, size = self.files[number]
        return size, len(str(label))

    def member_names(self, number: int) -> tuple[str, ...]:
        """Return the names that the picture and its label get."""
        key, extension = file_key(number, self.files[number][0])
        return f"{key}.{extension}", f"{key}.{LABEL_EXTENSION}"

    def sample(self, number: int) -> SourceSample:
        """Read one file and see that it begins as a picture does, and has the size it had when it was listed.

        Raises: SourceError: it does not, has not, or is gone.
        """
        name, label, size = self.files[number]
        picture = read_picture(self.folder / name, origin=name, size=size)
        key, extension = file_key(number, name)
        return SourceSample(key, ((extension, picture), (LABEL_EXTENSION, str(label).encode())), origin=name)


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
    files: list[tuple[str, int, int]] = []
    # A picture outside of every class has no label.
    ignored = [entry.name for entry in folder.iterdir() if entry.is_file() and entry.name[0] != "."]
    for label, name in enumerate(classes):
        found = sorted(_files_below(folder, name))
        pictures = [path for path in found if _is_picture(path)]
        ignored += [path for path in found if not _is_picture(path)]
        if not pictures:
            raise PackError(
                f"{folder / name}: a class without a picture. Move it out of there, or put pictures into it"
            )
        chosen = _split(pictures, split=split, seed=seed, val_share=val_share)
        files.extend((path, label, _size_of(folder / path)) for path in chosen)
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
        ignored=tuple(sorted(ignored)),
    )


def _files_below(folder: Path, name: str) -> Iterator[str]:
    """Yield the files below a class folder, as paths from ``folder`` with forward slashes; each folder once."""
    # A link up to the folder itself would make the pictures of all classes those of this one.
    seen = {_identity(above) for above in (folder.resolve(), *folder.resolve().parents)}
    for parent, folders, files in os.walk(folder / name, followlinks=True, onerror=_raise):
        if (identity := _identity(parent)) in seen:
            # A link that leads back: following it again and again would pack each picture many times.
            folders.clear()
            continue
        seen.add(identity)
        folders.sort()
        relative = Path(parent).relative_to(folder).as_posix()
        yield from (f"{relative}/{file}" for file in files)


def _identity(path: Path | str) -> tuple[int, int]:
    """Return what no two folders share, whatever links lead there."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _size_of(path: Path) -> int:
    """Return the size of a file; 0 for one that cannot be looked at: reading it will say why."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


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


def file_key(number: int, name: str) -> tuple[str, str]:
    """Return the (key, extension) of a picture file: its number and plain name; ``jpeg`` becomes ``jpg``."""
    stem, _, suffix = name.rpartition("/")[2].rpartition(".")
    extension = "jpg" if suffix.lower() == "jpeg" else suffix.lower()
    return f"{number:08d}_{plain_stem(stem)}", extension


def read_picture(path: Path, *, origin: str, size: int) -> bytes:
    """Return a picture file's bytes: ``size`` of them, which begin as a picture does.

    Raises: SourceError: naming ``origin``, where that is not so or the file cannot be read.
    """
    try:
        # A pipe or a device of that name would never end.
        if not path.is_file():
            path.stat()
            raise SourceError(origin, "not a file")
        picture = path.read_bytes()
        if len(picture) != size:
            raise SourceError(
                origin, f"it changed while packing: {counted(size, 'byte')} when listed, {len(picture)} now"
            )
        open_picture(picture)
    except OSError as error:
        raise SourceError(origin, error.strerror or str(error)) from error
    except PictureError as error:
        raise SourceError(origin, error.reason) from error
    return picture


def plain_stem(stem: str) -> str:
    """Return the name with letters, digits, '-' and '_' alone: no dot, no space, nothing that readers differ on."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", stem)[:_MAX_STEM]
