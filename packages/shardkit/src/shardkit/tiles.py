"""A few samples of many shards, spread evenly over all of them, as small pictures with key and label.

Owns which samples are shown and how they are read again; ``contact_sheet`` and ``report`` draw them. Holds one picture
of full size at a time.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from PIL import Image

from shardkit.errors import PictureError, ShardReadError
from shardkit.keys import LABEL_EXTENSION, PICTURE_EXTENSIONS, is_part_of_sample, picture_extension, split_name
from shardkit.labels import parse_label
from shardkit.pictures import MAX_PIXELS, load, open_picture, to_rgb
from shardkit.reader import Group, group_members
from shardkit.source import open_source
from shardkit.summary import ShardSummary
from shardkit.walk import Member, ShardWalk

__all__ = ["TILE_PX", "Tile", "TileOptions", "spread", "tiles_of"]

# The side of the square that a picture is fitted into.
TILE_PX = 144
_MAX_CONTENT_BYTES = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class TileOptions:
    """How many samples to show, and how to read them: at most so many pixels a picture, commands or not."""

    num_tiles: int = 64
    max_pixels: int = MAX_PIXELS
    allow_commands: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.num_tiles <= 1024:
            raise ValueError(f"num_tiles must be in 1..1024, not {self.num_tiles}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One sample: its picture, fitted into ``TILE_PX`` x ``TILE_PX`` pixels of RGB, or the reason why there is none."""

    shard: str
    key: str
    label: int | None = None
    picture: Image.Image | None = None
    reason: str = ""


def tiles_of(summaries: Sequence[ShardSummary], options: TileOptions) -> list[Tile]:
    """Read samples of shards again and return them as tiles, in the order of the shards.

    A shard that is gone meanwhile gives tiles that say so. Standard input and named pipes give none: a second reading
    would wait for ever.
    """
    again = [summary for summary in summaries if not _is_stream(summary.shard)]
    tiles: list[Tile] = []
    for summary, rows in zip(again, spread([s.samples for s in again], options.num_tiles), strict=True):
        if rows:
            tiles += _read_tiles(summary.shard, rows, options=options)
    return tiles


def _is_stream(shard: str) -> bool:
    return shard == "-" or (os.path.exists(shard) and not os.path.isfile(shard))


def spread(counts: Sequence[int], wanted: int) -> list[list[int]]:
    """Return rows for each shard: of all samples counted through, ``wanted`` ones at equal distances, or all."""
    total = sum(counts)
    wanted = min(wanted, total)
    chosen = [(2 * number + 1) * total // (2 * wanted) for number in range(wanted)]
    rows: list[list[int]] = []
    for end, count in zip(accumulate(counts), counts, strict=True):
        rows.append([row - (end - count) for row in chosen if end - count <= row < end])
    return rows


class _Rows:
    """Counts the samples of a shard as their members come by; ``rows``: key -> number of the sample."""

    def __init__(self, wanted: Container[int]) -> None:
        self._wanted = wanted
        self.rows: dict[str, int] = {}

    def want(self, member: Member) -> bool:
        """Want the picture and the label of the samples asked for, unless that would fill the memory."""
        split = split_name(member.name)
        if split is None or member.kind != "file":
            return False
        key, extension = split
        if is_part_of_sample(extension):
            self.rows.setdefault(key, len(self.rows))
        shown = extension == LABEL_EXTENSION or extension in PICTURE_EXTENSIONS
        return shown and self.rows[key] in self._wanted and member.size <= _MAX_CONTENT_BYTES


def _read_tiles(shard: str, rows: Sequence[int], *, options: TileOptions) -> list[Tile]:
    """Return a tile for each row, in their order."""
    found: dict[int, Tile] = {}
    missing = "it is not there any more"
    try:
        for row, tile in _found_tiles(shard, set(rows), options=options):
            found.setdefault(row, tile)
            if len(found) == len(rows):
                break
    except OSError as error:
        missing = f"cannot be read again: {error.strerror or error}"
    return [found.get(row, Tile(shard=shard, key=f"sample {row}", reason=missing)) for row in rows]


def _found_tiles(shard: str, wanted: set[int], *, options: TileOptions) -> Iterator[tuple[int, Tile]]:
    counted = _Rows(wanted)
    with open_source(shard, allow_commands=options.allow_commands) as source:
        walk = ShardWalk(source, shard=shard, want=counted.want, on_damage=_ignore)
        for group in group_members(walk):
            row = counted.rows.get(group.key)
            if row is not None and row in wanted and group.is_sample:
                yield row, _tile(shard, group, max_pixels=options.max_pixels)


def _ignore(_: ShardReadError) -> None:
    """Pass over damage: it is among the findings already."""


def _tile(shard: str, group: Group, *, max_pixels: int) -> Tile:
    contents = {extension: content for extension, _, content in group.parts}
    text = contents.get(LABEL_EXTENSION)
    label = None if text is None else parse_label(text)
    pictured = picture_extension(contents)
    data = None if pictured is None else contents[pictured]
    if data is None:
        reason = "no picture" if pictured is None else "too large to be shown"
        return Tile(shard=shard, key=group.key, label=label, reason=reason)
    try:
        return Tile(shard=shard, key=group.key, label=label, picture=_fitted(data, max_pixels=max_pixels))
    except PictureError as error:
        return Tile(shard=shard, key=group.key, label=label, reason=error.reason)


def _fitted(data: bytes, *, max_pixels: int) -> Image.Image:
    """Decode the whole picture and fit it into a tile; small ones are enlarged without smoothing."""
    opened = open_picture(data, max_pixels=max_pixels)
    # A JPEG is unpacked at a fraction of its size where that is still more than the tile's.
    opened.draft("RGB", (2 * TILE_PX, 2 * TILE_PX))
    picture = to_rgb(load(opened))
    ratio = TILE_PX / max(picture.size)
    size = (max(round(picture.width * ratio), 1), max(round(picture.height * ratio), 1))
    how = Image.Resampling.NEAREST if ratio > 1 else Image.Resampling.LANCZOS
    return picture.resize(size, how)
