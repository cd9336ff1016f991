"""Rules on names and on what makes up a sample. WDS02x and WDS06x."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from shardkit.check.rules.rule import Hit, more_of, rule
from shardkit.check.scan import SampleScan, ShardScan
from shardkit.errors import counted, printable
from shardkit.keys import LABEL_EXTENSION, PICTURE_EXTENSIONS, picture_extension

__all__: list[str] = []

# So many examples are named in a message.
_NAMED = 5


@rule(
    "WDS020",
    "error",
    effect="Every sample is split in two: training loses its labels or its pictures.",
    remedy="Sort the members by name and pack the shard again, or run wds repair",
    explanation="Readers take neighbours of one key for one sample. Where the key comes back later, they have two "
    "halves: tar of an unsorted folder, or all pictures first and all labels behind them.",
)
def parts_apart(scan: ShardScan) -> Iterator[Hit]:
    """The parts of a sample are not side by side."""
    if not scan.num_apart:
        return
    apart = [sample for sample in scan.samples.values() if sample.num_places > 1]
    second = next(part for part in apart[0].parts if part.header_offset != apart[0].parts[0].header_offset)
    message = f"parts of one sample are not side by side: {len(apart)} of {counted(len(scan.samples), 'key')}"
    yield Hit(f"{message}, first {printable(second.name)}", second.name, second.header_offset)


@rule(
    "WDS021",
    "error",
    effect="The sample is dropped, or stops the run.",
    remedy="Pack the picture, or drop the sample",
    explanation="No part of the sample has the extension of a picture. Dots in the base name are a usual cause: the "
    "key ends at the first one, and `a.v2.jpg` has the extension `v2.jpg`.",
)
def picture_missing(scan: ShardScan) -> Iterator[Hit]:
    """A sample has no picture."""
    if all(picture_extension(shape) is not None for shape in scan.shapes):
        return
    for sample in scan.samples.values():
        if picture_extension(sample.extensions) is None and sample.key not in scan.explained:
            yield Hit(f"lacks jpg{_dotted(sample)}", sample.key, sample.parts[0].header_offset)


@rule(
    "WDS022",
    "error",
    effect="The sample is dropped, or stops the run.",
    remedy="Pack the label as KEY.cls, a whole number (what json or txt say is not read), or drop the sample",
    explanation="No part of the sample has the extension `cls`, which holds the class number. Dots in the base name "
    "are a usual cause, as for WDS021; so are shards whose labels are in `json`: `wds make-shards --from-table` "
    "packs pictures again with labels from JSON lines.",
)
def label_missing(scan: ShardScan) -> Iterator[Hit]:
    """A sample has no label."""
    if all(LABEL_EXTENSION in shape for shape in scan.shapes):
        return
    for sample in scan.samples.values():
        if LABEL_EXTENSION not in sample.extensions and sample.key not in scan.explained:
            yield Hit(f"lacks cls{_dotted(sample)}", sample.key, sample.parts[0].header_offset)


@rule(
    "WDS023",
    "note",
    effect="Nothing: they are ignored.",
    remedy="Pack without them (COPYFILE_DISABLE=1 on a Mac)",
    explanation="A base name that begins with a dot belongs to no sample. macOS' tar writes an AppleDouble twin "
    "`._name` for each file, which other readers may take for a picture.",
)
def hidden_members(scan: ShardScan) -> Iterator[Hit]:
    """Members whose names begin with a dot."""
    if scan.hidden:
        first = scan.hidden[0]
        message = f"{counted(scan.hidden.num_seen, 'hidden member')} ignored ({scan.apple_doubles} AppleDouble)"
        yield Hit(message, first.name, first.header_offset)


@rule(
    "WDS024",
    "warning",
    effect="A tool that unpacks the shard may write outside its folder.",
    remedy="Pack it under a relative name without '..'",
    explanation="The name of a member, whatever its kind, begins with a slash or has '..' among its folders. Nothing "
    "is unpacked here, so the name is only a name.",
)
def unsafe_name(scan: ShardScan) -> Iterator[Hit]:
    """A name is absolute or climbs out of its folder."""
    for member in scan.unsafe:
        yield Hit("an absolute name, or one with '..'", member.name, member.header_offset)
    yield from more_of(scan.unsafe)


@rule(
    "WDS025",
    "note",
    effect="Nothing: they are ignored.",
    remedy="Pack without them",
    explanation="Members that are no part of any sample: no extension, or a key that neither a picture nor a label "
    "has.",
)
def files_beside(scan: ShardScan) -> Iterator[Hit]:
    """Files that belong to no sample."""
    if scan.beside:
        names = ", ".join(printable(member.name) for member in scan.beside[:_NAMED])
        first = scan.beside[0]
        yield Hit(f"{counted(scan.beside.num_seen, 'other member')}: {names}", first.name, first.header_offset)


@rule(
    "WDS026",
    "warning",
    effect="A reader that unpickles it runs whatever code is in it.",
    remedy="Pack without it, or keep the data as numbers or JSON",
    explanation="webdataset and others unpickle members by extension (pyd, pkl, pickle, pt, pth), and unpickling runs "
    "code that the file's author chose. Nothing is unpickled here.",
)
def pickled_member(scan: ShardScan) -> Iterator[Hit]:
    """A member that readers would unpickle."""
    for member in scan.pickled:
        yield Hit("a pickle: a reader that unpickles it runs its code", member.name, member.header_offset)
    yield from more_of(scan.pickled)


@rule(
    "WDS027",
    "warning",
    effect="Readers that want UTF-8 stop, or two of them disagree on the key.",
    remedy="Rename the files to plain names and pack again",
    explanation="A name holds bytes that are not UTF-8 (from a file system of another encoding), or control "
    "characters such as line ends. They are shown escaped here.",
)
def unreadable_name(scan: ShardScan) -> Iterator[Hit]:
    """A name is not UTF-8, or holds control characters."""
    if scan.unreadable:
        names = ", ".join(printable(member.name) for member in scan.unreadable[:_NAMED])
        first = scan.unreadable[0]
        message = f"{scan.unreadable.num_seen} names that are not UTF-8 or hold control characters: {names}"
        yield Hit(message, first.name, first.header_offset)


@rule(
    "WDS028",
    "warning",
    effect="Unpacked on a Mac or on Windows, one sample overwrites the other.",
    remedy="Give them keys that differ in more than case",
    explanation="Keys are compared byte by byte, so `Cat/1` and `cat/1` are two samples; file systems that know no "
    "case make one of them.",
)
def case_clash(scan: ShardScan) -> Iterator[Hit]:
    """Keys differ in upper and lower case alone."""
    first: dict[str, str] = {}
    clashes = [sample for key, sample in scan.samples.items() if first.setdefault(key.casefold(), key) != key]
    if clashes:
        other = first[clashes[0].key.casefold()]
        message = (
            f"{counted(len(clashes), 'key differs/keys differ')} from another in case alone, first from "
            f"'{printable(other)}'"
        )
        yield Hit(message, clashes[0].key, clashes[0].parts[0].header_offset)


@rule(
    "WDS029",
    "note",
    effect="A reader that drops folder names takes samples of one base name for one.",
    remedy="Nothing to do here: the folder is part of the key; or pack again under flat names",
    explanation="The key is the folder and the base name up to its first dot, as webdataset has it. Told where one "
    "base name is used in several folders of the shard.",
)
def same_base_in_folders(scan: ShardScan) -> Iterator[Hit]:
    """Samples of different folders have the same base name."""
    bases = Counter(key.rpartition("/")[2] for key in scan.samples if "/" in key)
    shared = sum(count > 1 for count in bases.values())
    if shared:
        first = next(s for s in scan.samples.values() if bases[s.key.rpartition("/")[2]] > 1)
        message = f"{shared} base names are used in several folders, first '{printable(first.key)}'"
        yield Hit(message, first.key, first.parts[0].header_offset)


@rule(
    "WDS060",
    "note",
    effect="Nothing for readers that go by extension; some take the parts as they come.",
    remedy="Sort the members by name and pack the shard again",
    explanation="The parts of most samples come in one order of extensions (jpg, cls), those of others in another.",
)
def parts_out_of_order(scan: ShardScan) -> Iterator[Hit]:
    """The parts of samples come in different orders."""
    if len({tuple(sorted(shape)) for shape in scan.shapes}) == len(scan.shapes):
        return
    usual: dict[tuple[str, ...], tuple[str, ...]] = {}
    out = []
    for sample in scan.samples.values():
        order = tuple(part.extension for part in sample.parts)
        if sample.num_places == 1 and usual.setdefault(tuple(sorted(order)), order) != order:
            out.append(sample)
    if out:
        names = [part.extension for part in out[0].parts]
        first = ", ".join(usual[tuple(sorted(names))])
        message = (
            f"{counted(len(out), 'sample has its/samples have their')} parts in another order: "
            f"{', '.join(names)}, not {first}"
        )
        yield Hit(printable(message), out[0].key, out[0].parts[0].header_offset)


@rule(
    "WDS061",
    "note",
    effect="Readers may use different ones.",
    remedy="Pack one picture a sample",
    explanation="A sample has several members with extensions of pictures. Here the first of "
    f"{', '.join(PICTURE_EXTENSIONS)} is the picture.",
)
def several_pictures(scan: ShardScan) -> Iterator[Hit]:
    """A sample has several pictures."""
    if not scan.num_apart and all(len(_PICTURES.intersection(shape)) < 2 for shape in scan.shapes):
        return
    found = [s for s in scan.samples.values() if len(s.parts) > 2 and len(s.extensions & _PICTURES) > 1]
    if found:
        message = (
            f"{counted(len(found), 'sample has/samples have')} several pictures: "
            f"{', '.join(sorted(found[0].extensions & _PICTURES))}"
        )
        yield Hit(message, found[0].key, found[0].parts[0].header_offset)


_PICTURES = frozenset(PICTURE_EXTENSIONS)


def _dotted(sample: SampleScan) -> str:
    """Explain a missing part by dots in the base name, where that is why."""
    dotted: Sequence[str] = sorted(extension for extension in sample.extensions if "." in extension)
    return f"; fields seen {printable(', '.join(dotted))}: dots in the base name" if dotted else ""
