"""Everything that checks want to know of one shard, gathered in one pass; damage is recorded, never raised.

Owns the facts; ``rules`` judges them and ``summary`` counts them. Holds a few hundred bytes a sample and one picture.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shardkit.errors import PictureError, ShardReadError
from shardkit.index import file_checksum
from shardkit.keys import LABEL_EXTENSION, PICTURE_EXTENSIONS, SampleKey, is_hidden, picture_extension, split_name
from shardkit.labels import parse_label
from shardkit.manifest import ShardRecord
from shardkit.pictures import MAX_PIXELS, PictureFacts, picture_facts
from shardkit.reader import Group, group_members
from shardkit.source import ByteSource, open_source
from shardkit.walk import Ending, Member, ShardWalk

__all__ = ["Expectation", "Part", "SampleScan", "ShardScan", "scan_shard"]

# 256 MiB: as many as the pixels of the largest picture allowed take up unpacked; a header may promise anything.
_MAX_CONTENT_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Part:
    """One member of a sample: its full name, extension, the byte offset of its header, and its size in bytes."""

    name: str
    extension: str
    header_offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a shard is held against: labels in ``range(num_classes)``, and what the manifest says of it.

    ``unusable_manifests``: why some of the manifests beside it say nothing. ``gone``: shards that the manifests list
    and the folder lacks.
    """

    num_classes: int | None = None
    record: ShardRecord | None = None
    unusable_manifests: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


@dataclass(slots=True)
class SampleScan:
    """What is known of one key: its parts over the whole shard, in how many places they stand, label and picture."""

    key: SampleKey
    parts: list[Part] = field(default_factory=list)
    num_places: int = 0
    label: int | None = None
    label_content: bytes | None = None
    picture: PictureFacts | PictureError | None = None

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

    ``num_bytes`` and ``checksum`` are of the file as stored, None for standard input, or where no record asks for a
    checksum. ``following``: (byte offset, number of samples) of each further archive in the file. ``special``: links,
    folders, devices; ``hidden`` and ``beside``: members that belong to no sample. ``decoded``: pictures were unpacked.
    """

    shard: str
    expected: Expectation = Expectation()
    num_bytes: int | None = None
    checksum: str | None = None
    compressed: bool = False
    decoded: bool = True
    samples: dict[SampleKey, SampleScan] = field(default_factory=dict)
    special: list[Member] = field(default_factory=list)
    hidden: list[Member] = field(default_factory=list)
    beside: list[Member] = field(default_factory=list)
    damage: list[ShardReadError] = field(default_factory=list)
    ending: Ending | None = None
    following: list[tuple[int, int]] = field(default_factory=list)

    def note_damage(self, error: ShardReadError) -> None:
        """Keep the error without the traceback that would hold on to the bytes in its frames."""
        self.damage.append(copy.copy(error))


def scan_shard(
    path: str,
    *,
    expected: Expectation = Expectation(),
    decode: bool = True,
    max_pixels: int = MAX_PIXELS,
    allow_commands: bool = False,
) -> ShardScan:
    """Read one shard (anything that :func:`open_source` opens) to its last byte and return what it holds.

    Args: expected: with a record, the file is hashed too. decode: unpack every picture, else read its header only.
    Raises: OSError: the file cannot be opened.
    """
    scan = ShardScan(shard=path, expected=expected, decoded=decode)
    # A pipe cannot be read again for a checksum.
    is_file = path != "-" and os.path.isfile(path)
    with open_source(path, allow_commands=allow_commands) as source:
        scan.compressed, scan.num_bytes = source.compressed, source.num_bytes
        walk = ShardWalk(source, shard=path, want=_is_wanted, on_damage=scan.note_damage)
        for group in group_members(_set_aside(walk, scan)):
            _add_group(scan, group, max_pixels=max_pixels)
        scan.ending = walk.ending
        _count_following(scan, source)
    if expected.record is not None and is_file:
        scan.checksum = file_checksum(Path(path))
    return scan


def _is_wanted(member: Member) -> bool:
    """Want the contents of labels and pictures, unless that would fill the memory."""
    split = split_name(member.name)
    if split is None or member.size > _MAX_CONTENT_BYTES:
        return False
    return split[1] == LABEL_EXTENSION or split[1] in PICTURE_EXTENSIONS


def _is_unwanted(_: Member) -> bool:
    return False


def _set_aside(
    entries: Iterable[tuple[Member, bytes | None]], scan: ShardScan
) -> Iterator[tuple[Member, bytes | None]]:
    """Pass on the members that may belong to samples; note the others in the scan."""
    for member, content in entries:
        if member.kind != "file":
            scan.special.append(member)
        elif is_hidden(member.name):
            scan.hidden.append(member)
        elif split_name(member.name) is None:
            scan.beside.append(member)
        else:
            yield member, content


def _add_group(scan: ShardScan, group: Group, *, max_pixels: int) -> None:
    """Enter one group of neighbours; a key that was there before gets one more place."""
    if not group.is_sample:
        scan.beside.extend(member for _, member, _ in group.parts)
        return
    sample = scan.samples.setdefault(group.key, SampleScan(group.key))
    sample.num_places += 1
    pictured = picture_extension({extension for extension, _, _ in group.parts})
    for extension, member, content in group.parts:
        sample.parts.append(Part(member.name, extension, member.header_offset, member.size))
        if extension == LABEL_EXTENSION:
            sample.label_content = b"(%d bytes)" % member.size if content is None else content[:64]
            sample.label = None if content is None else parse_label(content)
        elif extension == pictured:
            sample.picture = _look_at(member, content, max_pixels=max_pixels, decode=scan.decoded)


def _look_at(member: Member, content: bytes | None, *, max_pixels: int, decode: bool) -> PictureFacts | PictureError:
    if content is None:
        return PictureError(f"{member.size} bytes, more than a picture may have ({_MAX_CONTENT_BYTES})", "WDS042")
    try:
        return picture_facts(content, max_pixels=max_pixels, decode=decode)
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
