"""Everything that checks want to know of one shard, gathered in one pass; damage is recorded, never raised.

Owns the facts; ``rules`` judges them and ``summary`` counts them. Memory: two pictures of at most 256 MiB at a time and
what one unpacks to, about 700 bytes a member of a sample up to ``max_kept_bytes``, and a fixed number of all others
(tests/shardkit/check/test_limits.py measures it).
"""

from __future__ import annotations

import copy
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import xxhash

from shardkit.check.extensions import Extension, extension_of
from shardkit.errors import PictureError, ShardReadError, printable
from shardkit.index.shard_index import ShardIndex
from shardkit.keys import SampleKey, is_hidden, picture_extension, split_name
from shardkit.labels import parse_label
from shardkit.manifest import ShardRecord
from shardkit.pictures import MAX_PICTURE_BYTES, MAX_PIXELS, PictureFacts, picture_facts
from shardkit.tar.byte_source import ByteSource, open_source
from shardkit.tar.checksum import HashingSource, file_checksum
from shardkit.tar.gunzip import MAX_UNPACK_RATIO
from shardkit.tar.reader import group_members
from shardkit.tar.walk import Ending, Member, ShardWalk

__all__ = ["Expectation", "FirstFew", "Gatherer", "Part", "SampleScan", "ScanOptions", "ShardScan", "scan_shard"]

_LABEL_BYTES = 64
# No integer is so long.
_MAX_LABEL_BYTES = 4096
# Of a member of a sample, with the findings it may have; and of a long name, which is kept as that and as a key.
_PART_BYTES = 1000
_LONG_NAME = 200
# 3 GiB: three million members, such as all of ImageNet in one shard.
_MAX_KEPT_BYTES = 3 << 30

# So many links, hidden members, damaged headers and the like are kept; of the others the number is known.
_KEPT = 1000
# And so many with names of a mebibyte.
_KEPT_LONG = 10

_Item = TypeVar("_Item")


class Part(NamedTuple):
    """One member of a sample: its full name, extension, the byte offset of its header, and its size in bytes."""

    name: str
    extension: str
    header_offset: int
    size: int


class FirstFew(list[_Item]):
    """A list that keeps the first thousand of what is appended; ``num_seen`` counts all."""

    num_seen = 0

    def append(self, item: _Item, /) -> None:
        """Count the item, and keep it while there are few."""
        self.num_seen += 1
        if len(self) < _KEPT:
            super().append(item)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """How far to look.

    ``pictures``: open every picture and hash it; else headers, names and labels alone are read. ``decode``: unpack
    every picture that is opened. ``max_pixels``: larger pictures are refused. ``max_unpack_ratio``: a gzip file that
    unpacks to more than this many times its size is read no further. ``max_kept_bytes``: a shard is read no further
    where its names and places would fill more of the memory. ``allow_commands``: a shard may be a command.
    """

    pictures: bool = True
    decode: bool = True
    max_pixels: int = MAX_PIXELS
    max_unpack_ratio: int = MAX_UNPACK_RATIO
    max_kept_bytes: int = _MAX_KEPT_BYTES
    allow_commands: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a shard is held against: labels in ``range(num_classes)``, and what manifest and index say of it.

    ``unusable_manifests``: why some beside it say nothing. ``gone``: shards that they list and the folder lacks.
    ``splits``: (manifest, split) of those that list it, where the splits differ. ``index``: the one beside it, or why
    that cannot be read. ``end_marker``: it must have one.
    """

    num_classes: int | None = None
    record: ShardRecord | None = None
    unusable_manifests: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    splits: tuple[tuple[str, str], ...] = ()
    index: ShardIndex | str | None = None
    end_marker: bool = True


@dataclass(slots=True)
class SampleScan:
    """What is known of one key: its parts over the whole shard, in how many places they stand, label and picture.

    ``picture_hash``: XXH3 (128 bits) of the picture's bytes, None where they were not read.
    """

    key: SampleKey
    parts: list[Part] = field(default_factory=list)
    num_places: int = 0
    label: int | None = None
    label_content: bytes | None = None
    picture: PictureFacts | PictureError | None = None
    picture_hash: bytes | None = None

    @property
    def extensions(self) -> set[str]:
        """The extensions of the parts."""
        return {part.extension for part in self.parts}

    @property
    def is_whole(self) -> bool:
        """Whether a loader can use the sample: one place, no doubles, a good picture, an integer label."""
        return (
            self.num_places == 1
            and len(self.extensions) == len(self.parts)
            and not isinstance(self.picture, PictureError)
            and picture_extension(self.extensions) is not None
            and self.label is not None
        )


@dataclass(slots=True)
class ShardScan:
    """What is known of one shard.

    ``num_bytes`` and ``checksum`` are of the file as stored, None for a stream whose end was not met, or where no
    record asks for a checksum. ``shapes``: extensions side by side, in order -> how often; ``label_contents``: each
    once; ``num_apart``: places that samples have beyond their first. ``following``: (byte offset, number of samples) of
    each further archive in the file. ``special``: all that is no file, of which ``links``, and ``devices``: all but
    links and folders; ``hidden`` and ``beside``: members that belong to no sample; ``unsafe``, ``unreadable``,
    ``pickled``: members whose names lead out of the folder, are no visible UTF-8 text, or say that they hold a pickle.
    ``damage_counts``: by rule, also of damage that was not kept. ``explained``: keys that lack a part because it is a
    link or damaged. ``gzip_members``: of a gzip file. ``options``: how far it was looked at.
    """

    shard: str
    expected: Expectation = Expectation()
    options: ScanOptions = ScanOptions()
    num_bytes: int | None = None
    checksum: str | None = None
    compressed: bool = False
    samples: dict[SampleKey, SampleScan] = field(default_factory=dict)
    shapes: Counter[tuple[str, ...]] = field(default_factory=Counter)
    label_contents: set[bytes | None] = field(default_factory=set)
    num_apart: int = 0
    special: FirstFew[Member] = field(default_factory=FirstFew)
    links: FirstFew[Member] = field(default_factory=FirstFew)
    devices: FirstFew[Member] = field(default_factory=FirstFew)
    hidden: FirstFew[Member] = field(default_factory=FirstFew)
    apple_doubles: int = 0
    beside: FirstFew[Member] = field(default_factory=FirstFew)
    unsafe: FirstFew[Member] = field(default_factory=FirstFew)
    unreadable: FirstFew[Member] = field(default_factory=FirstFew)
    pickled: FirstFew[Member] = field(default_factory=FirstFew)
    damage: list[ShardReadError] = field(default_factory=list)
    damage_counts: Counter[str] = field(default_factory=Counter)
    explained: set[SampleKey] = field(default_factory=set)
    ending: Ending | None = None
    following: FirstFew[tuple[int, int]] = field(default_factory=FirstFew)
    gzip_members: int = 0

    def note_damage(self, error: ShardReadError) -> None:
        """Keep the error without the traceback that would hold on to the bytes in its frames."""
        if error.member is not None and (split := split_name(error.member)) is not None:
            self.explained.add(split[0])
        self.damage_counts[error.rule] += 1
        is_long = len(error.reason) + len(error.member or "") > _MAX_LABEL_BYTES
        if self.damage_counts[error.rule] <= (_KEPT_LONG if is_long else _KEPT):
            self.damage.append(copy.copy(error))


def scan_shard(path: str, *, expected: Expectation = Expectation(), options: ScanOptions = ScanOptions()) -> ShardScan:
    """Read one shard (anything that :func:`open_source` opens) to its last byte and return what it holds.

    Args: expected: with a record, the file is hashed too, unless it is a stream of gzip.
    Raises: OSError: the file cannot be opened.
    """
    scan = ShardScan(shard=path, expected=expected, options=options)
    is_file = path != "-" and os.path.isfile(path)
    with open_source(path, allow_commands=options.allow_commands, max_unpack_ratio=options.max_unpack_ratio) as opened:
        source, state = opened, xxhash.xxh3_128()
        if expected.record is not None and not is_file and opened.gunzip is None:
            # A stream cannot be read again for its checksum.
            source = HashingSource(opened, hashers=(state,))
        gatherer = Gatherer(scan)
        walk = ShardWalk(source, shard=path, want=gatherer.want, on_damage=scan.note_damage)
        for member, content in walk:
            gatherer.add(member, content)
            if gatherer.room < 0:
                scan.note_damage(_too_much(scan, member))
                break
        gatherer.end_sample()
        scan.ending = walk.ending
        _count_following(scan, source)
        scan.num_bytes = opened.num_bytes
        if source is not opened and opened.position == opened.num_bytes:
            scan.checksum = state.hexdigest()
        if source.gunzip is not None:
            scan.compressed, scan.gzip_members = True, source.gunzip.num_members
    if expected.record is not None and is_file:
        scan.checksum = file_checksum(Path(path))
    return scan


def _too_much(scan: ShardScan, member: Member) -> ShardReadError:
    reason = f"more than {scan.options.max_kept_bytes} bytes to remember of {len(scan.samples)} keys: reading stopped"
    return ShardReadError(scan.shard, reason, rule="WDS016", offset=member.header_offset)


class Gatherer:
    """Puts the members into the scan as they come: neighbours of one key are one sample.

    ``room``: bytes that more of them may fill; below 0, the memory is full.
    """

    def __init__(self, scan: ShardScan) -> None:
        self._scan = scan
        self._opens_pictures = scan.options.pictures
        self.room = scan.options.max_kept_bytes
        self._extensions: dict[str, Extension] = {}
        # The member that was asked for last, and how the names of further parts of its sample begin: with no check
        # left to do but of the extension. Nothing begins with ().
        self._next_key: SampleKey | None = None
        self._extension = extension_of("")
        self._beginning: str | tuple[()] = ()
        self._beginning_length = 0
        # The sample that is being gathered.
        self._key = SampleKey("")
        self._parts: list[Part] = []
        self._is_sample = False
        self._label: tuple[int, bytes | None] | None = None
        # (extension, size, content) of the one that loaders take.
        self._picture: tuple[str, int, bytes | None] | None = None

    def want(self, member: Member) -> bool:
        """Look at a member's name; want the contents of labels and pictures, unless that would fill the memory."""
        name = member.name
        known = None
        if name.startswith(self._beginning):
            known = self._extensions.get(name[self._beginning_length :])
        if known is None:
            known = self._look_at_name(member)
            if known is None:
                return False
        self._extension = known
        if known.is_label:
            return member.size <= _MAX_LABEL_BYTES and member.kind == "file"
        return known.is_picture and self._opens_pictures and member.size <= MAX_PICTURE_BYTES and member.kind == "file"

    def _look_at_name(self, member: Member) -> Extension | None:
        """Split and check the name; return None where it belongs to no sample."""
        name = member.name
        split = split_name(name)
        is_plain = name.isprintable() and ".." not in name and name[:1] != "/"
        if not is_plain:
            self._note_name(member)
        if split is None:
            self._next_key, self._beginning = None, ()
            return None
        key = self._next_key = split[0]
        self._beginning_length = len(key) + 1
        self._beginning = name[: self._beginning_length] if is_plain else ()
        # As it is written, which may be in upper case.
        extension = name[self._beginning_length :]
        known = self._extensions.get(extension)
        if known is None:
            known = extension_of(split[1])
            if extension.isprintable():
                self._keep_extension(extension, known)
        return known

    def add(self, member: Member, content: bytes | None) -> None:
        """Enter a member, right after it was asked for."""
        key, known = self._next_key, self._extension
        name, kind, header_offset, _, size, linkname = member  # at once: an attribute each takes twice as long
        if len(name) + len(linkname) > _LONG_NAME:
            self.room -= 2 * (sys.getsizeof(name) + sys.getsizeof(linkname))
        if key is None or kind != "file":
            self._set_aside(member)
            return
        if key != self._key:
            self.end_sample()
            self._key = key
        self.room -= _PART_BYTES
        # tuple.__new__ is what Part() calls, at half the time.
        self._parts.append(tuple.__new__(Part, (name, known.name, header_offset, size)))
        if known.is_label:
            self._label = size, content
        elif known.is_picture and self._opens_pictures and self._is_preferred(known.name):
            self._picture = known.name, size, content
        if known.is_part:
            self._is_sample = True
        elif known.is_pickle:
            self._scan.pickled.append(member)

    def _is_preferred(self, extension: str) -> bool:
        """Tell whether loaders take this picture rather than the one at hand: of several, only one is held."""
        return self._picture is None or picture_extension((self._picture[0], extension)) == extension

    def end_sample(self) -> None:
        """Enter the neighbours gathered so far; a key that was there before gets one more place."""
        key, parts, scan = self._key, self._parts, self._scan
        if not self._is_sample:
            for part in parts:
                scan.beside.append(Member(part.name, "file", part.header_offset, part.header_offset, part.size))
            self._parts = []
            return
        sample = scan.samples.get(key)
        if sample is None:
            sample = scan.samples[key] = SampleScan(key, parts, 1)
        else:
            sample.parts += parts
            sample.num_places += 1
            scan.num_apart += 1
        scan.shapes[tuple([part[1] for part in parts])] += 1
        if self._label is not None:
            size, content = self._label
            sample.label_content = b"(%d bytes)" % size if content is None else content[:_LABEL_BYTES]
            sample.label = None if content is None else parse_label(content)
            scan.label_contents.add(sample.label_content)
        if self._picture is not None:
            _, size, content = self._picture
            sample.picture = _look_at(content, size=size, options=scan.options)
            sample.picture_hash = xxhash.xxh3_128_digest(content) if content else None
        self._parts, self._is_sample, self._label, self._picture = [], False, None, None

    def _set_aside(self, member: Member) -> None:
        """Note a member that belongs to no sample."""
        scan = self._scan
        if member.kind != "file":
            scan.special.append(member)
            if "link" in member.kind:
                scan.links.append(member)
                if self._next_key is not None:
                    scan.explained.add(self._next_key)
                    self.room -= _PART_BYTES
            elif member.kind != "folder":
                scan.devices.append(member)
        elif is_hidden(member.name):
            scan.hidden.append(member)
            scan.apple_doubles += member.name.rpartition("/")[2].startswith("._")
        else:
            scan.beside.append(member)

    def _note_name(self, member: Member) -> None:
        name = member.name
        if name.startswith("/") or ".." in name.split("/"):
            self._scan.unsafe.append(member)
        if printable(name) != name:
            self._scan.unreadable.append(member)

    def _keep_extension(self, extension: str, known: Extension) -> None:
        # An archive of nothing but different extensions must not fill the memory with them.
        if len(self._extensions) >= _KEPT:
            self._extensions.clear()
        self._extensions[extension] = known


def _is_unwanted(_: Member) -> bool:
    return False


def _look_at(content: bytes | None, *, size: int, options: ScanOptions) -> PictureFacts | PictureError:
    if content is None:
        return PictureError(f"{size} bytes, more than a picture may have ({MAX_PICTURE_BYTES})", "WDS042")
    try:
        return picture_facts(content, max_pixels=options.max_pixels, decode=options.decode)
    except PictureError as error:
        # A new one, without the traceback that would hold on to every broken picture's bytes.
        return PictureError(error.reason, error.rule)


def _count_following(scan: ShardScan, source: ByteSource) -> None:
    """Count the samples of the archives that follow the first one in the same file."""
    ending = scan.ending
    while ending is not None and ending.next_archive:
        walk = ShardWalk(source, shard=scan.shard, want=_is_unwanted, on_damage=scan.note_damage)
        num_samples = sum(group.is_sample for group in group_members(walk))
        scan.following.append((ending.trailing_offset, num_samples))
        ending = walk.ending
