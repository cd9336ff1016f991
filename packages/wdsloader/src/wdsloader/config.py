"""The settings of a loader: frozen, validated once, the same in every process. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from shardkit import MAX_PIXELS
from wdsloader.errors import ConfigError
from wdsloader.hooks import Keep, Transform

__all__ = ["AugmentConfig", "Cut", "Decode", "LoaderConfig", "OnError", "Tail"]

Tail = Literal["drop", "pad", "ragged"]
OnError = Literal["stop", "skip"]
Cut = Literal["epoch", "run"]
Decode = Literal["cpu", "gpu"]
Labels = Literal["required", "optional"]

# The pictures of a larger batch fit no memory: 2.5 TB at 224 pixels.
_MAX_BATCH = 2**24
# The longest side of a JPEG, and of what the kernel makes of one.
_MAX_SIDE = 65500


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentConfig:
    """How a training crop is drawn.

    ``scale``: smallest and largest share of the picture's area, in (0, 1]. ``ratio``: smallest and largest width /
    height. ``flip``: mirror half of the crops. ``alternating_flip``: a sample is mirrored every second epoch; chance
    says only in which it begins, so that two epochs show both sides (Jordan 2024, arXiv 2404.00498). Source: the
    defaults of torchvision's ``RandomResizedCrop``.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    alternating_flip: bool = False

    def __post_init__(self) -> None:
        _require_range("scale", self.scale, limit=1.0)
        _require_range("ratio", self.ratio, limit=math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderConfig:
    """What a loader delivers, and in which order.

    ``batch_size`` is per rank; the global batch B is ranks x batch_size. ``tail``: drop the last N mod B samples of an
    epoch, pad them to a whole batch with masked rows, or deliver a short batch (ragged; one rank only). ``lanes`` (L),
    ``spans_per_lane`` (k) and ``block`` (W) shape the order (ORDER.md); None takes the default rule. ``shuffle=False``
    is the order as listed. ``augment=None`` is the evaluation geometry: short side to image_size * 256 / 224, centre
    crop. ``num_epochs=None`` goes on for ever. ``stream_buffer``: samples in the shuffle buffer of the inexact mode,
    which ``exact=True`` makes an error. ``buffer_bytes``: packed bytes that may wait in one worker, in its lanes or in
    that buffer; past it a lane reads samples when they are due, and one warning says which block would fit.
    ``num_workers``: processes; None is one for each core that this one may use, shared with the other ranks, at most
    16. 0 works in this process, and so does the first batch of local shards, while the workers start.

    ``on_error="skip"`` masks the row of a sample that cannot be delivered, until more than ``max_skipped`` of an epoch
    were: a number of samples (int), or a share of the epoch (float); each rank counts its own. ``labels="required"``
    makes a sample without an integer label one that cannot be delivered; "optional" gives it the label -1.

    ``keep`` decides before a picture is decoded whether its sample is wanted; ``transform`` changes its pixels
    afterwards (``hooks``). ``resampled`` draws shards with replacement for epochs of ``epoch_samples`` samples.
    ``cut="run"`` cuts the lanes once a run, so that a worker keeps its shards from epoch to epoch. ``pin_memory`` has
    the pixels of batches in memory that a CUDA device copies from by itself; few batches may be kept in it at a time.

    ``dct_scaling`` lets the kernel unpack a JPEG at 1/2, 1/4 or 1/8 where a crop is at least as many times as large as
    the image: 1.15 times as fast at 128 pixels, with other pixels (by 1 to 4 of 255 a picture).

    ``decode="gpu"`` leaves baseline JPEGs to the CUDA device: workers read and check the bytes and draw the crops, a
    batch is decoded, cut and resized where it is trained on. Other pictures stay with the workers, each by itself. Same
    order, crops, errors and accounts; pixels differ by rounding and by how a decoder enlarges chroma. There is nothing
    for ``transform`` or ``dct_scaling`` to work on.
    """

    batch_size: int
    image_size: int = 224
    seed: int = 0
    shuffle: bool = True
    tail: Tail = "drop"
    num_workers: int | None = None
    num_epochs: int | None = None
    lanes: int | None = None
    spans_per_lane: int = 4
    block: int | None = None
    augment: AugmentConfig | None = None
    exact: bool = False
    stream_buffer: int = 1000
    buffer_bytes: int = 512 << 20
    max_pixels: int = MAX_PIXELS
    on_error: OnError = "stop"
    max_skipped: int | float = 0.01
    labels: Labels = "required"
    keep: Keep | None = None
    transform: Transform | None = None
    resampled: bool = False
    epoch_samples: int | None = None
    cut: Cut = "epoch"
    pin_memory: bool = False
    dct_scaling: bool = False
    decode: Decode = "cpu"

    def __post_init__(self) -> None:
        for name in ("batch_size", "image_size", "spans_per_lane", "stream_buffer", "buffer_bytes", "max_pixels"):
            _require_at_least(1, name, value=getattr(self, name))
        for name, most in (("batch_size", _MAX_BATCH), ("image_size", _MAX_SIDE)):
            if getattr(self, name) > most:
                raise ConfigError(f"{name}={getattr(self, name)}: must be at most {most}")
        _require_at_least(0, "seed", value=self.seed)
        for name, least in (("num_workers", 0), ("num_epochs", 1), ("lanes", 1), ("block", 1), ("epoch_samples", 1)):
            if getattr(self, name) is not None:
                _require_at_least(least, name, value=getattr(self, name))
        words = (("tail", Tail), ("on_error", OnError), ("labels", Labels), ("cut", Cut), ("decode", Decode))
        for name, choices in words:
            if getattr(self, name) not in get_args(choices):
                raise ConfigError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(get_args(choices))}")
        _require_skips(self.max_skipped)
        self._require_resampled()
        self._require_pixels()

    def _require_pixels(self) -> None:
        """Refuse what works on the pixels in a worker where a device makes them."""
        for name, given in (("transform", self.transform is not None), ("dct_scaling", self.dct_scaling)):
            if given and self.decode == "gpu":
                raise ConfigError(f"{name} works on pixels in a worker, and decode='gpu' has none there: leave one out")

    def _require_resampled(self) -> None:
        """Refuse half of a resampled epoch: drawing with replacement has no end, and a length needs the drawing."""
        if self.resampled and self.epoch_samples is None:
            raise ConfigError("resampled=True draws for ever: say in epoch_samples how many samples an epoch has")
        if self.epoch_samples is not None and not self.resampled:
            raise ConfigError(
                f"epoch_samples={self.epoch_samples} goes with resampled=True: else an epoch is all samples"
            )
        if not self.shuffle and (self.resampled or self.cut == "run"):
            raise ConfigError("shuffle=False is the order as listed: leave resampled and cut as they are")


def _require_at_least(least: int, name: str, *, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name}={value!r}: must be an integer of at least {least}")


def _require_skips(limit: int | float) -> None:
    """Check a limit: a count from 0 up, or a share in [0, 1]."""
    fits = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
    if not fits and not (isinstance(limit, float) and 0 <= limit <= 1):
        raise ConfigError(f"max_skipped={limit!r}: must be a count (an integer from 0 up) or a share (0.0 to 1.0)")


def _require_range(name: str, pair: tuple[float, float], *, limit: float) -> None:
    low, high = pair
    if not 0 < low <= high <= limit:
        allowed = "0 < low <= high" + (f" <= {limit:g}" if math.isfinite(limit) else "")
        raise ConfigError(f"{name}={pair!r}: must be (low, high) with {allowed}")
