"""Samples to pack from shards: filtered, relabelled, shuffled; read at their offsets, their bytes as they are.

Owns the list of samples as columns of numbers: 28 bytes a sample and 4 or 8 more a kind of member; a billion samples
are no Python objects. Keys are not held: they are read back from the shards.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shardkit.errors import PackError, ShardReadError, SourceError, counted
from shardkit.keys import LABEL_EXTENSION
from shardkit.labels import parse_label
from shardkit.locations import is_url
from shardkit.manifest import Manifest, ShardRecord, dataset_digest, manifests_in, most_classes
from shardkit.processes import map_in_order
from shardkit.seeded import seeded_permutation
from shardkit.sources.rows import Rows, ShardInput, join_rows, load_rows, repeated_key
from shardkit.sources.selection import Relabelling, Selection, choose_share, read_keys, read_relabelling
from shardkit.sources.source import SourceSample
from shardkit.tar.gunzip import GZIP_MAGIC
from shardkit.tar.reader import ShardFile
from shardkit.tar.scratch import scratch_file, unpack

__all__ = ["ShardsSource", "open_shards", "reopen_shards"]

# Enough for a shuffle over some shards, and few enough for any process.
_MAX_OPEN_SHARDS = 64
_UNKNOWN_ORDER = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsSource:
    """The chosen samples of shards. Make one with :func:`open_shards`.

    ``shards``: where each lies and what is on record of it. ``rows``: the samples in packing order. ``notes``: what a
    user should know of the choice, in words.
    """

    shards: tuple[ShardInput, ...]
    rows: Rows = field(repr=False)
    selection: Selection
    relabelling: Relabelling | None
    classes: tuple[str, ...]
    num_classes: int | None
    class_order: str
    shuffled: bool
    split: str
    notes: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        """The seed of the choice and the order."""
        return self.selection.seed

    @property
    def options(self) -> Mapping[str, object]:
        """What was chosen from which shards; not where they lie."""
        records = [ShardRecord(s.name, s.num_samples, s.num_bytes, s.checksum) for s in self.shards]
        return {
            "source": "shards",
            "shards": len(self.shards),
            "shards_digest": dataset_digest(records),
            "selection": self.selection.as_options(),
        }

    @property
    def recipe(self) -> Mapping[str, object]:
        """The arguments of :func:`open_shards`."""
        return {
            "kind": "shards",
            "shards": [os.path.abspath(shard.location) for shard in self.shards],
            "selection": self.selection.as_recipe(),
            "split": self.split,
        }

    @property
    def fingerprint(self) -> str:
        """Over names, sizes and checksums of the shards, the choice, and every sample's place, in order."""
        state = hashlib.blake2b(digest_size=16)
        state.update(json.dumps([dict(self.options), self.selection.seed, self.classes, self.split]).encode() + b"\n")
        for column in (self.rows.shards, self.rows.offsets, self.rows.sizes, self.rows.labels):
            state.update(np.ascontiguousarray(column).tobytes())
        if self.relabelling is not None:
            state.update(json.dumps(sorted(self.relabelling.labels.items())).encode())
        return state.hexdigest()

    def __len__(self) -> int:
        return len(self.rows)

    def content_sizes(self, number: int) -> tuple[int, ...]:
        """Return the sizes of the members that a sample has, by extension; that of the label once it is a new one."""
        sizes = []
        for extension, size in self.rows.members(number):
            is_new = extension == LABEL_EXTENSION and self.relabelling is not None
            sizes.append(len(self._new_label(number)) if is_new else size)
        return tuple(sizes)

    def member_names(self, number: int) -> tuple[str, ...]:
        """Return the names that the members get; the key is read from the shard."""
        try:
            file = _open_shards.get(self._path(number))
            key = self._key(number, file.read_key(int(self.rows.offsets[number]), int(self.rows.sizes[number])))
        except OSError as error:
            raise self._unusable(number, error) from error
        return tuple(f"{key}.{extension}" for extension, _ in self.rows.members(number))

    def sample(self, number: int) -> SourceSample:
        """Read one sample, every header verified. Raises: SourceError: it is damaged, gone, or another one."""
        offset, size = int(self.rows.offsets[number]), int(self.rows.sizes[number])
        try:
            sample = _open_shards.get(self._path(number)).read_sample(offset, size)
        except OSError as error:
            raise self._unusable(number, error) from error
        label = parse_label(sample.members.get(LABEL_EXTENSION, b""))
        if (-1 if label is None else label) != self.rows.labels[number]:
            reason = f"label {label} where the index has {self.rows.labels[number]}: delete the index and index again"
            raise SourceError(self._origin(number), reason)
        members = tuple(
            (extension, self._new_label(number))
            if extension == LABEL_EXTENSION and self.relabelling is not None
            else (extension, content)
            for extension, content in sample.members.items()
        )
        return SourceSample(self._key(number, sample.key), members)

    def _key(self, number: int, key: str) -> str:
        """Return the key to pack a sample under."""
        if not self.selection.rekey:
            return key
        folder, slash, base = key.rpartition("/")
        return f"{folder}{slash}{number:08d}_{base}"

    def _new_label(self, number: int) -> bytes:
        label = int(self.rows.labels[number])
        return str(label if self.relabelling is None else self.relabelling.labels[label]).encode()

    def _shard(self, number: int) -> ShardInput:
        return self.shards[int(self.rows.shards[number])]

    def _path(self, number: int) -> Path:
        return self._shard(number).path

    def _origin(self, number: int) -> str:
        return f"{self._shard(number).name} at byte {self.rows.offsets[number]}"

    def _unusable(self, number: int, error: OSError) -> SourceError:
        if isinstance(error, ShardReadError):
            return SourceError(self._origin(number), f"{error.reason} ({error.rule})")
        return SourceError(self._origin(number), error.strerror or str(error))


class _OpenShards:
    """Shards that this process reads from now: opened once, and closed when too many others came since."""

    def __init__(self) -> None:
        self._files: dict[Path, ShardFile] = {}

    def get(self, path: Path) -> ShardFile:
        """Return the open shard. Raises: OSError."""
        file = self._files.pop(path, None) or ShardFile(path)
        self._files[path] = file
        while len(self._files) > _MAX_OPEN_SHARDS:
            self._files.pop(next(iter(self._files))).close()
        return file

    def close(self, paths: Iterable[Path]) -> None:
        """Close these, where they are open."""
        for path in paths:
            if (file := self._files.pop(path, None)) is not None:
                file.close()


_open_shards = _OpenShards()


@contextmanager
def open_shards(
    paths: Sequence[str],
    selection: Selection = Selection(),  # noqa: B008  # frozen
    *,
    unpack_to: Path | None = None,
    prefix: str = "shards",
    split: str | None = None,
    jobs: int = 1,
) -> Iterator[ShardsSource]:
    """Open local shards by their indexes, or by reading them where those are missing or stale.

    Gzip shards are unpacked for the time of the block, into hidden files of ``unpack_to`` that begin with the prefix.
    Args: split: as the manifests beside the shards say, else ``train``.
    Raises: PackError: no sample is left, one key twice, manifests that disagree, labels that the table lacks, a URL.
        ShardReadError: a damaged shard. OSError.
    """
    with ExitStack() as stack:
        if len({os.path.realpath(path) for path in paths}) != len(paths):
            raise PackError("a shard is named twice: each sample would come twice. Name every shard once")
        inputs = [_located(path, unpack_to=unpack_to, prefix=prefix, stack=stack) for path in paths]
        stack.callback(_open_shards.close, [shard.path for shard in inputs])
        load = functools.partial(load_rows, selection=selection)
        shards, parts, notes = [], [], _Notes()
        for shard, rows, counts in map_in_order(load, inputs, jobs=jobs):
            shards.append(shard)
            parts.append(rows)
            notes.add(counts)
        yield _choose(shards, join_rows(parts), selection=selection, split=split, notes=notes)


def reopen_shards(recipe: Mapping[str, Any]) -> ShardsSource:
    """Open the source again that a written plan names. Raises: as :func:`open_shards`; PackError: a gzip shard."""
    with open_shards(recipe["shards"], Selection.from_recipe(recipe["selection"]), split=recipe["split"]) as source:
        return source


def _choose(
    shards: Sequence[ShardInput], rows: Rows, *, selection: Selection, split: str | None, notes: _Notes
) -> ShardsSource:
    """Draw, relabel and order the samples that passed the filters."""
    relabelling = None if selection.relabel is None else read_relabelling(selection.relabel)
    if relabelling is not None:
        rows = _mapped(rows, shards, relabelling=relabelling, selection=selection)
    if selection.share is not None:
        rows = rows.take(choose_share(rows.labels, share=selection.share, seed=selection.seed))
    if not len(rows):
        raise PackError(f"no sample is left of {counted(len(shards), 'shard')}. Loosen the filters")
    if not selection.rekey and (repeated := repeated_key(shards, rows)) is not None:
        raise PackError(f"{repeated}. Give new keys (--rekey), or leave one out (--drop-keys)")
    if selection.shuffle:
        rows = rows.take(seeded_permutation(len(rows), key=(selection.seed, "reshard")))
    manifests = _manifests_of(shards)
    found = [manifest for manifest in manifests if manifest is not None]
    classes, class_order = _classes(shards, manifests, relabelling=relabelling, notes=notes)
    splits = sorted({manifest.split for manifest in found})
    if split is None and len(splits) > 1:
        raise PackError(f"shards of the splits {' and '.join(splits)} together. Name the split of the result (--split)")
    one = found[0] if len(found) == len(shards) and all(m is found[0] for m in found) else None
    return ShardsSource(
        shards=tuple(shards),
        rows=rows.without_hashes(),
        selection=selection,
        relabelling=relabelling,
        classes=classes,
        num_classes=len(classes) or (most_classes(found) if relabelling is None and None not in manifests else None),
        class_order=class_order,
        shuffled=selection.shuffle or (one is not None and one.shuffled),
        split=split or (splits[0] if splits else "train"),
        notes=notes.lines(selection),
    )


def _mapped(rows: Rows, shards: Sequence[ShardInput], *, relabelling: Relabelling, selection: Selection) -> Rows:
    """Return the rows whose labels the table has. Raises: PackError: others are there, and not to be left out."""
    known = np.isin(rows.labels, np.array(sorted(relabelling.labels), np.int64))
    if not known.all() and not selection.drop_unmapped:
        first = int(np.flatnonzero(~known)[0])
        lacking = sorted({int(label) for label in rows.labels[~known]})
        more = ", .." if len(lacking) > 10 else ""
        raise PackError(
            f"{selection.relabel}: {counted(int((~known).sum()), 'sample has a label/samples have labels')} "
            "that the table lacks: "
            f"{', '.join(map(str, lacking[:10]))}{more}, first in {shards[rows.shards[first]].location} at byte "
            f"{rows.offsets[first]}. Add them, or leave these samples out (--drop-unmapped)"
        )
    return rows.take(np.flatnonzero(known))


def _located(path: str, *, unpack_to: Path | None, prefix: str, stack: ExitStack) -> ShardInput:
    """Return where a shard lies as a plain file. Raises: PackError: a URL, or gzip and nowhere to unpack it."""
    if is_url(path):
        raise PackError(f"{path}: only local shards are read here. Fetch it first")
    with open(path, "rb") as file:
        if file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
            return ShardInput(location=path, path=Path(path))
        if unpack_to is None:
            raise PackError(f"{path}: gzip, which a plan cannot name. Unpack it first: gunzip -k {path}")
        file.seek(0)
        unpack_to.mkdir(parents=True, exist_ok=True)
        plain, target = stack.enter_context(scratch_file(unpack_to, name=f"{prefix}-unpacked"))
        reason = unpack(file, target)
        target.flush()
    if reason is not None:
        raise ShardReadError(path, reason, rule="WDS002", remedy="Save what is whole first: wds repair")
    return ShardInput(location=path, path=plain)


class _Notes:
    """Counts over all shards that a user should know of."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._lines: list[str] = []

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the counts of one shard."""
        for name, count in counts.items():
            self._counts[name] = self._counts.get(name, 0) + count

    def say(self, line: str) -> None:
        """Add a line of its own."""
        self._lines.append(line)

    def lines(self, selection: Selection) -> tuple[str, ...]:
        """Return what there is to say."""
        lines = list(self._lines)
        for name, path in (("keys", selection.keys), ("drop_keys", selection.drop_keys)):
            if path is not None and (listed := len(read_keys(path))) > (found := self._counts.get(name, 0)):
                lines.append(f"{path}: {listed - found} of its {counted(listed, 'key is/keys are')} in no shard")
        if beside := self._counts.get("beside"):
            lines.append(f"{counted(beside, 'place')} in the shards with members that belong to no sample: left out")
        if halves := self._counts.get("halves"):
            lines.append(
                f"{counted(halves, 'sample')} without a picture or a label, packed as they are; see wds validate"
            )
        if unread := self._counts.get("unread"):
            lines.append(f"{counted(unread, 'picture')} that cannot be read, so nobody knows the sides: left out")
        return tuple(lines)


def _manifests_of(shards: Iterable[ShardInput]) -> list[Manifest | None]:
    """Return the manifest that lists each shard, from its folder; None where none does. Raises: ManifestError."""
    by_folder: dict[Path, list[Manifest]] = {}
    found = []
    for shard in shards:
        folder, name = Path(shard.location).parent, os.path.basename(shard.location)
        if folder not in by_folder:
            by_folder[folder] = [manifest for _, manifest in manifests_in(folder)]
        listing = (m for m in by_folder[folder] if any(record.name == name for record in m.shards))
        found.append(next(listing, None))
    return found


def _classes(
    shards: Sequence[ShardInput],
    manifests: Sequence[Manifest | None],
    *,
    relabelling: Relabelling | None,
    notes: _Notes,
) -> tuple[tuple[str, ...], str]:
    """Return the classes and how they are ordered; nothing where nobody knows them.

    Raises: PackError: the manifests of two shards name different classes.
    """
    known = [(shard, manifest) for shard, manifest in zip(shards, manifests, strict=True) if manifest is not None]
    for shard, manifest in known[1:]:
        if manifest.classes != known[0][1].classes and relabelling is None:
            raise PackError(
                f"{known[0][0].location} and {shard.location}: their manifests name different classes, so one label "
                "would mean two things. Give them common labels (--relabel)"
            )
    if relabelling is not None:
        return relabelling.names, "as the table of labels has it" if relabelling.names else _UNKNOWN_ORDER
    if not known:
        return (), _UNKNOWN_ORDER
    if len(known) < len(shards):
        notes.say(
            f"{counted(len(shards) - len(known), 'shard has/shards have')} no manifest, of {len(shards)}: class names "
            "are left out"
        )
        return (), _UNKNOWN_ORDER
    return known[0][1].classes, known[0][1].class_order
