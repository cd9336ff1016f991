"""Rules on pictures: what does not decode, and what decodes but surprises. WDS04x."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from shardkit.errors import PictureError
from shardkit.keys import picture_extension
from shardkit.pictures import PictureFacts
from shardkit.rules.rule import Check, Hit, rule
from shardkit.scan import SampleScan, ShardScan

__all__: list[str] = []


def _picture_error(rule_id: str) -> Check:
    """Return a check that hands on the picture errors of this rule."""

    def check(scan: ShardScan) -> Iterator[Hit]:
        for sample in scan.samples.values():
            if isinstance(sample.picture, PictureError) and sample.picture.rule == rule_id:
                yield Hit(sample.picture.reason, *_picture_place(sample))

    return check


rule(
    "WDS040",
    "error",
    effect="The run stops here, or trains on a picture half gray.",
    remedy="Replace the picture, or drop the sample",
)(_picture_error("WDS040"))
rule(
    "WDS042",
    "error",
    effect="Unpacking it can take gigabytes and kill the worker.",
    remedy="Scale the picture down, drop the sample, or raise --max-pixels",
)(_picture_error("WDS042"))
rule("WDS043", "error", effect="The run stops here.", remedy="Replace the picture, or drop the sample")(
    _picture_error("WDS043")
)


def _picture_note(text: Callable[[list[PictureFacts]], str], *, having: Callable[[PictureFacts, str], bool]) -> Check:
    """Return a check that counts the pictures with some property in one line."""

    def check(scan: ShardScan) -> Iterator[Hit]:
        hits = [
            (sample, sample.picture)
            for sample in scan.samples.values()
            if isinstance(sample.picture, PictureFacts)
            and having(sample.picture, str(picture_extension(sample.extensions)))
        ]
        if hits:
            yield Hit(text([facts for _, facts in hits]), *_picture_place(hits[0][0]))

    return check


_EXTENSION_FORMATS = {"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "webp": "WEBP", "gif": "GIF", "bmp": "BMP"}


def _count_formats(pictures: list[PictureFacts]) -> str:
    counts = Counter(facts.format for facts in pictures)
    return "contents of another format than the name says: " + ", ".join(f"{f}: {n}" for f, n in sorted(counts.items()))


def _has_other_format(facts: PictureFacts, extension: str) -> bool:
    # An MPO is a JPEG with more pictures behind it, as some cameras write.
    named = _EXTENSION_FORMATS.get(extension)
    return named is not None and facts.format != named and not (named == "JPEG" and facts.format == "MPO")


rule(
    "WDS041",
    "note",
    effect="A decoder that goes by the name fails.",
    remedy="Nothing to do: formats are told by content here",
)(_picture_note(_count_formats, having=_has_other_format))
rule(
    "WDS044", "note", effect="Some decoders give false colours.", remedy="Nothing to do: they are converted to RGB here"
)(_picture_note(lambda found: f"{len(found)} CMYK", having=lambda facts, _: facts.mode in ("CMYK", "YCCK")))
rule(
    "WDS045",
    "note",
    effect="Some decoders turn them, some do not.",
    remedy="Nothing to do: no picture is turned here, as with torchvision's ImageFolder",
)(_picture_note(lambda found: f"{len(found)} turned by EXIF", having=lambda facts, _: facts.turned))
rule(
    "WDS046",
    "note",
    effect="Decoders that scale wrongly make them white.",
    remedy="Nothing to do: they are scaled to 8 bits here",
)(_picture_note(lambda found: f"{len(found)} of 16 bits", having=lambda facts, _: facts.mode.startswith("I")))
rule(
    "WDS047",
    "note",
    effect="Some decoders warn of each, in every worker.",
    remedy="Nothing to do: EXIF is ignored here",
)(_picture_note(lambda found: f"{len(found)} with damaged EXIF", having=lambda facts, _: facts.bad_exif))
rule("WDS048", "note", effect="Only the first frame is used.", remedy="Drop them, or pack single frames")(
    _picture_note(lambda found: f"{len(found)} animated", having=lambda facts, _: facts.frames > 1)
)


def _picture_place(sample: SampleScan) -> tuple[str, int]:
    part = next(part for part in sample.parts if part.extension == picture_extension(sample.extensions))
    return part.name, part.header_offset
