"""What users do to single samples: keep or pass over, change pixels and label; with key and random numbers of each.

Both hooks run where the sample is decoded, in a worker, and come there by pickle: a function of a module or an object
of a class, no lambda. What they draw is keyed by (seed, epoch, sample), so it is the same on every layout.
"""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkit import Key, seeded_words
from wdsloader.errors import TransformError

__all__ = ["Keep", "SampleView", "Transform", "Transformed", "apply_keep", "apply_transform", "sample_generator"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampleView:
    """One sample as a hook sees it.

    ``number``: its place in the dataset as listed. ``label``: -1 without one. ``members``: the bytes by extension.
    ``image``: uint8 (size, size, 3), RGB, cropped; None before it is decoded. Do not write into it.
    """

    key: str
    shard: str
    number: int
    epoch: int
    label: int
    members: Mapping[str, bytes]
    image: npt.NDArray[np.uint8] | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the sample as webdataset's stages and decoders know it: members, ``__key__`` and ``__url__``."""
        return {**self.members, "__key__": self.key, "__url__": self.shard}


# The pixels, or the pixels and a label; None leaves the sample out, as a filter does.
Transformed = npt.NDArray[np.uint8] | tuple[npt.NDArray[np.uint8], int] | None
Keep = Callable[[SampleView, np.random.Generator], bool]
Transform = Callable[[SampleView, np.random.Generator], Transformed]


def sample_generator(key: Key) -> np.random.Generator:
    """Return a generator of its own for a key: the same words everywhere, numpy's methods on top of them."""
    low, high = (int(word) for word in seeded_words(2, key=key))
    return np.random.Generator(np.random.Philox(key=low | high << 64))


def apply_keep(keep: Keep, view: SampleView, *, key: Key) -> bool:
    """Tell whether the user wants a sample. Raises: TransformError."""
    try:
        return bool(keep(view, sample_generator(key)))
    except Exception as error:  # the boundary to the user's code: whatever it is, the sample's name goes with it
        raise _failed("keep", view, error=error) from error


def apply_transform(transform: Transform, view: SampleView, *, key: Key) -> tuple[npt.NDArray[np.uint8], int] | None:
    """Return the pixels and the label that the user makes of a sample, None to leave it out.

    Raises: TransformError: it failed, or gave other pixels than uint8 of the same shape, or a label that is no int64.
    """
    try:
        made = transform(view, sample_generator(key))
    except Exception as error:  # as above
        raise _failed("transform", view, error=error) from error
    if made is None:
        return None
    given = made if isinstance(made, tuple) else (made, view.label)
    if len(given) != 2:
        raise _unfit(view, f"{len(given)} values, not pixels, or pixels and a label")
    image, label = given
    wanted = None if view.image is None else view.image.shape
    got = _shape_of(image)
    if got != f"uint8 {wanted}":
        raise _unfit(view, f"{got}, not uint8 {wanted}")
    try:
        return image, int(np.int64(operator.index(label)))
    except (TypeError, OverflowError) as error:
        raise _unfit(view, f"the label {label!r:.80}, not an integer of 64 bits") from error


def _shape_of(value: object) -> str:
    return f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


def _unfit(view: SampleView, made: str) -> TransformError:
    return TransformError(f"{view.shard}: '{view.key}': transform gave {made}")


def _failed(what: str, view: SampleView, *, error: Exception) -> TransformError:
    failure = TransformError(f"{view.shard}: '{view.key}': {what} failed: {type(error).__name__}: {error}")
    failure.add_note("".join(traceback.format_exception(error)))
    return failure
