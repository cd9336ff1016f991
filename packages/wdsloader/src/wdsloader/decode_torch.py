"""Encoded rows of a batch -> its pixels, decoded by torchvision, on a CUDA device by nvJPEG; cut and resized there.

The geometry and the rounding are those of ``decode``: columns first, then rows, bilinear and antialiased, rounded after
each. On the host (``device="cpu"``) all of it runs too, by torchvision's own libjpeg, for tests.

A picture that the device refuses is decoded by ``decode_crop`` instead, which takes it or names what is wrong: so what
can be delivered, and which errors there are, does not depend on the device. A warning names the first of them.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg

from shardkit import PictureError
from wdsloader.account import Fault
from wdsloader.assembly import Part, Pixels
from wdsloader.augment import Crop
from wdsloader.config import LoaderConfig
from wdsloader.decode import Uint8s, decode_crop
from wdsloader.encoded import EncodedRow
from wdsloader.errors import ConfigError, SampleError
from wdsloader.resize_torch import resized_crops
from wdsloader.rows import undecodable

__all__ = ["DeviceDecoder", "decoding_device"]

log = logging.getLogger(__name__)

# Of decoded pictures and of their filters at a time, each: the largest picture that is allowed by default, unpacked.
_PIECE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """A JPEG, the row of the batch that it fills, and its key. ``data``: its bytes, uint8 (num_bytes,), in the slot."""

    row: int
    key: str | None
    encoded: EncodedRow
    crop: Crop
    data: Tensor

    @property
    def device_bytes(self) -> int:
        """What the picture takes, unpacked."""
        return 3 * self.encoded.width * self.encoded.height


class DeviceDecoder:
    """Decodes batches on one device, beside what is computed there: in a stream of its own.

    A batch takes at most 256 MiB there of unpacked pictures (or the one picture that is larger), three times that of
    filters, 12 bytes a pixel of the one crop that is resized, and its own pixels.
    Args: device: of ``decoding_device``. piece_bytes: those 256 MiB.
    Raises: ConfigError: torchvision does not decode on this device.
    """

    def __init__(self, config: LoaderConfig, *, device: torch.device, piece_bytes: int = _PIECE_BYTES) -> None:
        self._config, self._device, self._piece_bytes = config, device, piece_bytes
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._has_warned = False
        # What the device may be reading still, and the event behind it.
        self._reading: tuple[torch.cuda.Event, Uint8s] | None = None
        _require_decoder(device)

    def settle(self, parts: Sequence[Part], memory: Uint8s, *, num_rows: int) -> tuple[Sequence[Part], Pixels]:
        """Return the batch on the device, uint8 (num_rows, size, size, 3), and the parts less the rows that failed.

        Raises: SampleError: under "stop", the first picture that does not decode.
        """
        if self._reading is not None:  # its memory may be filled anew from now on
            self._reading[0].synchronize()
            self._reading = None
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            images, failures = self._fill(parts, memory, num_rows=num_rows)
        if self._stream is not None:
            event, taker = torch.cuda.Event(), torch.cuda.current_stream(self._device)
            event.record(self._stream)
            taker.wait_event(event)
            images.record_stream(taker)
            self._reading = event, memory
        if failures and self._config.on_error == "stop":
            raise failures[min(failures)]
        return [_without(part, failures) for part in parts], images

    def _fill(self, parts: Sequence[Part], memory: Uint8s, *, num_rows: int) -> tuple[Tensor, dict[int, SampleError]]:
        """Return the batch, and the errors of the rows that are not in it."""
        size = self._config.image_size
        images = torch.empty((num_rows, size, size, 3), dtype=torch.uint8, device=self._device)
        jobs: list[_Job] = []
        for part in parts:
            for row, key, encoded in zip(part.rows.tolist(), part.keys, part.encoded, strict=True):
                data = torch.from_numpy(memory[row, : encoded.num_bytes])
                if encoded.crop is None:
                    images[row].copy_(data.view(size, size, 3))
                else:
                    jobs.append(_Job(row, key, encoded, encoded.crop, data))
        failures: dict[int, SampleError] = {}
        # The caller may be in the middle of anything: this is no part of what is learnt.
        with torch.no_grad(), torch.autocast(self._device.type, enabled=False):
            for piece in _pieces(jobs, size=size, most_bytes=self._piece_bytes):
                failures |= self._decode(piece, images)
        return images, failures

    def _decode(self, jobs: Sequence[_Job], images: Tensor) -> dict[int, SampleError]:
        """Write the crops of some pictures into their rows; return the errors of those that do not decode, by row."""
        answers = _decoded([job.data for job in jobs], self._device)
        pairs = list(zip(jobs, answers, strict=True))
        taken = [(job, picture) for job, picture in pairs if isinstance(picture, Tensor)]
        if taken:
            crops = [job.crop for job, _ in taken]
            pixels = resized_crops([picture for _, picture in taken], crops, size=self._config.image_size)
            rows = torch.tensor([job.row for job, _ in taken], device=self._device)
            images.index_copy_(0, rows, pixels)
        failures: dict[int, SampleError] = {}
        for job, refusal in pairs:
            if isinstance(refusal, str):
                try:
                    self._decode_here(job, images, refusal=refusal)
                except SampleError as error:
                    failures[job.row] = error
        return failures

    def _decode_here(self, job: _Job, images: Tensor, *, refusal: str) -> None:
        """Decode a picture that the device refuses on the host. Raises: SampleError: it is broken."""
        encoded, size = job.encoded, self._config.image_size
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: '%s' at byte %d: %s does not decode this picture (%s): it, and others like it, are decoded on the "
                "host",
                encoded.shard,
                job.key,
                encoded.offset,
                self._device,
                refusal,
            )
        out = np.empty((size, size, 3), np.uint8)
        try:
            decode_crop(
                job.data.numpy().tobytes(), lambda _w, _h: job.crop, out=out, max_pixels=self._config.max_pixels
            )
        except PictureError as error:
            raise undecodable(
                encoded.shard, encoded.extension, key=job.key, offset=encoded.offset, error=error
            ) from error
        images[job.row].copy_(torch.from_numpy(out))


def decoding_device(device: torch.device | str | None) -> torch.device:
    """Return the device that decodes: the one named, else the current CUDA device.

    Raises: ConfigError: it is none, or not there.
    """
    try:
        chosen = torch.device("cuda" if device is None else device)
    except RuntimeError as error:  # a name that torch does not know
        raise _no_device(f"not '{device}'") from error
    if chosen.type == "cpu":
        return torch.device("cpu")
    if chosen.type != "cuda":
        raise _no_device(f"not '{chosen}'")
    if not torch.cuda.is_available():
        raise _no_device("and torch finds none")
    last = torch.cuda.device_count() - 1
    if (chosen.index or 0) > last:
        raise _no_device(f"and there is no '{chosen}', the last is 'cuda:{last}'")
    return torch.empty(0, device=chosen).device  # with its number


def _no_device(what: str) -> ConfigError:
    return ConfigError(f"decode='gpu' is for a CUDA device, {what}. Use decode='cpu' (--decode cpu)")


def _require_decoder(device: torch.device) -> None:
    """Decode a picture that is known to be good: where that fails, all others would."""
    file = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 40)).save(file, "JPEG")
    (answer,) = _decoded([torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)], device)
    if isinstance(answer, str):
        raise ConfigError(f"this torchvision does not decode on '{device}' ({answer}). Use decode='cpu' (--decode cpu)")


def _decoded(data: list[Tensor], device: torch.device) -> list[Tensor | str]:
    """Return each picture, uint8 (3, height, width) on the device, or why it is refused.

    A list that holds one bad picture is refused whole: it is halved until the bad one is alone.
    """
    if device.type == "cuda":
        # nvJPEG waits for no stream, and is given memory that was let go of on this one: what is queued here may still
        # read it, as the last group's pictures while they are resized (github.com/pytorch/vision/pull/9606).
        torch.cuda.current_stream(device).synchronize()
    try:
        pictures: list[Tensor | str] = list(decode_jpeg(data, mode=ImageReadMode.RGB, device=device))
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if len(data) == 1:
            if device.type == "cuda":
                # What it has begun may still be written, into memory that is free by now. An error of the device
                # itself, after which nothing works there, is raised here.
                torch.cuda.synchronize(device)
            return [str(error).partition("\n")[0]]
        half = len(data) // 2
        return _decoded(data[:half], device) + _decoded(data[half:], device)
    return pictures


def _pieces(jobs: Sequence[_Job], *, size: int, most_bytes: int) -> Iterator[list[_Job]]:
    """Yield the jobs in groups that the memory suffices for; one too large for it comes alone."""
    piece: list[_Job] = []
    largest = 0
    for job in jobs:
        filters = 4 * size * (job.encoded.width + job.encoded.height)
        grown = max(largest, job.device_bytes, filters)
        if piece and grown * (len(piece) + 1) > most_bytes:
            yield piece
            piece, grown = [], max(job.device_bytes, filters)
        piece.append(job)
        largest = grown
    if piece:
        yield piece


def _without(part: Part, failures: dict[int, SampleError]) -> Part:
    """Return a part less the rows that failed, which are faults now."""
    rows = part.rows.tolist()
    kept = [place for place, row in enumerate(rows) if row not in failures]
    if len(kept) == len(rows):
        return part
    more = [
        Fault.of(failures[row], position=encoded.position)
        for row, encoded in zip(rows, part.encoded, strict=True)
        if row in failures
    ]
    return replace(
        part,
        rows=part.rows[kept],
        labels=part.labels[kept],
        weights=part.weights[kept],
        keys=tuple(part.keys[place] for place in kept),
        encoded=tuple(part.encoded[place] for place in kept),
        faults=tuple(sorted((*part.faults, *more), key=lambda fault: fault.position)),
    )
