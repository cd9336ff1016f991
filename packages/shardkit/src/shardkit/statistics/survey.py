"""One shard read for statistics: its labels, sizes and picture hashes as columns, its colours as one histogram."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import xxhash

from shardkit.errors import PictureError, ShardkitError, message_naming
from shardkit.index.shard_index import Int64s
from shardkit.keys import LABEL_EXTENSION, PICTURE_EXTENSIONS, picture_extension, split_name
from shardkit.labels import parse_label
from shardkit.pictures import MAX_PICTURE_BYTES, decode_rgb
from shardkit.tar.byte_source import open_source
from shardkit.tar.reader import Group, walk_groups
from shardkit.tar.walk import Member, ShardWalk

__all__ = ["ShardSurvey", "Unusable", "survey_shard"]

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Unusable:
    """A picture that cannot be decoded."""

    shard: str
    key: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSurvey:
    """What one shard holds.

    ``picture_offsets``, ``picture_bytes``: of every sample's picture, where its header begins and its size. Of the
    pictures that were decoded, in order: ``widths``, ``heights``, ``looked_bytes``, ``hashes`` (XXH3, 128 bits, as two
    words) and ``packed_keys`` (NUL between). ``histogram``: int64 (3, 256), pixels of each level of red, green, blue.
    ``labels``: label -> samples, -1 for none. ``error``: why the shard could not be read; then it holds nothing.
    """

    samples: int = 0
    labels: dict[int, int] = field(default_factory=dict)
    picture_offsets: Int64s = field(default_factory=_NONE.copy)
    picture_bytes: Int64s = field(default_factory=_NONE.copy)
    widths: Int64s = field(default_factory=_NONE.copy)
    heights: Int64s = field(default_factory=_NONE.copy)
    looked_bytes: Int64s = field(default_factory=_NONE.copy)
    hashes: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty((0, 2), np.uint64))
    packed_keys: bytes = b""
    histogram: Int64s = field(default_factory=lambda: np.zeros((3, 256), np.int64))
    unusable: tuple[Unusable, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""

    @property
    def keys(self) -> list[str]:
        """The keys of the pictures that were decoded."""
        return self.packed_keys.decode("utf-8", "surrogateescape").split("\0")


def survey_shard(task: tuple[str, frozenset[int] | None, int, bool]) -> ShardSurvey:
    """Read one shard to its end.

    Args: task: its location; the byte offsets of the headers of the pictures to decode, None for all; the most pixels
        that a picture may have; whether commands are run. One tuple, so that it can be handed to another process.
    """
    location, chosen, max_pixels, allow_commands = task
    survey = _Survey(location, chosen=chosen, max_pixels=max_pixels)
    try:
        with open_source(location, allow_commands=allow_commands) as source:
            walk = ShardWalk(source, shard=location, want=survey.wants)
            for group in walk_groups(walk, shard=location, on_warning=survey.warnings.append):
                survey.add(group)
    except (ShardkitError, OSError) as error:
        return ShardSurvey(error=message_naming(location, error))
    return survey.result()


class _Survey:
    """The columns of one shard while they grow."""

    def __init__(self, shard: str, *, chosen: frozenset[int] | None, max_pixels: int) -> None:
        self._shard, self._chosen, self._max_pixels = shard, chosen, max_pixels
        self._samples = 0
        self._labels: dict[int, int] = {}
        self._offsets, self._bytes = array("q"), array("q")
        self._widths, self._heights, self._looked_bytes = array("q"), array("q"), array("q")
        self._hashes = bytearray()
        self._keys: list[bytes] = []
        self._histogram = np.zeros(3 * 256, np.int64)
        self._unusable: list[Unusable] = []
        self.warnings: list[str] = []

    def wants(self, member: Member) -> bool:
        """Want labels, and the pictures that are to be decoded."""
        split = split_name(member.name)
        if split is None or member.size > MAX_PICTURE_BYTES:
            return False
        if split[1] == LABEL_EXTENSION:
            return True
        return split[1] in PICTURE_EXTENSIONS and self._is_chosen(member)

    def _is_chosen(self, member: Member) -> bool:
        return self._chosen is None or member.header_offset in self._chosen

    def add(self, sample: Group) -> None:
        """Enter one sample."""
        self._samples += 1
        parts = {extension: (member, content) for extension, member, content in sample.parts}
        label = parse_label(parts[LABEL_EXTENSION][1] or b"") if LABEL_EXTENSION in parts else None
        self._labels[-1 if label is None else label] = self._labels.get(-1 if label is None else label, 0) + 1
        extension = picture_extension(parts)
        if extension is None:
            return
        member, content = parts[extension]
        self._offsets.append(member.header_offset)
        self._bytes.append(member.size)
        if not self._is_chosen(member):
            return
        try:
            if content is None:
                raise PictureError(f"{member.size} bytes, more than a picture may have ({MAX_PICTURE_BYTES})", "WDS042")
            picture = decode_rgb(content, max_pixels=self._max_pixels)
        except PictureError as error:
            self._unusable.append(Unusable(self._shard, sample.key, error.reason))
            return
        self._histogram += np.array(picture.histogram(), np.int64)
        self._widths.append(picture.width)
        self._heights.append(picture.height)
        self._looked_bytes.append(member.size)
        self._hashes += xxhash.xxh3_128_digest(content)
        self._keys.append(sample.key.encode("utf-8", "surrogateescape"))

    def result(self) -> ShardSurvey:
        """Return what was entered."""
        return ShardSurvey(
            samples=self._samples,
            labels=self._labels,
            picture_offsets=np.array(self._offsets, np.int64),
            picture_bytes=np.array(self._bytes, np.int64),
            widths=np.array(self._widths, np.int64),
            heights=np.array(self._heights, np.int64),
            looked_bytes=np.array(self._looked_bytes, np.int64),
            hashes=np.frombuffer(bytes(self._hashes), np.uint64).reshape(-1, 2),
            packed_keys=b"\0".join(self._keys),
            histogram=self._histogram.reshape(3, 256),
            unusable=tuple(self._unusable),
            warnings=tuple(self.warnings),
        )
