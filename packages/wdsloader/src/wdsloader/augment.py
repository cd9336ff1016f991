"""The random draw of one sample: crop box and flip, keyed by (seed, epoch, sample). Pure: no pixels.

The box has the geometry of torchvision's ``RandomResizedCrop``: up to ten tries, then the largest central box whose
ratio is allowed. Ranks and workers are in no key, so the same sample gets the same box on every layout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardkit import seeded_words
from wdsloader.config import AugmentConfig

__all__ = ["Crop", "centre_crop", "draw"]

_TRIES = 10
_WORDS_PER_TRY = 4
# The source's evaluation: short side to 256, centre 224.
_EVALUATION_SHARE = 224 / 256


@dataclass(frozen=True, slots=True)
class Crop:
    """A box in pixels of the picture, its left upper corner at (x, y), and whether the result is mirrored."""

    x: float
    y: float
    width: float
    height: float
    flip: bool = False


def draw(config: AugmentConfig, *, seed: int, epoch: int, sample: int | str, width: int, height: int) -> Crop:
    """Draw the training crop of a sample. All numbers of the box are whole.

    Args: sample: its number in the dataset as listed (or a name of its own). width, height: of the picture, in pixels.
    Source: torchvision.transforms.RandomResizedCrop.get_params.
    """
    key = (seed, epoch, "augment", sample)
    area, log_ratio = width * height, (math.log(config.ratio[0]), math.log(config.ratio[1]))
    turn = _turn(sample, seed=seed, epoch=epoch) if config.alternating_flip else None
    flip = False
    for tries in (1, _TRIES):  # the first one does for nine samples of ten, and each word takes time
        words = seeded_words(1 + tries * _WORDS_PER_TRY, key=key).tolist()
        flip = config.flip and (words[0] >> 63 == 1 if turn is None else turn)
        for first in range(1, len(words), _WORDS_PER_TRY):
            share, shape, down, right = words[first : first + _WORDS_PER_TRY]
            target_area = area * _between(share, config.scale)
            ratio = math.exp(_between(shape, log_ratio))
            w, h = round(math.sqrt(target_area * ratio)), round(math.sqrt(target_area / ratio))
            if 0 < w <= width and 0 < h <= height:
                return Crop(_below(right, width - w + 1), _below(down, height - h + 1), w, h, flip)
    return _largest_central(config.ratio, width=width, height=height, flip=flip)


def centre_crop(*, width: int, height: int) -> Crop:
    """Return the evaluation crop: the centre 224/256 of the short side, square, as one box in fractions of pixels.

    Scaled to ``image_size`` it is what resizing the short side to image_size * 256 / 224 and cutting out the centre
    gives, without the intermediate picture.
    """
    side = min(width, height) * _EVALUATION_SHARE
    return Crop((width - side) / 2, (height - side) / 2, side, side)


def _turn(sample: int | str, *, seed: int, epoch: int) -> bool:
    """Return whether a sample is mirrored in an epoch where it is in every second one: which, is by chance."""
    word = int(seeded_words(1, key=(seed, "flip", sample))[0])
    return ((word >> 63) + epoch) % 2 == 1


def _largest_central(ratio: tuple[float, float], *, width: int, height: int, flip: bool) -> Crop:
    w, h = width, height
    if width / height < ratio[0]:
        h = min(height, max(1, round(width / ratio[0])))
    elif width / height > ratio[1]:
        w = min(width, max(1, round(height * ratio[1])))
    return Crop((width - w) // 2, (height - h) // 2, w, h, flip)


def _between(word: int, bounds: tuple[float, float]) -> float:
    """Map a random word to [low, high): its upper 53 bits are all a double holds."""
    low, high = bounds
    return low + (high - low) * ((word >> 11) * 2.0**-53)


def _below(word: int, count: int) -> int:
    """Map a random word to [0, count); the bias is below count / 2**64."""
    return (word * count) >> 64
