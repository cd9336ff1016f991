"""Rules on pictures: what does not decode, and what decodes but surprises. WDS04x."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from shardkit.check.rules.rule import Check, Hit, declare, rule
from shardkit.check.scan import SampleScan, ShardScan
from shardkit.errors import PictureError
from shardkit.keys import picture_extension
from shardkit.pictures import PictureFacts, is_other_format

__all__: list[str] = []


def _picture_error(rule_id: str) -> Check:
    """Return a check that hands on the picture errors of this rule."""

    def check(scan: ShardScan) -> Iterator[Hit]:
        if not scan.options.pictures:
            return
        for sample in scan.samples.values():
            if isinstance(sample.picture, PictureError) and sample.picture.rule == rule_id:
                yield Hit(sample.picture.reason, *_picture_place(sample))

    return check


declare(
    "WDS040",
    "error",
    title="A picture does not decode.",
    effect="The run stops here, or trains on a picture half gray.",
    remedy="Replace the picture, or drop the sample",
    explanation="The picture is of no known format, cut, or damaged: unpacking it fails. With --no-decode only its "
    "header is read, so that cut pictures are not found.",
    check=_picture_error("WDS040"),
)
declare(
    "WDS042",
    "error",
    title="A picture has too many pixels.",
    effect="Unpacking it can take gigabytes and kill the worker.",
    remedy="Scale the picture down, drop the sample, or raise --max-pixels",
    explanation="A few kilobytes can unpack to gigabytes of pixels. The number of pixels is read from the header and "
    "the picture is not unpacked when there are more than --max-pixels, or when its file has more than 256 MiB.",
    check=_picture_error("WDS042"),
)
declare(
    "WDS043",
    "error",
    title="A picture is empty.",
    effect="The run stops here.",
    remedy="Replace the picture, or drop the sample",
    explanation="The member of the picture is there and has no bytes.",
    check=_picture_error("WDS043"),
)


def _picture_note(text: Callable[[list[PictureFacts]], str], *, having: Callable[[PictureFacts, str], bool]) -> Check:
    """Return a check that counts the pictures with some property in one line."""

    def check(scan: ShardScan) -> Iterator[Hit]:
        if not scan.options.pictures:
            return
        hits = [
            (sample, sample.picture)
            for sample in scan.samples.values()
            if isinstance(sample.picture, PictureFacts)
            and having(sample.picture, str(picture_extension(sample.extensions)))
        ]
        if hits:
            yield Hit(text([facts for _, facts in hits]), *_picture_place(hits[0][0]))

    return check


def _count_formats(pictures: list[PictureFacts]) -> str:
    counts = Counter(facts.format for facts in pictures)
    return "contents of another format than the name says: " + ", ".join(f"{f}: {n}" for f, n in sorted(counts.items()))


declare(
    "WDS041",
    "note",
    title="A picture is of another format than its name says.",
    effect="A decoder that goes by the name fails.",
    remedy="Nothing to do: formats are told by content here",
    explanation="ImageNet itself has a PNG named JPEG. Formats are told by the first bytes.",
    check=_picture_note(_count_formats, having=lambda facts, extension: is_other_format(facts.format, extension)),
)
declare(
    "WDS044",
    "note",
    title="A picture is CMYK.",
    effect="Some decoders give false colours.",
    remedy="Nothing to do: they are converted to RGB here",
    explanation="JPEGs made for print have four channels, often inverted. ImageNet has about twenty.",
    check=_picture_note(lambda found: f"{len(found)} CMYK", having=lambda facts, _: facts.mode in ("CMYK", "YCCK")),
)
declare(
    "WDS045",
    "note",
    title="A picture is turned by EXIF.",
    effect="Some decoders turn them, some do not.",
    remedy="Nothing to do: no picture is turned here, as with torchvision's ImageFolder",
    explanation="EXIF says that the picture should be shown turned or mirrored. Training and serving must agree on it.",
    check=_picture_note(lambda found: f"{len(found)} turned by EXIF", having=lambda facts, _: facts.turned),
)
declare(
    "WDS046",
    "note",
    title="A picture has 16 bits a channel.",
    effect="Decoders that scale wrongly make them white.",
    remedy="Nothing to do: they are scaled to 8 bits here",
    explanation="Gray pictures of 16 or 32 bits, as medical and depth data have. Pillow's own conversion clips at 255.",
    check=_picture_note(lambda found: f"{len(found)} of 16 bits", having=lambda facts, _: facts.mode.startswith("I")),
)
declare(
    "WDS047",
    "note",
    title="A picture has damaged EXIF.",
    effect="Some decoders warn of each, in every worker.",
    remedy="Nothing to do: EXIF is ignored here",
    explanation="An entry of the EXIF block is cut or points outside of it. The picture itself is whole.",
    check=_picture_note(lambda found: f"{len(found)} with damaged EXIF", having=lambda facts, _: facts.bad_exif),
)
declare(
    "WDS048",
    "note",
    title="A picture is animated.",
    effect="Only the first frame is used.",
    remedy="Drop them, or pack single frames",
    explanation="The file has more frames than one: GIF, APNG, WebP, TIFF pages, or the second picture of a camera's "
    "MPO.",
    check=_picture_note(lambda found: f"{len(found)} animated", having=lambda facts, _: facts.frames > 1),
)


@rule(
    "WDS049",
    "warning",
    effect="Most decoders fill what is damaged with gray in silence; strict ones stop the run.",
    remedy="Look at the picture; replace it, or drop the sample",
    explanation="A JPEG that decodes, but whose markers are not in order: bytes in a scan that cannot be there, "
    "restart markers missing or out of step. Damage that leaves the markers alone, such as single wrong bits in the "
    "compressed data, is not found: no decoder at hand reports it. A checksum on record (manifest) finds any.",
)
def damaged_inside(scan: ShardScan) -> Iterator[Hit]:
    """A JPEG decodes, but is damaged inside."""
    if not scan.options.pictures:
        return
    for sample in scan.samples.values():
        if isinstance(sample.picture, PictureFacts) and sample.picture.damage is not None:
            yield Hit(f"damaged inside: {sample.picture.damage}", *_picture_place(sample))


declare(
    "WDS070",
    "warning",
    title="A picture has float pixels.",
    effect="Readers scale them differently, or cut them at 255: black or white pictures.",
    remedy="Store them with 8 or 16 bits",
    explanation="TIFF can hold floats, whose range nobody but the author knows. Here they are cut at 0 and 255.",
    check=_picture_note(lambda found: f"{len(found)} of float pixels", having=lambda facts, _: facts.mode == "F"),
)


def _picture_place(sample: SampleScan) -> tuple[str, int]:
    part = next(part for part in sample.parts if part.extension == picture_extension(sample.extensions))
    return part.name, part.header_offset
