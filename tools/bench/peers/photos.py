"""Photos that Python packages carry and document, and the pictures that are cut from them.

The photos are taken out of the packages' wheels, which are installed into a folder of their own and never imported:
``skimage.data`` (scikit-image), ``sklearn.datasets.load_sample_images`` (scikit-learn), ``matplotlib.cbook``'s sample
data, ``ultralytics.ASSETS`` and imgaug's quokka. Sizes follow ImageNet's; a picture is the busiest of three windows of
its photo, mirrored half of the time, with the noise of a sensor, saved as baseline JPEG 4:2:0. Same bytes for same
versions of Pillow and its libjpeg-turbo.
"""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

__all__ = ["PACKAGES", "cut_picture", "find_photos", "ruler", "shrunk"]

PACKAGES = (
    "scikit-image==0.26.0",
    "scikit-learn==1.9.1",
    "matplotlib==3.11.2",
    "ultralytics==8.4.190",
    "imgaug==0.4.0",
)
_PHOTOS = (
    "skimage/data/astronaut.png",
    "skimage/data/chelsea.png",
    "skimage/data/coffee.png",
    "skimage/data/hubble_deep_field.jpg",
    "skimage/data/motorcycle_left.png",
    "skimage/data/motorcycle_right.png",
    "skimage/data/retina.jpg",
    "skimage/data/rocket.jpg",
    "sklearn/datasets/images/china.jpg",
    "sklearn/datasets/images/flower.jpg",
    "matplotlib/mpl-data/sample_data/grace_hopper.jpg",
    "ultralytics/assets/bus.jpg",
    "ultralytics/assets/zidane.jpg",
    "imgaug/quokka.jpg",
)
# Width and height in pixels with their shares; the last two are ranges. ImageNet: mean about 470 x 400.
_SIZES = (((500, 375), 0.46), ((375, 500), 0.15), ((500, 333), 0.15), ((333, 500), 0.06))
_SMALL, _SMALL_SHARE = (150, 400), 0.14
_LARGE = ((800, 1600), (600, 1200))
_QUALITIES = (90, 93, 95, 96, 96, 97)
# With these a pixel takes 4.0 bits on average; ImageNet's take 4.7.
_NOISE = (1.0, 3.0, 4.0, 6.0, 7.0)
_GREY_EVERY = 100


def find_photos(installed: Path) -> list[Path]:
    """Return the photos below a folder into which :data:`PACKAGES` were installed.

    Raises: FileNotFoundError: one is missing.
    """
    photos = [installed / name for name in _PHOTOS]
    missing = [path for path in photos if not path.is_file()]
    if missing:
        raise FileNotFoundError(f"{missing[0]}: not there; were {', '.join(PACKAGES)} installed into {installed}?")
    return photos


def cut_picture(photos: tuple[Path, ...], number: int) -> bytes:
    """Return JPEG number ``number`` of the data set."""
    random = np.random.Generator(np.random.PCG64(number))
    photo = _opened(photos[number % len(photos)])
    width, height = _size(random)
    windows = [_window(photo, random, width=width, height=height) for _ in range(3)]
    pixels = max(windows, key=_detail).astype(np.int16)
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    sigma = _NOISE[int(random.integers(len(_NOISE)))]
    grey = np.rint(random.normal(0, sigma, (*pixels.shape[:2], 1)))
    colour = np.rint(random.normal(0, sigma / 2, pixels.shape))
    picture = Image.fromarray(np.clip(pixels + grey + colour, 0, 255).astype(np.uint8))
    if number % _GREY_EVERY == _GREY_EVERY - 1:
        picture = picture.convert("L")
    return _saved(picture, quality=_QUALITIES[int(random.integers(len(_QUALITIES)))])


def shrunk(jpeg: bytes) -> bytes:
    """Return the picture as FFCV stores it in its mode "jpg": at most 500 pixels, averaged; quality 90."""
    picture = Image.open(io.BytesIO(jpeg)).convert("RGB")
    share = 500 / max(picture.size)
    if share < 1:
        size = (round(picture.width * share), round(picture.height * share))
        picture = picture.resize(size, Image.Resampling.BOX)
    return _saved(picture, quality=90)


def ruler(number: int) -> bytes:
    """Return a JPEG from which a crop can be read off again: red grows from left to right, green from top to bottom.

    Both go from 16 to 240 over 400 and 300 pixels; blue is 100 to 139, by number.
    """
    pixels = np.empty((300, 400, 3), np.uint8)
    pixels[..., 0] = np.linspace(16, 240, 400).round()[None, :]
    pixels[..., 1] = np.linspace(16, 240, 300).round()[:, None]
    pixels[..., 2] = 100 + number % 40
    return _saved(Image.fromarray(pixels), quality=95)


@cache
def _opened(path: Path) -> Image.Image:
    return Image.open(path).convert("RGB")


def _size(random: np.random.Generator) -> tuple[int, int]:
    draw = random.random()
    for size, share in _SIZES:
        if draw < share:
            return size
        draw -= share
    if draw < _SMALL_SHARE:
        return int(random.integers(*_SMALL)), int(random.integers(*_SMALL))
    return int(random.integers(*_LARGE[0])), int(random.integers(*_LARGE[1]))


def _window(photo: Image.Image, random: np.random.Generator, *, width: int, height: int) -> np.ndarray:
    """Return a part of the photo as pixels (height, width, 3); up to five times as large in the photo if it can be."""
    largest = min(photo.width / width, photo.height / height)
    share = largest if largest <= 1 else random.uniform(1, min(largest, 5.0))
    wide, high = min(photo.width, int(width * share)), min(photo.height, int(height * share))
    left = int(random.integers(photo.width - wide + 1))
    top = int(random.integers(photo.height - high + 1))
    box = (left, top, left + wide, top + high)
    return np.asarray(photo.resize((width, height), Image.Resampling.LANCZOS, box=box))


def _detail(pixels: np.ndarray) -> float:
    grey = pixels.astype(np.int16).sum(axis=2)
    return sum(float(np.abs(np.diff(grey, axis=axis)).mean()) for axis in (0, 1))


def _saved(picture: Image.Image, *, quality: int) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality, subsampling=2)
    return file.getvalue()
