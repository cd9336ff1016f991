"""Draw the pictures of a fake ImageNet: which label, size, pixels and JPEG bytes sample ``i`` has.

Owns the labels, the class signal and the rendering; writes no files (pack.py does). Every result is a pure function of
the fields and the sample's index, so any process can make any sample. The pixel path knows integers only: the same
pixels on every Python, numpy and CPU. The JPEG bytes also depend on the version of libjpeg-turbo inside Pillow.

The class signal is two hues (ground and stripes, a lattice over all pairs), with the stripes' slant and width as extra.
It fills the picture, so a crop, a zoom, a flip and a downscale leave it in place; light, contrast, tint, grain, warp
and foreign objects vary from picture to picture and say nothing about the class.

Measured over the first 400 default pictures (seed 0, train; Pillow 13.0, libjpeg-turbo 3.2): mean size 464 x 384, 19 %
upright, sides from 83 to 1047 pixels; JPEG mean 111 KB, median 99 KB, from 5 to 503 KB.
"""

from __future__ import annotations

import io
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from shardkit.errors import PackError
from shardkit.seeded import Key, seeded_permutation, seeded_words

__all__ = ["FakeImageNet"]

Rgb = tuple[int, int, int]

# Below 32 pixels a stripe is lost in the halved chroma of the JPEG.
_MIN_SIDE, _MAX_SIDE = 32, 4096
# Every picture's colours sit in one table: a row per step of the stripe pattern and per object, a column per shade.
_PHASES, _SHADES = 64, 128
# Textures repeat after this many pixels in both directions.
_TILE = 1024
# Stripe directions a flip cannot confuse, (cos, sin) * 256 of 0, 30, 60 and 90 degrees; the sign varies by picture.
_SLANTS = ((256, 0), (222, 128), (128, 222), (0, 256))
# One hue wheel: six ramps of 256 steps.
_HUES = 6 * 256


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeImageNet:
    """A set of pictures that a network can learn to tell apart, made on demand.

    ``train`` and ``val`` with the same ``num_classes`` show the same classes; everything else about a picture depends
    on seed, split and index. Labels are mixed: each run of ``num_classes`` samples that starts at a multiple of it
    holds every class once.

    Args:
        size: (width, height) of the typical picture; one in five is turned upright.
        sizes: "varied" spreads the sizes as in ImageNet, "fixed" makes every picture exactly ``size``.
        quality: of the JPEG, 1 to 100.
        labels: "shuffled" keeps the pictures and gives them labels that have nothing to do with what they show.
    Raises: PackError: a value out of range.
    """

    num_samples: int
    num_classes: int = 1000
    split: Literal["train", "val"] = "train"
    seed: int = 0
    size: tuple[int, int] = (500, 375)
    sizes: Literal["varied", "fixed"] = "varied"
    quality: int = 95
    labels: Literal["signal", "shuffled"] = "signal"

    def __post_init__(self) -> None:
        _check_range("num_samples", self.num_samples, low=1, high=2**40)
        _check_range("num_classes", self.num_classes, low=1, high=2**20)
        _check_range("seed", self.seed, low=0, high=2**32 - 1)
        _check_range("quality", self.quality, low=1, high=100)
        _check_choice("split", self.split, choices=("train", "val"))
        _check_choice("sizes", self.sizes, choices=("varied", "fixed"))
        _check_choice("labels", self.labels, choices=("signal", "shuffled"))
        _check_size(self.size)

    def label(self, index: int) -> int:
        """Return the label written for a sample, in [0, num_classes)."""
        if self.labels == "signal":
            return self.shown_class(index)
        return self._balanced_class(index, purpose="shuffled label")

    def shown_class(self, index: int) -> int:
        """Return the class that the picture shows; its label too, unless ``labels`` is "shuffled"."""
        return self._balanced_class(index, purpose="class")

    def picture_size(self, index: int) -> tuple[int, int]:
        """Return (width, height) of a sample's picture."""
        number = self._checked(index)
        if self.sizes == "fixed":
            return self.size
        return _varied_size(self.size, _Dice((self.seed, self.split, "size", number)))

    def pixels(self, index: int) -> npt.NDArray[np.uint8]:
        """Draw a sample's picture: uint8 RGB (height, width, 3)."""
        width, height = self.picture_size(index)
        look = _class_look(self.shown_class(index), self.num_classes)
        dice = _Dice((self.seed, self.split, "pixels", index))
        stripe_colours = _stripe_colours(look, dice)
        cells = _stripe_cells(look, dice, width=width, height=height)
        object_colours = _place_objects(cells, dice)
        table = _shade_table(stripe_colours + object_colours, dice)
        # Four bytes a colour, so that one lookup per pixel fetches all of it.
        return table.take(cells).view(np.uint8).reshape(height, width, 4)[:, :, :3].copy()

    def jpeg(self, index: int) -> bytes:
        """Encode a sample's picture: baseline JPEG, 4:2:0, no metadata."""
        buffer = io.BytesIO()
        Image.fromarray(self.pixels(index)).save(
            buffer, "JPEG", quality=self.quality, subsampling="4:2:0", optimize=False, progressive=False
        )
        return buffer.getvalue()

    def sample(self, index: int) -> tuple[bytes, int]:
        """Return (JPEG bytes, label) of a sample."""
        return self.jpeg(index), self.label(index)

    def _balanced_class(self, index: int, *, purpose: str) -> int:
        block, place = divmod(self._checked(index), self.num_classes)
        return int(_class_block(self.num_classes, (self.seed, self.split, purpose, block))[place])

    def _checked(self, index: int) -> int:
        number = operator.index(index)
        if not 0 <= number < self.num_samples:
            raise PackError(f"sample {number}: no such sample. Give an index from 0 to {self.num_samples - 1}.")
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClassLook:
    """What all pictures of a class share: hues in [0, _HUES), stripe direction * 256, stripes per short side * 256."""

    ground_hue: int
    stripe_hue: int
    slant: tuple[int, int]
    stripes: int


class _Dice:
    """A stream of random whole numbers for one purpose; the order of the throws is part of the format."""

    def __init__(self, key: Key) -> None:
        # More than the most that a picture takes, 69.
        self._words = iter(seeded_words(80, key=key).tolist())

    def throw(self, low: int, high: int) -> int:
        """Return a number from low to high, both included."""
        return low + int(next(self._words)) % (high - low + 1)


def _check_range(name: str, value: object, *, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise PackError(f"{name}: {value!r} is out of range. Give a whole number from {low} to {high}.")


def _check_size(size: object) -> None:
    if not isinstance(size, tuple) or len(size) != 2:
        raise PackError(f"size: {size!r} is not a (width, height) pair. Give two whole numbers.")
    _check_range("size width", size[0], low=_MIN_SIDE, high=_MAX_SIDE)
    _check_range("size height", size[1], low=_MIN_SIDE, high=_MAX_SIDE)


def _check_choice(name: str, value: str, *, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise PackError(f"{name}: {value!r} is unknown. Give one of: {', '.join(choices)}.")


@lru_cache(maxsize=16)
def _class_block(num_classes: int, key: Key) -> npt.NDArray[np.int64]:
    return seeded_permutation(num_classes, key=key)


@lru_cache(maxsize=4096)
def _class_look(label: int, num_classes: int) -> _ClassLook:
    """Spread the classes over the torus of hue pairs: a rank-1 lattice with the golden section as its stride.

    From 2 to 1,100 classes the closest two lie at least 0.69 as far apart as in the best lattice there is.
    """
    stride = (num_classes * 618_034 + 500_000) // 1_000_000
    return _ClassLook(
        ground_hue=label * _HUES // num_classes,
        stripe_hue=label * stride % num_classes * _HUES // num_classes,
        slant=_SLANTS[label % 4],
        stripes=(4 if label // 4 % 2 else 7) * 256,
    )


def _varied_size(size: tuple[int, int], dice: _Dice) -> tuple[int, int]:
    """Scale a typical (width, height) as pictures from the web vary: most at the usual long side, some far off."""
    kind, shape = dice.throw(0, 99), dice.throw(0, 3)
    if kind < 55:
        scale = 1000
    elif kind < 75:
        scale = dice.throw(600, 1000)
    elif kind < 82:
        scale = dice.throw(250, 600)
    else:
        scale = dice.throw(1000, 2100)
    # Half keep the usual shape (4:3 by default), a quarter is wider (3:2), a quarter anything near.
    stretch = (1000, 1000, 889, dice.throw(800, 1250))[shape]
    width = max(size[0] * scale // 1000, _MIN_SIDE)
    height = max(size[1] * scale * stretch // 1_000_000, _MIN_SIDE)
    return (height, width) if dice.throw(0, 99) < 20 else (width, height)


def _stripe_colours(look: _ClassLook, dice: _Dice) -> list[Rgb]:
    """Return the colour of each step of the stripe pattern, from dark ground to light stripe and back."""
    ground_hue = look.ground_hue + dice.throw(-8, 8)
    ground = _rgb(ground_hue, saturation=dice.throw(170, 235), value=dice.throw(95, 150))
    stripe_hue = look.stripe_hue + dice.throw(-8, 8)
    stripe = _rgb(stripe_hue, saturation=dice.throw(140, 215), value=dice.throw(190, 250))
    half_width, edge = dice.throw(11, 17), dice.throw(1, 8)
    colours: list[Rgb] = []
    for phase in range(_PHASES):
        inside = half_width - abs(phase - _PHASES // 2)
        weight = min(max((inside + edge) * 128 // edge, 0), 256)
        red, green, blue = ((g * (256 - weight) + s * weight) >> 8 for g, s in zip(ground, stripe, strict=True))
        colours.append((red, green, blue))
    return colours


def _rgb(hue: int, *, saturation: int, value: int) -> Rgb:
    """Convert from the HSV hexagon: hue modulo _HUES, the others 0 to 255."""
    sector, ramp = divmod(hue % _HUES, 256)
    low = value * (255 - saturation) // 255
    falling = value * (255 * 256 - saturation * ramp) // (255 * 256)
    rising = value * (255 * 256 - saturation * (256 - ramp)) // (255 * 256)
    sectors = (
        (value, rising, low),
        (falling, value, low),
        (low, value, rising),
        (low, falling, value),
        (rising, low, value),
        (value, low, falling),
    )
    return sectors[sector]


def _stripe_cells(look: _ClassLook, dice: _Dice, *, width: int, height: int) -> npt.NDArray[np.uint16]:
    """Lay warped stripes and shade over the picture.

    Returns: uint16 (height, width), stripe phase * _SHADES + shade: the index into the shade table.
    """
    # One stripe is 2**16 steps of phase, so that uint16 arithmetic wraps where the pattern does.
    steps = look.stripes * dice.throw(205, 320) // min(width, height)
    across, down = (part + dice.throw(-24, 24) for part in look.slant)
    down = -down if dice.throw(0, 1) else down
    columns = (np.arange(width, dtype=np.int64) * (across * steps >> 8) + dice.throw(0, 65535)).astype(np.uint16)
    rows = (np.arange(height, dtype=np.int64) * (down * steps >> 8)).astype(np.uint16)
    cells = _window(_clouds(), dice, width=width, height=height)
    cells *= np.uint16(dice.throw(2, 20))
    cells += columns
    cells += rows[:, None]
    cells >>= np.uint16(10)
    cells <<= np.uint16(7)

    light = dice.throw(40, 200)
    shade = _window(_clouds(), dice, width=width, height=height)
    shade >>= np.uint16(4)
    shade *= np.uint16(light)
    grain = _window(_grains()[dice.throw(0, 2)], dice, width=width, height=height)
    grain *= np.uint16(256 - light)
    shade += grain
    shade >>= np.uint16(9)
    cells |= shade
    return cells


def _place_objects(cells: npt.NDArray[np.uint16], dice: _Dice) -> list[Rgb]:
    """Put a few plain objects in front of the stripes, in place, and return their colours.

    No object is larger than the smallest crop that training takes (8 % of the area): some ground is always in view.
    """
    height, width = cells.shape
    colours: list[Rgb] = []
    for number in range(dice.throw(0, 5)):
        rx, ry = (max(side * dice.throw(30, 130) // 1000, 1) for side in (width, height))
        cx, cy = dice.throw(0, width - 1), dice.throw(0, height - 1)
        box = cells[max(cy - ry, 0) : cy + ry + 1, max(cx - rx, 0) : cx + rx + 1]
        x = np.arange(max(cx - rx, 0), min(cx + rx + 1, width), dtype=np.int64) - cx
        y = np.arange(max(cy - ry, 0), min(cy + ry + 1, height), dtype=np.int64)[:, None] - cy
        if dice.throw(0, 1):
            inside = x * x * (ry * ry) + y * y * (rx * rx) <= rx * rx * ry * ry
        else:
            inside = abs(x) * (ry * 5) + abs(y) * (rx * 2) <= rx * ry * 5
        box[inside] = (box[inside] & np.uint16(_SHADES - 1)) + np.uint16((_PHASES + number) * _SHADES)
        colours.append(_rgb(dice.throw(0, _HUES - 1), saturation=dice.throw(0, 110), value=dice.throw(30, 250)))
    return colours


def _shade_table(colours: Sequence[Rgb], dice: _Dice) -> npt.NDArray[np.uint32]:
    """Return the colours in every shade, under this picture's light: uint32 (colours * _SHADES,), bytes R, G, B, 0."""
    depth, contrast, bright = dice.throw(60, 150), dice.throw(190, 290), dice.throw(-24, 24)
    tint = np.array([bright + dice.throw(-8, 8) for _ in range(3)], np.int32)
    shade = (np.arange(_SHADES, dtype=np.int32) - _SHADES // 2) * depth // (_SHADES // 2)
    base = np.array(colours, np.int32)[:, None, :]
    lit = base + ((base + 64) * shade[:, None] >> 8)
    lit = ((lit - 128) * contrast >> 8) + 128 + tint
    table = np.zeros((len(colours), _SHADES, 4), np.uint8)
    table[:, :, :3] = lit.clip(0, 255)
    return table.view(np.uint32).reshape(-1)


def _window(texture: npt.NDArray[np.uint16], dice: _Dice, *, width: int, height: int) -> npt.NDArray[np.uint16]:
    """Copy a random window of a texture that repeats without end: uint16 (height, width)."""
    rows = np.arange(height) + dice.throw(0, _TILE - 1)
    columns = np.arange(width) + dice.throw(0, _TILE - 1)
    return texture.take(rows, axis=0, mode="wrap").take(columns, axis=1, mode="wrap")


@lru_cache(maxsize=1)
def _clouds() -> npt.NDArray[np.uint16]:
    """Return smooth noise for light and warp: uint16 (_TILE, _TILE), 12 bits used."""
    return _texture("clouds", {256: 9, 128: 5, 64: 2}, bits=12)


@lru_cache(maxsize=1)
def _grains() -> tuple[npt.NDArray[np.uint16], ...]:
    """Return rough noise in three sizes, fine first: each uint16 (_TILE, _TILE), 8 bits used."""
    return (
        _texture("fine grain", {4: 4, 2: 6, 1: 6}, bits=8),
        _texture("medium grain", {16: 4, 4: 6, 2: 4, 1: 2}, bits=8),
        _texture("coarse grain", {32: 6, 16: 5, 4: 3, 1: 2}, bits=8),
    )


def _texture(name: str, octaves: dict[int, int], *, bits: int) -> npt.NDArray[np.uint16]:
    """Sum value noise of several cell widths, weighted in sixteenths; repeats without a seam."""
    total = np.zeros((_TILE, _TILE), np.int32)
    for cell, weight in octaves.items():
        side = _TILE // cell
        knots = (seeded_words(side * side, key=("texture", name, cell)) >> np.uint64(48)).astype(np.int32)
        total += (_smooth(_smooth(knots.reshape(side, side), cell).T, cell).T >> 4) * weight
    # Sums of octaves crowd around the middle: double the spread, and let the rare extremes clip.
    spread = ((total - 32768) * 2 + 32768).clip(0, 65535)
    return (spread >> (16 - bits)).astype(np.uint16)


def _smooth(knots: npt.NDArray[np.int32], cell: int) -> npt.NDArray[np.int32]:
    """Blend each row into the next over ``cell`` steps: (rows, n) to (rows * cell, n)."""
    if cell == 1:
        return knots
    step = np.arange(cell, dtype=np.int64)
    # Smoothstep, 3t^2 - 2t^3, in 1/256: no visible creases at the knots.
    weight = (step * step * (3 * cell - 2 * step) * 256 // cell**3).astype(np.int32)[:, None]
    low, high = knots[:, None, :], np.roll(knots, -1, axis=0)[:, None, :]
    return (low + ((high - low) * weight >> 8)).reshape(-1, knots.shape[1])
