"""One sample into its row of a batch: the user's hooks, its picture, the crop drawn for it; pixels, or bytes and a box.

The crop is keyed by the sample and drawn for the size that its header tells, whoever decodes it: so a sample is cut
alike by the worker and by a device. Numpy, no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from shardkit import PictureError, picture_extension
from wdsloader.account import FILTERED
from wdsloader.augment import Crop, centre_crop, draw
from wdsloader.config import LoaderConfig
from wdsloader.decode import ChooseCrop, Uint8s, decode_crop
from wdsloader.encoded import EncodedRow, size_if_left
from wdsloader.errors import SampleError
from wdsloader.hooks import SampleView, apply_keep, apply_transform
from wdsloader.shards import StoredSample

__all__ = ["BatchRows", "Identity", "decode_sample", "kept_view", "rows_of", "undecodable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which sample it is for whatever is drawn for it: ``name`` has no other sample of the epoch.

    ``number``: its place in the dataset as listed, -1 where that is not known.
    """

    name: int | str
    number: int
    epoch: int


class BatchRows(Protocol):
    """Rows of one batch, being filled. ``encoded``: of the rows delivered so far, where a device shall decode."""

    encoded: list[EncodedRow]

    def deliver(self, stored: StoredSample, identity: Identity, *, row: int, position: int) -> int:
        """Write a sample into a row of the batch; return its label.

        Args: position: of the sample in the epoch.
        Raises: SampleError: no picture in it, or one that does not decode; kind ``FILTERED``: a hook leaves it out.
            TransformError.
        """
        ...


def rows_of(memory: Uint8s, *, config: LoaderConfig) -> BatchRows:
    """Return what fills rows of a batch. Args: memory: the slot, of ``slot_shape``."""
    return _PixelRows(memory, config) if config.decode == "cpu" else _EncodedRows(memory, config)


class _PixelRows:
    """Decoded here, each in its place."""

    def __init__(self, images: Uint8s, config: LoaderConfig) -> None:
        self._images, self._config = images, config
        self.encoded: list[EncodedRow] = []

    def deliver(self, stored: StoredSample, identity: Identity, *, row: int, position: int) -> int:  # noqa: ARG002
        return decode_sample(stored, identity, config=self._config, out=self._images[row])


class _EncodedRows:
    """Left to a device where it can take them, decoded here where not."""

    def __init__(self, memory: Uint8s, config: LoaderConfig) -> None:
        self._memory, self._config = memory, config
        self.encoded: list[EncodedRow] = []

    def deliver(self, stored: StoredSample, identity: Identity, *, row: int, position: int) -> int:
        config, room = self._config, self._memory[row]
        kept_view(stored, identity, config=config)
        extension, data = _picture_in(stored)
        size = size_if_left(data, room_bytes=len(room), max_pixels=config.max_pixels)
        side = config.image_size
        if size is None:
            _decode_picture(stored, identity, config=config, out=room[: side**2 * 3].reshape(side, side, 3))
        else:
            room[: len(data)] = np.frombuffer(data, np.uint8)
        width, height = size or (side, side)
        self.encoded.append(
            EncodedRow(
                num_bytes=side**2 * 3 if size is None else len(data),
                width=width,
                height=height,
                crop=None if size is None else _chooser(identity, config)(width, height),
                position=position,
                extension=extension,
                shard=stored.shard,
                offset=stored.content.offset,
            )
        )
        return stored.label


def decode_sample(stored: StoredSample, identity: Identity, *, config: LoaderConfig, out: Uint8s) -> int:
    """Write a sample's pixels into its row, a drawn crop or the evaluation crop, and return its label.

    Raises: as ``BatchRows.deliver``.
    """
    view = kept_view(stored, identity, config=config)
    _decode_picture(stored, identity, config=config, out=out)
    if config.transform is None:
        return stored.label
    seen = replace(view, image=out)
    made = apply_transform(config.transform, seen, key=(config.seed, identity.epoch, "transform", identity.name))
    if made is None:
        raise _filtered(stored)
    out[:] = made[0]
    return made[1]


def kept_view(stored: StoredSample, identity: Identity, *, config: LoaderConfig) -> SampleView:
    """Return a sample as hooks see it, not yet decoded.

    Raises: SampleError: kind ``FILTERED``: ``keep`` leaves it out. TransformError.
    """
    view = SampleView(
        key=stored.content.key,
        shard=stored.shard,
        number=identity.number,
        epoch=identity.epoch,
        label=stored.label,
        members=stored.content.members,
    )
    if config.keep is not None and not apply_keep(
        config.keep, view, key=(config.seed, identity.epoch, "keep", identity.name)
    ):
        raise _filtered(stored)
    return view


def undecodable(shard: str, extension: str, *, key: str | None, offset: int, error: PictureError) -> SampleError:
    """Return the error of a sample whose picture does not decode."""
    kind = "undecodable picture"
    return SampleError(shard, f"{extension}: {error}", key=key, offset=offset, rule=error.rule, kind=kind)


def _filtered(stored: StoredSample) -> SampleError:
    content = stored.content
    return SampleError(stored.shard, "filtered out", key=content.key, offset=content.offset, kind=FILTERED)


def _picture_in(stored: StoredSample) -> tuple[str, bytes]:
    """Return (extension, bytes) of a sample's picture. Raises: SampleError: it has none."""
    content = stored.content
    extension = picture_extension(content.members)
    if extension is not None:
        return extension, content.members[extension]
    found = ", ".join(sorted(content.members)) or "nothing"
    reason = f"no picture in this sample, only {found}"
    raise SampleError(stored.shard, reason, key=content.key, offset=content.offset, rule="WDS021", kind="no picture")


def _chooser(identity: Identity, config: LoaderConfig) -> ChooseCrop:
    """Return what draws the sample's crop, or takes the one of evaluation."""

    def choose(width: int, height: int) -> Crop:
        if config.augment is None:
            return centre_crop(width=width, height=height)
        return draw(
            config.augment, seed=config.seed, epoch=identity.epoch, sample=identity.name, width=width, height=height
        )

    return choose


def _decode_picture(stored: StoredSample, identity: Identity, *, config: LoaderConfig, out: Uint8s) -> None:
    extension, data = _picture_in(stored)
    limit, scaling = config.max_pixels, config.dct_scaling
    try:
        decode_crop(data, _chooser(identity, config), out=out, max_pixels=limit, dct_scaling=scaling)
    except PictureError as error:
        content = stored.content
        raise undecodable(stored.shard, extension, key=content.key, offset=content.offset, error=error) from error
