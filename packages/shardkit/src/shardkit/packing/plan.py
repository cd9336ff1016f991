"""The written plan of a packing: what goes into which shard, from what source. Shared by all who work on it.

Format ``shardkit-plan`` version 1, ``<prefix>.plan.json`` in the folder of the shards: one JSON object. It lies there
until the manifest takes its place, so that a packing that was killed can be told from a finished one, and from another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shardkit.atomic import write_atomically
from shardkit.errors import PackError, PlanFileError
from shardkit.fake_imagenet import FakeImageNet
from shardkit.manifest import Manifest
from shardkit.packing.config import PLAN_SUFFIX, PackConfig
from shardkit.packing.layout import ShardPlan
from shardkit.packing.recode import Recode, Transform, encoder_version
from shardkit.sources.fake import FakeSource
from shardkit.sources.folder import open_folder
from shardkit.sources.ilsvrc import open_ilsvrc_train, open_ilsvrc_val
from shardkit.sources.shards import reopen_shards
from shardkit.sources.source import Source
from shardkit.sources.table import open_table
from shardkit.sources.table_rows import Columns

__all__ = ["Slice", "WrittenPlan", "parse_slice", "plan_of", "read_plan", "reopen_source", "write_plan"]

_FORMAT = "shardkit-plan"
_VERSION = 1
# What a difference in a field means, in words.
_MEANINGS = {
    "prefix": "the prefix",
    "fingerprint": "the source: its files, their order, labels or sizes",
    "on_error": "what to do with bad sources (--on-error)",
    "recode": "how pictures are re-encoded",
    "transform": "the transform of JPEG bytes",
    "encoder": "the version of what writes the JPEGs",
    "shards": "the layout of the shards",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPlan:
    """A packing as it was planned; the bytes of every shard follow from it and the source.

    ``recipe``, ``fingerprint``: of the source. ``transform``: its name. ``encoder``: the versions that decide the bytes
    of pictures that are encoded or transformed; None where they are kept.
    """

    prefix: str
    recipe: Mapping[str, object]
    fingerprint: str
    on_error: Literal["stop", "skip"]
    recode: Recode | None
    transform: str | None
    encoder: str | None
    shards: tuple[ShardPlan, ...]

    def differences(self, other: WrittenPlan) -> list[str]:
        """Return in words what the two differ in; nothing where they give the same bytes, wherever the source lies."""
        return [words for field, words in _MEANINGS.items() if getattr(self, field) != getattr(other, field)]

    def config(self, folder: Path, *, jobs: int = 1, transform: Transform | None = None) -> PackConfig:
        """Return how to work on the plan in this folder. Raises: PackError: another transform than the plan's."""
        given = None if transform is None else transform.name
        if given != self.transform:
            raise PackError(f"the plan asks for the transform {self.transform}, not for {given}")
        return PackConfig(
            folder=folder,
            prefix=self.prefix,
            jobs=jobs,
            on_exists="resume",
            on_error=self.on_error,
            recode=self.recode,
            transform=transform,
        )

    def made(self, manifest: Manifest) -> bool:
        """Tell whether the manifest is that of this plan, finished."""
        planned = {shard.name: len(shard.samples) for shard in self.shards}
        same_options = manifest.options.get("recode") == (None if self.recode is None else self.recode.as_options())
        same_options = same_options and manifest.options.get("transform") == self.transform
        same_source = manifest.options.get("fingerprint") == self.fingerprint and manifest.name == self.prefix
        in_place = all(shard.num_samples <= planned.get(shard.name, -1) for shard in manifest.shards)
        complete = manifest.num_samples + len(manifest.skipped) == sum(planned.values())
        return same_source and same_options and in_place and complete


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of the work: every ``of``-th shard, from the ``number``-th on, counted from 1."""

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise PackError(f"slice {self.number}/{self.of}: give one from 1/{self.of} to {self.of}/{self.of}")

    def shards(self, plan: WrittenPlan) -> Sequence[ShardPlan]:
        """Return the shards of this part."""
        return plan.shards[self.number - 1 :: self.of]


def parse_slice(text: str) -> Slice:
    """Return the slice that ``3/16`` stands for. Raises: PackError: it stands for none."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if match is None or match[2].strip("0") == "":
        raise PackError(f"slice {text!r}: write it like 3/16, the third of sixteen")
    return Slice(int(match[1]), int(match[2]))


def plan_of(source: Source, shards: Sequence[ShardPlan], *, config: PackConfig) -> WrittenPlan:
    """Return the plan of a packing, to write down."""
    return WrittenPlan(
        prefix=config.prefix,
        recipe=source.recipe,
        fingerprint=source.fingerprint,
        on_error=config.on_error,
        recode=config.recode,
        transform=None if config.transform is None else config.transform.name,
        encoder=_encoder(source, config),
        shards=tuple(shards),
    )


def _encoder(source: Source, config: PackConfig) -> str | None:
    """Return the versions of all that writes JPEGs here."""
    encodes = config.recode is not None or isinstance(source, FakeSource)
    versions = [encoder_version()] if encodes else []
    versions += [] if config.transform is None else [config.transform.version]
    return ", ".join(versions) or None


def write_plan(plan: WrittenPlan, path: Path) -> None:
    """Write the plan atomically, over one that is there. Raises: OSError."""
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "prefix": plan.prefix,
        "source": dict(plan.recipe),
        "fingerprint": plan.fingerprint,
        "on_error": plan.on_error,
        "recode": None if plan.recode is None else plan.recode.as_options(),
        "transform": plan.transform,
        "encoder": plan.encoder,
        "shards": [{"name": s.name, "first": s.samples.start, "end": s.samples.stop} for s in plan.shards],
    }
    write_atomically(path, json.dumps(document, indent=1).encode() + b"\n", replace=True)


def read_plan(path: Path) -> WrittenPlan:
    """Read a plan file. Raises: PlanFileError: no plan, of an unknown version, or damaged. OSError."""
    if path.is_dir():
        raise PlanFileError(f"{path}: a folder. Name the plan in it, PREFIX{PLAN_SUFFIX}")
    try:
        document = _document(path.read_bytes())
        recode = document["recode"]
        plan = WrittenPlan(
            prefix=document["prefix"],
            recipe=dict(document["source"]),
            fingerprint=document["fingerprint"],
            on_error=document["on_error"],
            recode=None if recode is None else Recode(**recode),
            transform=document["transform"],
            encoder=document["encoder"],
            shards=tuple(_shard(entry, prefix=document["prefix"]) for entry in document["shards"]),
        )
        _require_sense(plan)
    except PackError as error:
        raise PlanFileError(f"{path}: {error}. Write the plan again (--plan-only)") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PlanFileError(f"{path}: {_in_words(error)}. Write the plan again (--plan-only)") from error
    return plan


def reopen_source(recipe: Mapping[str, object]) -> Source:
    """Open the source again that a plan names.

    Raises: PlanFileError: a recipe that is none, of an unknown kind. PackError: the source is not there any more.
    """
    opener = _OPENERS.get(str(recipe.get("kind")))
    if opener is None:
        known = ", ".join(sorted(_OPENERS))
        raise PlanFileError(
            f"the plan's source is of kind {recipe.get('kind')!r}, which is not known here: {known} are"
        )
    try:
        return opener(recipe)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, PackError):
            raise
        raise PlanFileError(f"the plan's source: {_in_words(error)}. Write the plan again (--plan-only)") from error


def _document(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a plan. Raises: PlanFileError: it is something else, or of another version."""
    try:
        document = json.loads(data)
    # json goes as deep as the brackets in the file.
    except (ValueError, RecursionError) as error:
        raise PlanFileError("not a plan: it is empty" if not data else "not a plan: no JSON") from error
    kind = document.get("format") if isinstance(document, dict) else None
    if kind != _FORMAT:
        raise PlanFileError(f"not a plan but a {kind}" if isinstance(kind, str) and kind else "not a plan")
    if document.get("version") != _VERSION:
        raise PlanFileError(f"a plan of version {document.get('version')!r}; {_VERSION} is known here")
    return dict(document)


def _in_words(error: Exception) -> str:
    """Say what is wrong with a JSON object whose fields were taken for granted."""
    return f"the field {error} is missing" if isinstance(error, KeyError) else f"a field holds what it cannot: {error}"


def _shard(entry: Any, *, prefix: str) -> ShardPlan:
    """Return one shard of a plan. Raises: PlanFileError: its name would lead elsewhere."""
    name, first, end = entry["name"], entry["first"], entry["end"]
    if not re.fullmatch(re.escape(prefix) + r"-\d{6,}\.tar", name):
        raise PlanFileError(f"shard name {name!r} is none of the prefix {prefix!r}")
    if type(first) is not int or type(end) is not int or not 0 <= first < end:
        raise PlanFileError(f"{name}: samples {first!r} to {end!r} are no range")
    return ShardPlan(name, range(first, end))


def _require_sense(plan: WrittenPlan) -> None:
    """Raise PlanFileError for a plan that no packing has."""
    texts = (plan.fingerprint, plan.transform or "", plan.encoder or "")
    if plan.on_error not in ("stop", "skip") or not all(isinstance(text, str) for text in texts):
        raise PlanFileError("a field holds what it cannot")
    if len({shard.name for shard in plan.shards}) != len(plan.shards) or not plan.shards:
        raise PlanFileError("no shards, or one twice")
    ends = [0, *(shard.samples.stop for shard in plan.shards)]
    if any(shard.samples.start != end for shard, end in zip(plan.shards, ends, strict=False)):
        raise PlanFileError("its shards leave samples out, or hold some twice")
    # Checks the prefix, which becomes part of paths.
    PackConfig(folder=Path(), prefix=plan.prefix)


def _fake(recipe: Mapping[str, Any]) -> Source:
    settings = {name: value for name, value in recipe.items() if name != "kind"}
    return FakeSource(FakeImageNet(**{**settings, "size": tuple(settings["size"])}))


def _folder(recipe: Mapping[str, Any]) -> Source:
    return open_folder(
        Path(recipe["folder"]),
        split=recipe["split"],
        seed=recipe["seed"],
        val_share=recipe["val_share"],
        shuffle=recipe["shuffle"],
    )


def _table(recipe: Mapping[str, Any]) -> Source:
    return open_table(
        Path(recipe["table"]),
        columns=Columns(recipe["image_column"], recipe["label_column"], recipe["key_column"]),
        root=Path(recipe["root"]),
        split=recipe["split"],
        seed=recipe["seed"],
        val_share=recipe["val_share"],
        shuffle=recipe["shuffle"],
    )


def _ilsvrc_train(recipe: Mapping[str, Any]) -> Source:
    return open_ilsvrc_train(Path(recipe["archive"]), seed=recipe["seed"], shuffle=recipe["shuffle"])


def _ilsvrc_val(recipe: Mapping[str, Any]) -> Source:
    return open_ilsvrc_val(
        Path(recipe["archive"]),
        ground_truth=Path(recipe["ground_truth"]),
        synsets=None if recipe["synsets"] is None else Path(recipe["synsets"]),
        seed=recipe["seed"],
        shuffle=recipe["shuffle"],
    )


# How each kind of source is opened from its recipe.
_OPENERS: dict[str, Callable[[Mapping[str, Any]], Source]] = {
    "fake-imagenet": _fake,
    "image-folder": _folder,
    "table": _table,
    "ilsvrc-train": _ilsvrc_train,
    "ilsvrc-val": _ilsvrc_val,
    "shards": reopen_shards,
}
