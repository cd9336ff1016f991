"""Where and how to pack, checked once; the names of the files of a packing, and what lies there already."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shardkit.errors import PackError
from shardkit.manifest import MANIFEST_SUFFIX
from shardkit.packing.recode import Recode, Transform
from shardkit.sources.folder import FolderSource
from shardkit.sources.source import Source

__all__ = ["PLAN_SUFFIX", "PREFIX", "PackConfig", "existing_output", "require_apart", "require_outside"]

PLAN_SUFFIX = ".plan.json"
# What the names of a dataset's files may begin with: it is part of paths, patterns and commands.
PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackConfig:
    """Where and how to pack.

    ``jobs``: processes. ``on_exists``: ``overwrite`` replaces the shards, indexes and manifest of this prefix, and
    nothing else; ``resume`` goes on with a packing of the same plan that was killed, and begins one where none is.
    ``on_error``: ``skip`` leaves unusable sources out, counted and listed in the manifest. ``recode``: what becomes of
    the pictures; None keeps their bytes. ``transform``: what is done to the JPEGs that are not re-encoded.
    Raises: PackError: a value out of range; crop-ready pictures that nobody would make.
    """

    folder: Path
    prefix: str
    jobs: int = 1
    on_exists: Literal["fail", "resume", "overwrite"] = "fail"
    on_error: Literal["stop", "skip"] = "stop"
    recode: Recode | None = None
    transform: Transform | None = None

    def __post_init__(self) -> None:
        if not PREFIX.fullmatch(self.prefix):
            raise PackError(f"prefix {self.prefix!r}: use letters, digits, '.', '_' and '-' only")
        if self.jobs < 1:
            raise PackError(f"{self.jobs} jobs: at least 1 is needed")
        if self.recode is not None and self.recode.crop_ready and self.recode.keeps_some and self.transform is None:
            raise PackError(
                "crop-ready: pictures that keep their bytes need a transform that adds restart markers. Give one, or a "
                "quality to re-encode all of them"
            )

    @property
    def manifest_path(self) -> Path:
        """Where the manifest goes."""
        return self.folder / (self.prefix + MANIFEST_SUFFIX)

    @property
    def plan_path(self) -> Path:
        """Where the plan lies until the manifest is there."""
        return self.folder / (self.prefix + PLAN_SUFFIX)

    @property
    def options(self) -> dict[str, object]:
        """What the manifest says of the packing beyond the source: nothing where bytes are kept."""
        options: dict[str, object] = {}
        if self.recode is not None:
            options["recode"] = self.recode.as_options()
        if self.transform is not None:
            options["transform"] = self.transform.name
        return options


def require_outside(source: Source, config: PackConfig) -> None:
    """Raise PackError where shards would lie in the image folder that is packed, and be a class of it from then on."""
    if isinstance(source, FolderSource) and source.folder.resolve() in config.folder.resolve().parents:
        raise PackError(
            f"{config.folder}: inside of {source.folder}, which is packed: the shards would be taken for a class of "
            "it. Choose a folder outside of it"
        )


def existing_output(config: PackConfig) -> list[Path]:
    """Return what is there of this prefix already: shards and what lies beside them by name, plan, manifest."""
    if not config.folder.is_dir():
        return []
    ours = re.compile(re.escape(config.prefix) + r"-\d{6,}\.tar(\.index\.json|\.skipped\.json)?")
    found = sorted(path for path in config.folder.iterdir() if ours.fullmatch(path.name))
    return found + [path for path in (config.plan_path, config.manifest_path) if path.exists()]


def require_apart(paths: Sequence[str], config: PackConfig) -> None:
    """Raise PackError if an input lies in the output folder under the output's prefix: it would be overwritten."""
    ours = re.compile(re.escape(config.prefix) + r"-\d{6,}\.tar")
    folder = os.path.realpath(config.folder)
    for path in paths:
        # The name as it is given and the file that a link leads to: neither may be replaced.
        for place in (Path(os.path.abspath(path)), Path(os.path.realpath(path))):
            if os.path.realpath(place.parent) == folder and ours.fullmatch(place.name):
                raise PackError(
                    f"{path}: an input in the folder of the output, under the same prefix '{config.prefix}'. "
                    "Choose another folder or prefix"
                )
